"""The list of libraries that recording uses is complete, as far as calls of every kind show."""

from __future__ import annotations

import collections
import contextlib
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Any

from autotrace.config.plan import Settings
from autotrace.record import used_libraries
from tests.conformance.conftest import Host, host  # noqa: F401

PACKAGE = str(Path(used_libraries.__file__).parents[1])
VALUES = [
    1, "text" * 100, b"x", [1, 2], {"a": {"password": "abc"}}, (1, (2,)), {1, 2}, collections.Counter("abc"),
    collections.deque([1]), ["data:image/png;base64," + "A" * 400], [{"role": "user", "content": "hi"}] * 50, None,
]  # fmt: skip


def test_what_recording_calls_is_in_the_list(host: Host) -> None:  # noqa: F811
    called: set[str] = set()

    def profile(frame: FrameType, event: str, argument: Any) -> None:
        caller = frame.f_back
        if event == "call" and caller is not None and caller.f_code.co_filename.startswith(PACKAGE):
            called.add(str(frame.f_globals.get("__name__")))

    host.watch("work.**", settings=Settings(flush_interval=0.01, redact_patterns=("abc",), redact_keys=("zz*",)))
    module = host.load(
        "work",
        "def plain(x): return x\ndef fails(x): raise ValueError(x)\ndef items(x): yield x\n"
        "class Thing:\n    def run(self, x): return plain(x)\n",
    )
    threading.setprofile(profile)  # the flusher begins with the first call
    sys.setprofile(profile)
    try:
        for value in VALUES:
            module.plain(value), module.Thing().run(value), list(module.items(value))
            with contextlib.suppress(ValueError):
                module.fails(value)
        host.records()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]
    # hypothesis watches garbage collections, torch is asked whether it compiles: both only once they are imported
    ours = ("autotrace.", "namedtuple_", "hypothesis.", "torch.")
    outside = {name for name in called if name not in ("work", __name__) and not name.startswith(ours)}
    assert outside and not [name for name in outside if used_libraries.refusal(name) is None]
