"""Only the main interpreter of a process activates."""

from __future__ import annotations

from pathlib import Path

from autotrace.run.info import find_runs
from tests.conformance.processes import run

PROGRAM = '''
import sys
import busy
try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters

run = interpreters.exec if sys.version_info >= (3, 13) else interpreters.run_string
code = """
import sys
sys.path.insert(0, {!r})
import busy
assert busy.act(2) == 2
print('autotrace.record' in sys.modules)
"""
for number in range(2):
    busy.act(number)
    sub = interpreters.create()
    run(sub, code.format(sys.path[0]))
    interpreters.destroy(sub)
'''


def test_a_subinterpreter_is_not_traced_and_makes_no_run(tmp_path: Path) -> None:
    (tmp_path / "busy.py").write_text("def act(x):\n    return x\n")
    (tmp_path / "program.py").write_text(PROGRAM)
    ran = run(tmp_path, "- {target: busy.act, role: tool}", "-u", str(tmp_path / "program.py"))
    assert ran.stdout == "False\nFalse\n"
    assert len(ran.calls()) == 2 and len(find_runs(tmp_path)[0]) == 1
