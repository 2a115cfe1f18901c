"""The pages say what is so: their lists compile, their commands parse, their variables and links exist."""

from __future__ import annotations

import pkgutil
import re
import shlex
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from click.testing import CliRunner

from autotrace.cli.main import main
from autotrace.cli.steps import columns as columns_of
from autotrace.config import environment
from autotrace.export.format import FORMATS
from autotrace.insight import registry as registry_of
from autotrace.insight.step_lines import StepLine
from autotrace.launch.main import main as launch
from autotrace.launch.options import SETTINGS
from autotrace.patch.plan_index import PlanIndex, excluded
from autotrace.sinks import registry
from autotrace.spec.compiler import compile_plan
from autotrace.tables.conditions import condition
from autotrace.tables.words import NAMES
from tests.hostile.table import CASES
from tools import english, pages

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.glob("*.md"))
FRONT = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")]
TEXTS = {page.name: page.read_text() for page in [*PAGES, *FRONT]}
PLACEHOLDERS = ("findings-step", "NAME", "LIBRARY", "ROOM")
"""In paths of files that a reader is to write."""


def blocks(text: str) -> list[str]:
    """Code of a page: indented or fenced."""
    fenced = re.findall(r"```\w*\n(.*?)```", text, re.S)
    indented = re.findall(r"(?:^(?: {4}.*)?\n)*^ {4}.*$", re.sub(r"```.*?```", "", text, flags=re.S), re.M)
    return [*fenced, *(re.sub(r"^ {4}", "", block, flags=re.M).strip("\n") for block in indented)]


LISTS = [
    pytest.param(block, id=f"{name}-{number}")
    for name, text in TEXTS.items()
    for number, block in enumerate(blocks(text))
    if re.match(r"(#.*\n)*- ", block)
]
COMMANDS = [
    pytest.param(line.strip(), id=f"{name}-{line.strip()[:60]}")
    for name, text in TEXTS.items()
    for block in blocks(text)
    for line in block.replace("\\\n", " ").splitlines()
    if re.match(r"\s*(\w+=\S+ )*autotrace(-run)? ", line)
]


@pytest.mark.parametrize("text", LISTS)
def test_a_list_compiles(text: str, tmp_path: Path) -> None:
    (tmp_path / "list.yaml").write_text(text)
    assert compile_plan([tmp_path / "list.yaml"]).targets != compile_plan().targets


@pytest.mark.parametrize("line", COMMANDS)
def test_a_command_parses(line: str) -> None:
    words = shlex.split(line, comments=True)
    while "=" in words[0]:
        words = words[1:]
    for stop in ("&&", "|", ";", "&"):
        words = words[: words.index(stop)] if stop in words else words
    command: click.Command | None = launch
    if words[0] == "autotrace":
        command, words = main.get_command(click.Context(main), words[1]), words[1:]
    assert command is not None, f"no such command: autotrace {words[0]}"
    command.make_parser(click.Context(command, **command.context_settings)).parse_args(words[1:])


def test_what_the_page_leaves_out_is_left_out_by_all_its_lists_together(tmp_path: Path) -> None:
    (text,) = [text for text in blocks(TEXTS["any-library.md"]) if "**" in text]
    (tmp_path / "list.yaml").write_text(text)
    globs = PlanIndex(compile_plan([tmp_path / "list.yaml"])).globs
    mine = [glob for glob in globs if glob.prefix.startswith("some_library")]
    assert len(mine) == 2
    assert not any(excluded(glob.target, "some_library.client.Client.pong") for glob in mine)
    assert all(excluded(glob.target, "some_library.client.Client.ping") for glob in mine)


def test_there_are_lists_and_commands_to_check() -> None:
    assert len(LISTS) >= 8 and len(COMMANDS) >= 10


def test_every_option_has_a_row() -> None:
    rows = [line for line in TEXTS["options.md"].splitlines() if line.startswith("| `--")]
    named = {name for row in rows for name in re.findall(r"--[a-z-]+", row.split(" | ")[0])}
    assert named == {option for setting in SETTINGS for option in setting.opts}


def test_every_command_is_on_the_page_of_commands() -> None:
    named = set(re.findall(r"\bautotrace ([a-z]+)", TEXTS["commands.md"]))
    assert not set(main.list_commands(click.Context(main))) - named, "each needs a line at the top of docs/commands.md"


def test_counts_in_the_readme_are_those_of_its_lists() -> None:
    readme = " ".join(TEXTS["README.md"].split())
    (trainers,) = re.findall(r"Trainers and agents\.\*\* veRL, ([^;]+);", readme)
    assert f"veRL (both trainers) and {len(re.split(', | and ', trainers))} more" in readme


def test_the_readme_fits_a_screen_and_a_half_and_begins_with_a_picture() -> None:
    lines = TEXTS["README.md"].splitlines()
    assert len(lines) <= 120
    assert any(line.startswith("![") for line in lines[:30])


def test_what_is_made_from_code_is_what_the_code_says() -> None:
    assert not pages.outdated().keys(), "run: make pages"


