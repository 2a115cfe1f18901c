"""Store the labels that people give to trajectories: lines appended to a file of the run folder, joined on reading."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Mapping
from pathlib import Path

import msgspec

from autotrace.run import files, layout

MOST = 500
"""Maximum characters of a label, and of a reason."""


class Label(msgspec.Struct):
    """Hold a line. The last line about a trajectory counts."""

    trace_id: str
    label: str | None
    """None: the label was removed."""
    why: str | None
    at_ns: int


_decode = msgspec.json.Decoder(Label).decode


def read(folder: Path) -> Mapping[str, Label]:
    """Return trace id -> label, including removed labels. A line that is torn or not autotrace's is skipped."""
    found: dict[str, Label] = {}
    try:
        lines = files.read(folder, layout.LABELS).splitlines()
    except OSError:
        return found
    for line in lines:
        try:
            one = _decode(line)
        except (ValueError, RecursionError):  # msgspec's errors are ValueErrors
            continue
        if len(one.label or "") <= MOST and len(one.why or "") <= MOST:
            found[one.trace_id] = one
    return found


def write(folder: Path, trace_id: str, label: str | None, why: str | None) -> None:
    """Label a trajectory of this user's run. Raises ``ValueError`` with a sentence, and ``OSError``."""
    folder = folder.resolve()  # a person named the folder, perhaps by a link
    if not (folder / layout.RUN_JSON).exists():
        raise ValueError(f"{folder} is not a run folder; labels are kept there")
    if not files.is_own(folder):
        raise ValueError(f"{folder} is another user's, or others may write there: only its owner labels trajectories")
    if len(label or "") > MOST or len(why or "") > MOST:
        raise ValueError(f"a label and its reason have at most {MOST} characters each")
    try:
        line = msgspec.json.encode(Label(trace_id, label or None, why or None, time.time_ns()))
    except UnicodeEncodeError:
        raise ValueError("a label and its reason are text that UTF-8 can hold") from None
    with contextlib.suppress(FileNotFoundError):
        files.read(folder, layout.LABELS)  # a label is only kept where a reader will find the label
    fd = files.append(folder / layout.LABELS)
    try:
        files.write_all(fd, b"\n" + line + b"\n")  # a torn line from before ends here
    finally:
        os.close(fd)
