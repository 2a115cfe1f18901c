"""Names in the package: a class name has one meaning, and no room imports a higher room through a string."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "autotrace"
SHARED_CLASS_NAMES: dict[str, str] = {}
"""Class names that stand for several classes -> the reason."""
IMPORTERS = ("import_module", "__import__", "find_spec")


def rooms() -> dict[str, int]:
    """Room -> height, as the import contract of ``pyproject.toml`` lists the rooms."""
    contract = (ROOT / "pyproject.toml").read_text().partition("layers = [")[2].partition("]")[0]
    layers = re.findall(r'"(.+)"', contract)
    return {room: -height for height, layer in enumerate(layers) for room in layer.split(" | ")}


def class_names(package: Path) -> dict[str, list[str]]:
    """Class name -> the files that define a class of this name."""
    files = defaultdict(list)
    for path in sorted(package.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                files[node.name].append(str(path.relative_to(package)))
    return files


def upward_imports(package: Path) -> Iterator[str]:
    """Imports of a higher room whose module is named by a string."""
    heights = rooms()
    for path in sorted(package.rglob("*.py")):
        room = path.relative_to(package).parts[0]
        if room not in heights:  # the package itself, above all rooms
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call) or not node.args:
                continue
            function = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            named = [part.value for part in ast.walk(node.args[0]) if isinstance(part, ast.Constant)]
            text = "".join(part for part in named if isinstance(part, str))
            target = re.match(r"autotrace\.(\w+)", text)
            if function in IMPORTERS and target and heights.get(target[1], 1) > heights[room]:
                yield f"{path.relative_to(package)}:{node.lineno} imports {text}"


def test_a_class_name_has_one_meaning() -> None:
    shared = {name: files for name, files in class_names(PACKAGE).items() if len(files) > 1}
    assert shared.keys() == SHARED_CLASS_NAMES.keys(), shared


def test_no_room_imports_a_higher_room_through_a_string() -> None:
    assert list(upward_imports(PACKAGE)) == []


@pytest.mark.parametrize(
    "code",
    [
        'import_module("autotrace.cli.show")',
        'importlib.import_module(f"autotrace.cli.{name}")',
        '__import__("autotrace.cli")',
    ],
)
def test_an_import_of_a_higher_room_is_found(tmp_path: Path, code: str) -> None:
    (tmp_path / "trajectory").mkdir()
    (tmp_path / "trajectory" / "model.py").write_text(code)
    assert len(list(upward_imports(tmp_path))) == 1


def test_a_class_name_in_two_files_is_found(tmp_path: Path) -> None:
    for name in ("one.py", "two.py"):
        (tmp_path / name).write_text("class Place: ...")
    assert class_names(tmp_path) == {"Place": ["one.py", "two.py"]}