def test_parts_that_are_out_of_date_are_made_anew() -> None:
    """The figures, and tables that lack a row."""
    readme = TEXTS["README.md"]
    rows = re.findall(r"^\| `[\w.-]+` \| .*?\((\d+)\) \|", TEXTS["libraries.md"], re.M)
    assert f"{len(rows)} libraries in {sum(map(int, rows))} checked releases" in " ".join(readme.split())
    assert readme.count(f"{len(registry_of.codes())} [findings]") == 1 == readme.count("findings with their place")
    for page, before in (
        ("README.md", re.sub(r"\d+(?= \[?findings| libraries| checked| shapes)", "0", readme)),
        ("docs/running.md", TEXTS["running.md"].replace("Python 3.10 to", "Python 3.9 to")),
        ("docs/data.md", re.sub(r"\| `(reward|spans)` .*\n", "", TEXTS["data.md"])),
        ("docs/commands.md", TEXTS["commands.md"].replace("`num_turns`, ", "")),
        ("docs/findings.md", re.sub(r"\| \[AT-T.*\n", "", TEXTS["findings.md"])),
    ):
        now = TEXTS[Path(page).name]
        assert before != now and pages.made(page, before) == now


def test_ci_has_a_row_for_each_python_of_the_classifiers() -> None:
    (row,) = re.findall(r"(?m)^ +python: \[(.*)\]$", (ROOT / ".github/workflows/ci.yml").read_text())
    classified = re.findall(r":: Python :: (3\.\d+)", (ROOT / "pyproject.toml").read_text())
    assert re.findall(r"3\.\d+", row) == classified


def test_the_diagnosis_in_the_readme_has_the_words_of_the_finding() -> None:
    (block,) = [block for block in blocks(TEXTS["README.md"]) if re.match(r"\d+\. AT-", block)]
    code = registry_of.codes()[block.split()[1]]
    assert block.splitlines()[0].partition(". ")[2] == f"{code.code}  {code.title}"
    shown = dict(re.findall(r"^   (what|why|try) +(.*)$", block, re.M))
    assert shown and shown.items() <= {"what": code.what, "why": code.why, "try": code.remedy}.items()


def test_every_promise_names_a_command() -> None:
    rows = re.findall(r"^\| .* \| (.*) \|$", TEXTS["promises.md"], re.M)[1:]
    assert len(rows) > 10 and all(re.search(r"`(make|pytest) ", row) for row in rows)


def test_every_page_is_in_the_index() -> None:
    named = {link.partition("#")[0] for link in re.findall(r"\]\(([^)]+\.md[^)]*)\)", TEXTS["index.md"])}
    assert named == {page.name for page in PAGES} - {"index.md"}


def test_every_page_is_in_the_wheel() -> None:
    included = re.findall(r'^"docs/([\w./-]+)" = "autotrace/docs/', (ROOT / "pyproject.toml").read_text(), re.M)
    assert sorted(included) == sorted(["findings", *(page.name for page in PAGES)])


def test_messages_name_no_page_that_the_wheel_lacks() -> None:
    named = set()
    for path in (ROOT / "autotrace").rglob("*.py"):
        text = re.sub(r'"""|#.*', "", path.read_text())
        named |= set(re.findall(r"autotrace help ([a-z-]+)", text))
        assert not re.search(r'"[^"`]*docs/\w[\w-]*\.md', text), path
    assert named - {"lists"} <= {page.stem for page in PAGES} and "clusters" in named


def test_every_column_of_steps_is_explained() -> None:
    one: dict[str, Any] = {name: 1 for name in StepLine.__dataclass_fields__}
    for name in ("reward_parts", "errors", "tool_errors", "time", "findings"):
        one[name] = {"tool_s": 1}
    names = {column.name for column in columns_of([StepLine(**one)])} - {"", "step", "source"}
    rows = [row.split(" | ")[0] for row in TEXTS["commands.md"].splitlines() if row.startswith("| `")]
    assert len(names) > 18 and names <= {name for row in rows for name in re.findall(r"`([^`]+)`", row)}
    printed = CliRunner().invoke(main, ["steps", "--help"]).output
    assert not [name for name in names if not re.search(rf"(^|[\s,:]){re.escape(name.split()[0])}[\s,:]", printed)]


def test_no_page_installs_the_stranger_s_package_and_the_check_would_see_one() -> None:
    assert not [page for page, text in TEXTS.items() if english.STRANGER.search(text)]
    for text in (
        '{"pip": ["autotrace"]}',
        "uv run --with autotrace train.py",
        "pip install autotrace\n",
        "uvx autotrace",
    ):
        assert english.STRANGER.search(text), text
    for text in ("pip install 'autotrace-rl[view]'", "uvx --from autotrace_rl-0.1.0.whl autotrace demo"):
        assert not english.STRANGER.search(text), text


def test_hard_english_is_found_with_its_line() -> None:
    text = "# Page\n\nIt has parts, none\nof which is\nnone.\n\n- Should it be\n  stopped, `of which` is code.\n"
    found = {(phrase.line, phrase.words) for phrase in english.phrases("r", "p", 1, english.prose(text))}
    assert found == {(4, "of which"), (4, "is none"), (7, "Should it be")}
    assert english.main([]) == 0


