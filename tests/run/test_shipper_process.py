"""The process that becomes the shipper keeps nothing of whoever started it."""

from __future__ import annotations

import json
import os
import resource
import select
import sys
from pathlib import Path

from autotrace.run.shipper_process import detach
from tests.waiting import DEADLINE, until

SAYS = """
import json, os
own = dict(parent=os.getppid(), session=os.getsid(0), pid=os.getpid(), files=os.listdir("/proc/self/fd"))
print(json.dumps(own | {"autotrace": os.environ["AUTOTRACE"], "input": os.read(0, 1).decode()}), flush=True)
"""


def test_it_is_nobodys_child_in_a_session_of_its_own_and_holds_no_descriptor(tmp_path: Path) -> None:
    path = tmp_path / "log"
    high = min(resource.getrlimit(resource.RLIMIT_NOFILE)[0], 1 << 16) - 1
    reader, writer = os.pipe()
    log = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    os.dup2(writer, high, inheritable=True)
    os.set_inheritable(writer, True)
    try:
        detach([sys.executable, "-c", SAYS], os.environ, log)
    finally:
        for descriptor in (writer, high, log):
            os.close(descriptor)
    assert select.select([reader], [], [], DEADLINE)[0] and os.read(reader, 1) == b"", "the pipe ends with its writer"
    os.close(reader)
    until(lambda: path.read_text().endswith("\n"))
    own = json.loads(path.read_text())
    assert own["parent"] != os.getpid() and own["session"] not in (os.getsid(0), own["pid"])
    assert own["autotrace"] == "0" and own["input"] == "" and len(own["files"]) == 4, "three, and the folder it reads"
