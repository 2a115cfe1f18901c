"""Targets of the user's own that nothing can have are named when the run begins; it runs all the same."""

from __future__ import annotations

import os
import sys
import tracemalloc

import pytest

from autotrace.launch.checks import misplaced, never_bound
from autotrace.launch.command import Command
from autotrace.spec.compiler import compile_plan
from tests.places import Place

PROGRAM = "class Agent:\n    def solve(self): return 'solved'\ndef score(): return 1\nprint(Agent().solve(), score())\n"


@pytest.fixture
def program(place: Place) -> Place:
    place.write("agent.py", PROGRAM)
    return place


def test_each_is_a_line_with_its_place_and_what_is_near(program: Place) -> None:
    program.write("own.yaml", "- agent.Agent.solve\n- agent.Agent.slove\n- agent.score\n- no_such_package.run\n")
    ran = program.record(["python", "agent.py"], ["--spec", "own.yaml"])
    lines = [line for line in ran.stderr.splitlines() if "will not be traced" in line]
    assert (ran.returncode, ran.stdout) == (0, "solved 1\n")
    assert len(lines) == 2
    assert lines[0].startswith("autotrace: own.yaml:2: agent.Agent.slove will not be traced: no such name")
    assert "agent.Agent.solve" in lines[0]
    assert lines[1].startswith("autotrace: own.yaml:4: no_such_package.run will not be traced: no module")


def test_a_key_that_names_no_argument_is_said_and_strict_does_not_start(program: Place) -> None:
    program.write("own.yaml", "- target: agent.Agent.solve\n  attributes: {step: slef.stpe}\n")
    said = "own.yaml:2: agent.Agent.solve: attributes.step: no argument `slef`; did you mean `self`?"
    ran = program.record(["python", "agent.py"], ["--spec", "own.yaml"])
    assert (ran.returncode, ran.stdout) == (0, "solved 1\n") and f"autotrace: {said}" in ran.stderr
    checked = program.cli("check", "own.yaml")
    assert checked.exit_code == 1 and "mistake, line 2: attributes.step: no argument `slef`" in checked.stdout
    runs = program.runs()
    code, refused = program.refusal(["python", "agent.py"], ["--spec", "own.yaml", "--strict"])
    assert code == 2 and said in refused and "--strict" in refused and program.runs() == runs
    program.write("own.yaml", "- agent.Agent.solve\n")
    assert program.record(["python", "agent.py"], ["--spec", "own.yaml", "--strict"]).stdout == "solved 1\n"


def test_what_is_optional_or_there_or_of_the_program_itself_is_not_named(program: Place) -> None:
    program.write(
        "own.yaml",
        "- agent.score\n- {target: agent.Agent.gone, optional: true}\n- __main__.Agent.solve\n- json.dumps\n",
    )
    ran = program.record(["python", "agent.py"], ["--spec", "own.yaml"])
    assert "will not be traced" not in ran.stderr and ran.stdout == "solved 1\n"


def test_a_spec_without_an_entry_is_said_and_strict_does_not_start(program: Place) -> None:
    for text in ("", "# - agent.score\n", "---\n[]  # nothing\n"):
        program.write("own.yaml", text)
        assert (
            "own.yaml: this spec has no entry; write a line"
            in program.refusal(["python", "agent.py"], ["--spec", "own.yaml", "--strict"])[1]
        )
        checked = program.cli("check", "own.yaml")
        assert checked.exit_code == 0 and "own.yaml: this spec has no entry" in checked.stderr
    program.write("own.yaml", "- {target: openai.resources.chat.completions.Completions.create, enabled: false}\n")
    assert program.cli("check", "own.yaml").stderr == ""


def test_options_behind_the_command_are_said_and_the_program_gets_them(program: Place) -> None:
    program.write("agent.py", "import sys; print(sys.argv[1:])")
    for words in (["--spec", "own.yaml"], ["--spec=own.yml"], ["--backend", "jsonl"], ["--seed", "--stop-on"]):
        ran = program.record(["python", "agent.py", *words])
        option = words[-1] if "--seed" in words else words[0].partition("=")[0]
        assert (
            f"autotrace: {option} after python goes to the program; options of autotrace come before python"
            in ran.stderr
        )
        assert ran.stdout == f"{words}\n" and ran.stderr.count("goes to the program") == 1
    assert misplaced(("python", "agent.py", "--spec", "small", "--backend", "nccl", "--seed"), ["jsonl"]) == []


def test_of_many_the_first_ten(program: Place) -> None:
    program.write("own.yaml", "".join(f"- agent.Agent.missing_{number}\n" for number in range(20)))
    ran = program.record(["python", "agent.py"], ["--spec", "own.yaml"])
    assert ran.stderr.count("will not be traced") == 10 and "autotrace check says the rest" in ran.stderr


def test_a_glob_costs_the_launcher_as_much_in_a_large_package_as_in_a_small_one(place: Place) -> None:
    large = "def run(total):\n" + "    total = total + total * total - total\n" * 500
    peaks = []
    for modules in (3, 30):
        for number in range(modules):
            place.write(f"package_of_{modules}/m{number}.py", large)
        place.write(f"of_{modules}.yaml", f"- package_of_{modules}.**\n")
        plan = compile_plan([place.cwd / f"of_{modules}.yaml"], shipped=False)
        command = Command((sys.executable, str(place.cwd / "agent.py")), sys.executable)
        tracemalloc.start()
        try:
            assert never_bound(plan, command, os.environ, [str(place.cwd)]) == []
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
    assert peaks[1] < 1.5 * peaks[0]
