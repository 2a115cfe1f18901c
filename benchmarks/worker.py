"""One subject in a process of its own: ``python -m benchmarks.worker SUBJECT FOLDER``.

Reads one JSON request a line (``{"measure": name, ...options}``), answers each with one JSON line.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path


def main() -> None:
    """Serve requests until standard input ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what the peers print must not mix with the answers
    from benchmarks import measures
    from benchmarks.subjects import SUBJECTS

    name, folder = sys.argv[1:]
    subject = SUBJECTS[name](Path(folder))
    print(json.dumps({"ready": True}), file=answers, flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        answer = getattr(measures, request.pop("measure"))(subject, **request)
        print(json.dumps(answer), file=answers, flush=True)
    os._exit(0)  # some peers wait minutes for their servers at exit


main()
