"""Name the files of a run folder, which no other module names.

::

    autotrace-runs/                 AUTOTRACE_RUN_DIR (0700)
        mlflow.db                   local MLflow store when no tracking URI is given
        20261121-064412-2bd3f9c1a/  a run: AUTOTRACE_RUN_FOLDER (0700)
            run.json                command, user, backends (``RunInfo``; no secrets)
            plan.json               the compiled plan every process reads
            spool/HOST-PID-RAND-N.seg   segments, one series per process, append-only (0600)
            blobs/DIGEST            tokenizer files and large payloads, by content hash
            state.db                the shipper's own state: index of trajectories, acknowledged deliveries
            shipper.lock            held by the shipper of this node while it runs
            shipper.log             the shipper's log
            status.json             the shipper's last report: delivered, lag, errors, done
            about.msgpack           counters, targets and settings of removed segments
            listen                  exists once processes on other nodes will record
            collector.json          address and token for the relays of other nodes (0600)
            tables/commits.jsonl    the content of the tables: a line a commit
            tables/TABLE/N.parquet  files of the tables
            labels.jsonl            people's labels of trajectories (0600)
            disk-full               exists once a process could not write because the disk was full
            drain                   exists once the run's first process asks for delivery of everything
"""

from __future__ import annotations

import os

RUN_JSON = "run.json"
PLAN_JSON = "plan.json"
SPOOL = "spool"
BLOBS = "blobs"
STATE_DB = "state.db"
SHIPPER_LOCK = "shipper.lock"
SHIPPER_LOG = "shipper.log"
STATUS_JSON = "status.json"
ABOUT = "about.msgpack"
LABELS = "labels.jsonl"
DISK_FULL = "disk-full"
DRAIN = "drain"
ENDING = "ending"
LISTEN = "listen"
COLLECTOR_JSON = "collector.json"
SEGMENT_SUFFIX = ".seg"
DEFAULT_RUN_DIR = "autotrace-runs"
DEFAULT_MLFLOW_DB = "mlflow.db"


def spool_of(run_folder: str) -> str:
    """Return the folder of the segments of ``run_folder``."""
    return os.path.join(run_folder, SPOOL)
