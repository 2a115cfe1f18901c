"""The environment variables autotrace reads or sets: one documented constant each. Imports nothing. Those that only
stand for an option (``AUTOTRACE_BACKEND``, ``AUTOTRACE_SAMPLE_RATE``, ...) are declared with it in ``launch.options``.

The first group is for people; the second is set by the launcher, or by the first process of an environment-only
activation, and inherited by every process below it.
"""

from __future__ import annotations

import os

# -- for people -----------------------------------------------------------------------------------------------------

ON, OFF = ("1", "true", "yes", "on"), ("0", "false", "no", "off")
"""How flags are written; in capitals, too."""

AUTOTRACE = "AUTOTRACE"
"""``1`` switches the agent on (the one gate that the ``.pth`` file tests), ``0`` switches everything off; see ``ON``
and ``OFF``. A process that it switched on passes ``1`` to its children."""

TRACKING_URI = "AUTOTRACE_TRACKING_URI"
"""MLflow tracking URI; wins over ``MLFLOW_TRACKING_URI``."""

SPECS = "AUTOTRACE_SPECS"
"""Spec files of the user's own, separated by ``os.pathsep``; they refine the shipped specs."""

RUN_DIR = "AUTOTRACE_RUN_DIR"
"""Folder in which each run makes a folder of its own; default ``./autotrace-runs``."""

TABLES = "AUTOTRACE_TABLES"
"""``--tables``: where the backend ``parquet`` copies the run's tables, which it chooses."""

ALERT = "AUTOTRACE_ALERT"
"""Address that gets a message when something is found. Often a secret."""

LISTEN = "AUTOTRACE_LISTEN"
"""``HOST:PORT`` or ``:PORT`` where the collector takes what other nodes record; default: all interfaces, any port."""

TLS = "AUTOTRACE_TLS"
"""``CERTIFICATE:KEY``, or a file with both (PEM), with which the collector listens; else Ray's, where Ray speaks TLS.
Relays take that certificate alone."""

QUIET = "AUTOTRACE_QUIET"
"""``1``: say nothing on stderr on success, neither at the start nor at the end."""

# -- set by the launcher --------------------------------------------------------------------------------------------

RUN_ID = "AUTOTRACE_RUN_ID"
"""Id of this run; set by the launcher, so a nested ``autotrace-run`` sees that it is inside one."""

RUN_FOLDER = "AUTOTRACE_RUN_FOLDER"
"""Absolute path of this run's own folder (see ``autotrace.run.layout``)."""

RUN_OWNER = "AUTOTRACE_RUN_OWNER"
"""Number of the user that the file system calls the owner of the run folder: with NFS it may be another than ours."""

OWN_RUN = "AUTOTRACE_OWN_RUN"
"""Absolute path of the run folder whose shipper this process is: the shipper may load what the run loaded. Any other
process that reads a run reads what a stranger may have written. Empty: a person delivers the run by hand."""

REDACT_PATTERNS = "AUTOTRACE_REDACT_PATTERNS"
"""``--redact-patterns``. Who reads a run that was recorded with it names it too: a folder's own patterns do not run."""

PLAN = "AUTOTRACE_PLAN"
"""Absolute path of the compiled plan (JSON)."""

PLAN_DIGEST = "AUTOTRACE_PLAN_DIGEST"
"""SHA-256 of the plan's text: a process takes no other plan, whoever can write the run folder."""

MODULES = "AUTOTRACE_MODULES"
"""Comma-separated top-level module names of the plan: a process that imports none of them reads no file. Clients whose
calls are recorded inside of others alone are not among them (``spec.compiler.watched_modules``)."""

TRACE_BACKENDS = "AUTOTRACE_TRACE_BACKENDS"
"""Comma-separated names of all backends that are installed: a library's own tracer into one of them is kept from
starting, because autotrace delivers there."""

MAIN_PID = "AUTOTRACE_MAIN_PID"
"""``pid:host`` of the run's first process, the one that waits for delivery at exit."""

PLAN_DATA = "AUTOTRACE_PLAN_DATA"
"""The plan itself (zlib, base64), for processes on nodes where ``AUTOTRACE_PLAN`` is not on disk."""

COLLECTOR = "AUTOTRACE_COLLECTOR"
"""``tcp://HOST:PORT`` of the collector, for nodes that do not share the run folder; ``tls://HOST:PORT#DIGEST`` where it
has a certificate, with its SHA-256."""

TOKEN = "AUTOTRACE_TOKEN"
"""What relay and collector prove to each other that they know; made for one run."""

OF_A_RUN = (
    RUN_ID, RUN_FOLDER, RUN_OWNER, PLAN, PLAN_DIGEST, MODULES, TRACE_BACKENDS, MAIN_PID, PLAN_DATA, COLLECTOR, TOKEN,
)  # fmt: skip
"""What a new run does not take over from an earlier one."""


def is_own(run_folder: str | os.PathLike[str]) -> bool:
    """Whether this process is the run's own shipper (``OWN_RUN``)."""
    return os.environ.get(OWN_RUN) == os.path.abspath(run_folder)


def is_by_hand(run_folder: str | os.PathLike[str]) -> bool:
    """A person delivers this run (``autotrace ship``): it may be a stranger's."""
    return OWN_RUN in os.environ and not is_own(run_folder)
