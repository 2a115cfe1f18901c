"""One subject in a process of its own: ``python -m benchmarks.worker SUBJECT FOLDER``.

Reads one JSON request a line (``{"measure": name, ...options}``), answers each with one JSON line.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

TOKENIZER_BYTES = 7_000_000
"""What a process of an agent loop has read and freed before its first call: Qwen's ``tokenizer.json``. glibc returns
freed memory to the system above twice the largest block freed so far, and to touch it anew costs a call with 40,000
tokens 150 to 400 us, whoever copies them; a process that never freed a large block is none that calls models."""


def main() -> None:
    """Serve requests until standard input ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what the peers print must not mix with the answers
    from benchmarks import measures
    from benchmarks.client_subjects import CLIENT_SUBJECTS
    from benchmarks.subjects import SUBJECTS

    name, folder = sys.argv[1:]
    subject = (SUBJECTS | CLIENT_SUBJECTS)[name](Path(folder))
    bytes(TOKENIZER_BYTES)
    print(json.dumps({"ready": True}), file=answers, flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        answer = getattr(measures, request.pop("measure"))(subject, **request)
        print(json.dumps(answer), file=answers, flush=True)
    os._exit(0)  # some peers wait minutes for their servers at exit


main()
