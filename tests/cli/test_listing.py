"""Tables of many rows: aligned, cut to the terminal, and quick."""

from __future__ import annotations

import io
import re
import time
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table

from autotrace.cli import listing, terminal
from autotrace.cli.listing import Cells
from autotrace.ship.shipper import ship
from autotrace.ship.store.row import COLUMNS, TraceRow
from autotrace.ship.store.state import State
from tests.cli.conftest import Call
from tests.ship.spools import Process, new_run


def printed(columns: list[Cells], width: int | None = None) -> list[str]:
    """The lines on a terminal of that ``width``; None: not on a terminal."""
    out = Console(file=io.StringIO(), force_terminal=width is not None, width=width or 200, color_system="standard")
    listing.show(out, columns)
    assert isinstance(out.file, io.StringIO)
    return out.file.getvalue().splitlines()


def test_columns_are_aligned_whatever_is_in_them() -> None:
    lines = printed(
        [
            Cells("a", ["x", "名前", "long"]),
            Cells("number", ["1", "22", "333"], right=True),
            Cells("b", ["", "e", ""]),
        ]
    )
    assert [cell_len(line) for line in lines[3:6]] == [12, 15, 12]
    assert [line.split() for line in lines[3:6]] == [["x", "1"], ["名前", "22", "e"], ["long", "333"]]


def test_only_the_last_column_is_longer_than_it_should_be_and_not_on_a_terminal() -> None:
    columns = [Cells("sample", ["s" * 500]), Cells("error", ["e" * 500])]
    (line,) = printed(columns)[3:4]
    assert len(line) == listing.MAX_WIDTH + 2 + 500 and line[listing.MAX_WIDTH - 1] == "…"
    assert max(map(cell_len, printed(columns, 100))) < 100


def test_a_table_is_cut_to_the_terminal_and_else_printed_in_parts() -> None:
    columns = [Cells("trace", ["t" * 12]), Cells("error", ["e" * 50]), Cells("tokens", ["1"], right=True)]
    narrow = printed(columns, 50)
    assert max(map(cell_len, narrow[2:])) < 50 and len(narrow) == 5 and "…" in narrow[3]
    many = [Cells("trace", ["t" * 12]), *(Cells(f"number {n}", ["12345678"], right=True) for n in range(8))]
    parts = printed(many, 50)
    assert max(cell_len(line) for line in parts if "number" not in line) < 50
    assert sum("trace" in line for line in parts) == 3
    assert sum(line.count("12345678") for line in parts) == 8


def test_in_a_pipe_columns_decides_and_nothing_is_padded(
    call: Call, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for command in (["ls"], ["steps"], ["status"], ["compare", "--step", "1", "--sample", "7"]):
        monkeypatch.delenv("COLUMNS", raising=False)
        lines = [line for line in call(*command).stdout.splitlines() if not line.startswith("started ")]
        assert not [line for line in lines if line != line.rstrip()], command
        monkeypatch.setenv("COLUMNS", "70")
        table = [line for line in call(*command).stdout.splitlines() if "  " in line.strip() and "/" not in line]
        assert command == ["status"] or max(map(cell_len, table)) <= 70, command


def test_numbers_have_four_digits_and_aligned_points() -> None:
    assert listing.aligned([1.0, 0.43754, None, -12.5]) == ["1     ", "0.4375", "", "-12.5   "]


def test_a_table_of_steps_is_split_before_anything_is_cut(
    call: Call, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = {word for line in call("steps").stdout.splitlines() for word in line.split()}
    assert {"count", "no-signal", "truncated"} <= whole
    for columns in ("60", "80", "120"):
        monkeypatch.setenv("COLUMNS", columns)
        lines = call("steps").stdout.splitlines()
        assert max(map(cell_len, lines)) <= int(columns)
        assert {word for line in lines for word in line.split() if "─" not in word} >= {
            word for word in whole if "─" not in word
        }


def test_nothing_is_padded_at_the_ends_of_lines_of_a_terminal() -> None:
    styled = Cells("status", ["OK", "INTERRUPTED"], styles=lambda number: "green")
    assert not [line for line in printed([Cells("a", ["1", "2"]), styled], 80) if " \x1b[0m" in line[-6:]]
    table = Table("name", "value")
    table.add_row("a", "1")
    out = Console(file=io.StringIO(), force_terminal=True, width=80, color_system="standard")
    terminal.table(out, table)
    assert isinstance(out.file, io.StringIO)
    assert not [line for line in out.file.getvalue().splitlines() if re.sub(r"\x1b\[[\d;]*m", "", line).endswith(" ")]


def test_rollouts_without_step_and_sample_show_their_prompt(call: Call, runs: Path) -> None:
    folder = new_run(runs)
    process = Process(folder)
    for number in range(3):
        trace = bytes([number + 1]) * 16
        root = process.open(trace, "trajectory", inputs={"prompt": f"question {number}"})
        asked = {"messages": [{"role": "user", "content": f"question {number}"}]}
        process.close(trace, process.open(trace, "llm", root, inputs=asked), output="answer")
        process.close(trace, root)
    process.exit()
    assert ship(folder, once=True).state == "done"
    shown = call("ls").stdout
    assert all(f"question {number}" in shown for number in range(3)) and "prompt" in shown


def test_styles_and_links_are_for_terminals() -> None:
    columns = [
        Cells("trace", ["abc"], styles=lambda number: "link http://x/1"),
        Cells("status", ["OK"], styles=lambda number: "green"),
    ]
    assert "\x1b" not in "".join(printed(columns))
    shown = "".join(printed(columns, 80))
    assert "http://x/1" in shown and "\x1b[32m" in shown


def test_a_run_without_rows_of_its_own_has_a_head() -> None:
    assert [line.strip() for line in printed([Cells("a", []), Cells("b", [])])[1:2]] == ["a  b"]


def test_ls_of_a_large_run_takes_not_much_longer_than_reading_it(call: Call, runs: Path) -> None:
    """Tables of rich took 500 times as long as the rows take to read; 100,000 rows have to be seen in two seconds."""
    count = 20_000
    state = State.of_run(new_run(runs))
    names = ", ".join(COLUMNS)
    with state:
        state.db.executemany(
            f"INSERT INTO traces ({names}) VALUES ({', '.join('?' * len(COLUMNS))})",
            (
                TraceRow(f"{number:032x}", "Loop.run", "trajectory", "OK", number // 512, str(number % 512),
                         number % 16, reward=number % 7 / 7, start_ns=number, end_ns=number + 10**9,
                         complete=True).values()
                for number in range(count)
            ),
        )  # fmt: skip
    began = time.process_time()
    assert len(state.db.execute(f"SELECT {names} FROM traces").fetchall()) == count
    reading = time.process_time() - began
    state.close()
    began = time.process_time()
    shown = call("ls").output
    assert time.process_time() - began < 60 * reading
    assert shown.count("Loop.run") == 0 and len(shown.splitlines()) > count
