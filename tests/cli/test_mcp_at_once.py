"""Questions to ``autotrace mcp`` that come at the same time: a few commands run, the others wait."""

from __future__ import annotations

import asyncio
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
