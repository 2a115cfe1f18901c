"""Functions of the program itself, whatever its file is called: no ``.py``, another ending, an archive, a folder."""

from __future__ import annotations

import zipapp
from collections import Counter
from pathlib import Path

from .processes import run

BODY = """#!/usr/bin/env python3
'''Doc.'''
from __future__ import annotations
import sys
def task(x): return x
class Agent:
    def ask(self): return task(2)
if __name__ == "__main__":
    print(task(1), Agent().ask(), __name__, sys.path[0] == sys.argv[1])
"""


def test_functions_of_a_program_without_py(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "__main__.py").write_text(BODY)
    zipapp.create_archive(folder, tmp_path / "app.pyz", interpreter="/usr/bin/env python3")
    for name in ("train", "train.script"):
        (tmp_path / name).write_text(BODY)
    for number, name in enumerate(("train", "train.script", "app.pyz", "folder")):
        path = tmp_path / name
        begins = str(tmp_path) if "train" in name else str(path)
        (tmp_path / str(number)).mkdir()
        called = "train" if name == "train" else "__main__"
        ran = run(tmp_path / str(number), f"- {called}.task\n- {called}.Agent.ask\n", str(path), begins)
        assert ran.stdout == "1 2 __main__ True\n", name
        assert Counter(called for _, called in ran.calls()) == {"task": 2, "Agent.ask": 1}, name
