"""Function tools of ``program.py``."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from verl.tools.function_tool import function_tool


@function_tool
async def double(number: int) -> str:
    """Double a number.

    Args:
        number: any number
    """
    await asyncio.sleep(0.001 * (number % 7))
    return str(2 * number)


@function_tool
async def hang(number: int) -> str:
    """Never return.

    Args:
        number: any number
    """
    Path(os.environ["HANGS"]).touch()
    await asyncio.Event().wait()
    return ""