def test_every_column_and_every_format_has_a_row() -> None:
    rows = [line.split(" | ")[0] for line in TEXTS["commands.md"].splitlines() if line.startswith("| `")]
    named = {name for row in rows for name in re.findall(r"`([^`]+)`", row)}
    assert {*NAMES, *FORMATS} <= named
    for expression in re.findall(r"--where \"([^\"]+)\"", TEXTS["commands.md"]):
        condition(expression)


def test_every_backend_has_a_row() -> None:
    rows = set(re.findall(r"^\| `([a-z]+)` \|", TEXTS["backends.md"], re.M))
    assert rows == {name for name in registry.names() if registry.get(name).__module__.startswith("autotrace.")}


def test_every_hostile_program_has_a_row() -> None:
    table = TEXTS["limits.md"].partition("## What `make hostile` checks")[2].partition("\n## ")[0]
    assert set(re.findall(r"^\| `([a-z]+)` \|", table, re.M)) == {case.program for case in CASES}


@pytest.mark.parametrize("page", TEXTS)
def test_variables_exist(page: str) -> None:
    known = {value for name, value in vars(environment).items() if name.isupper() and isinstance(value, str)}
    known |= {variable for setting in SETTINGS for variable in setting.variables}
    source = "\n".join(path.read_text() for path in (ROOT / "autotrace").rglob("*.py"))
    named = set(re.findall(r"AUTOTRACE(?:_[A-Z]+)+\b", TEXTS[page]))
    assert not {name for name in named - known if f'"{name}"' not in source}


@pytest.mark.parametrize("page", TEXTS)
def test_links_exist(page: str) -> None:
    here = DOCS if (DOCS / page).exists() else ROOT
    links = [link.partition("#")[0] for link in re.findall(r"\]\(([^)]+)\)", TEXTS[page]) if "://" not in link]
    assert not [link for link in links if link and not (here / link).exists()]


@pytest.mark.parametrize("page", [*TEXTS, "Makefile"])
def test_files_exist(page: str) -> None:
    text = TEXTS.get(page) or (ROOT / page).read_text()
    folders = "autotrace|examples|benchmarks|tests|tools|patch_specs|docs|\\.ci|\\.github"
    paths = re.findall(rf"(?<![\w/.-])((?:{folders})/[\w/.-]*[\w/])", text)
    missing = [path for path in paths if not (ROOT / path).exists() and not any(word in path for word in PLACEHOLDERS)]
    assert not missing


def test_the_table_of_the_backends_names_tests_that_exist() -> None:
    (table,) = re.findall(r"^TABLE = \$\(addprefix tests/,(.*?)\)$", (ROOT / "Makefile").read_text(), re.M | re.S)
    assert not [path for path in table.replace("\\\n", " ").split() if not (ROOT / "tests" / path).exists()]


@pytest.mark.parametrize("page", TEXTS)
def test_make_targets_exist(page: str) -> None:
    lines = re.findall(r"^([a-z][a-z0-9 -]*):", (ROOT / "Makefile").read_text(), re.M)
    targets = {target for line in lines for target in line.split()}
    code = re.findall(r"`([^`\n]+)`", TEXTS[page]) + [
        line for block in blocks(TEXTS[page]) for line in block.splitlines()
    ]
    named = {name for line in code for name in re.findall(r"(?:^|\s)make ([a-z][a-z0-9-]*)", line.partition("#")[0])}
    assert named <= targets


def test_the_rooms_are_those_of_the_import_contract() -> None:
    contract = (ROOT / "pyproject.toml").read_text().partition('name = "The rooms, highest first"')[2]
    layers = re.findall(r'^    "([a-z_ |]+)",$', contract.partition("\n]")[0], re.M)
    table = re.findall(r"^\| `([a-z_]+)` \|", TEXTS["architecture.md"], re.M)
    order = {room: rank for rank, layer in enumerate(layers) for room in layer.split(" | ")}
    del order["__main__"]  # `python -m autotrace`
    assert set(table) == set(order)
    assert [order[room] for room in table] == sorted(order[room] for room in table)


def test_modules_of_the_changelog_are_where_it_says() -> None:
    moved = re.findall(r"^\| (`.*`.*) \| (`.*`.*) \|$", TEXTS["CHANGELOG.md"], re.M)
    assert len(moved) > 10
    for before, now in moved:
        for name in re.findall(r"`(autotrace\.[\w.]+)`", now):
            assert pkgutil.resolve_name(name), name
        for name in re.findall(r"`(autotrace\.[\w.]+)`", before):
            with pytest.raises((ImportError, AttributeError)):
                pkgutil.resolve_name(name)


def test_every_page_is_in_the_contents() -> None:
    contents = yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]
    named = {entry if isinstance(entry, str) else next(iter(entry.values())) for entry in contents}
    assert named == {page.name for page in PAGES}
