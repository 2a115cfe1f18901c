"""The process that becomes the shipper keeps nothing of whoever started it."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from tests.waiting import DEADLINE

CLOSES = """
import os, resource, sys
from autotrace.run import shipper_process
listing, high = sys.argv[1], int(sys.argv[2])
resource.setrlimit(resource.RLIMIT_NOFILE, (high + 1, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
opened = [os.dup(0), os.dup2(0, high)]
resource.setrlimit(resource.RLIMIT_NOFILE, (64, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
if listing == "unlisted":
    def none(folder):
        raise FileNotFoundError(folder)
    os.listdir = none
shipper_process._close_from(3)
for number in [0, 1, 2, *opened]:
    try:
        os.fstat(number)
    except OSError:
        print("closed")
    else:
        print("open")
"""


@pytest.mark.parametrize("listing", ["listed", "unlisted"])
def test_every_inherited_descriptor_is_closed_however_high_its_number(listing: str) -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    high = min(hard if hard > 0 else 1 << 20, 1 << 20) - 1
    done = subprocess.run(
        [sys.executable, "-c", CLOSES, listing, str(high)],
        cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=DEADLINE, check=False,
        stdin=subprocess.DEVNULL, env={**os.environ, "AUTOTRACE": "0"},
    )  # fmt: skip
    assert done.stdout.split() == ["open"] * 3 + ["closed"] * 2, done.stderr
