"""``autotrace mcp``: a few of many questions run at the same time; a client may end at any time."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest

from autotrace.cli import mcp


def test_forty_questions_start_four_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    running, most = 0, 0

    async def output(*_: str) -> tuple[str, bool]:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1
        return "answer", True

    async def ask() -> list[str]:
        questions = mcp.Questions(tmp_path)
        return await asyncio.gather(*(questions.help("data") for _ in range(40)))

    monkeypatch.setattr(mcp, "_output", output)
    assert asyncio.run(ask()) == ["answer"] * 40
    assert most == mcp.AT_ONCE


def test_a_client_that_ended_is_no_error_of_ours(tmp_path: Path) -> None:
    server = subprocess.Popen(
        [sys.executable, "-m", "autotrace", "mcp", str(tmp_path)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert server.stdin is not None and server.stdout is not None and server.stderr is not None
    server.stdout.close()
    about = {"protocolVersion": "2024-11-05", "capabilities": {}, "clientInfo": {"name": "client", "version": "1"}}
    question = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": about}
    server.stdin.write(json.dumps(question).encode() + b"\n")
    server.stdin.close()  # the answer meets no reader
    said = server.stderr.read().decode()
    assert server.wait(60) in (0, 1) and said == ""
