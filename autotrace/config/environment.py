"""Name the environment variables that autotrace reads or sets, one documented constant each. Imports nothing.

``launch.options`` declares the variables that only stand for an option (``AUTOTRACE_BACKEND``,
``AUTOTRACE_SAMPLE_RATE``, ...) together with the option.

The first group is for people. The launcher, or the first process of an environment-only activation, sets the second
group, and every process below inherits the second group.
"""

from __future__ import annotations

import os

# -- for people -----------------------------------------------------------------------------------------------------

ON, OFF = ("1", "true", "yes", "on"), ("0", "false", "no", "off")
"""Spellings of flags; capitals count, too."""

AUTOTRACE = "AUTOTRACE"
"""Switches: ``1`` switches the agent on (the only gate that the ``.pth`` file tests), ``0`` switches everything off.
See ``ON`` and ``OFF``. A process that was switched on passes ``1`` to its children."""

TRACKING_URI = "AUTOTRACE_TRACKING_URI"
"""Names the MLflow tracking URI; wins over ``MLFLOW_TRACKING_URI``."""

SPECS = "AUTOTRACE_SPECS"
"""Lists the user's spec files, separated by ``os.pathsep``; user specs refine the shipped specs."""

RUN_DIR = "AUTOTRACE_RUN_DIR"
"""Names the folder in which each run makes a folder; default ``./autotrace-runs``."""

TABLES = "AUTOTRACE_TABLES"
"""Names the place to which the backend ``parquet`` copies the tables, and chooses that backend: ``--tables``."""

ALERT = "AUTOTRACE_ALERT"
"""Names the address that gets a message for each finding. Often a secret."""

LISTEN = "AUTOTRACE_LISTEN"
"""Names ``HOST:PORT`` or ``:PORT`` where the collector takes other nodes' records; default: any interface and port."""

TLS = "AUTOTRACE_TLS"
"""Names the collector's certificate: ``CERTIFICATE:KEY``, or a file with both (PEM). Default: Ray's certificate, if Ray
speaks TLS. Relays accept only the named certificate."""

QUIET = "AUTOTRACE_QUIET"
"""Switches off stderr on success with ``1``, both at the start and at the end."""

# -- set by the launcher --------------------------------------------------------------------------------------------

RUN_ID = "AUTOTRACE_RUN_ID"
"""Holds the id of this run; set by the launcher, so a nested ``autotrace-run`` sees the outer run."""

RUN_FOLDER = "AUTOTRACE_RUN_FOLDER"
"""Holds the absolute path of this run's own folder (see ``autotrace.run.layout``)."""

RUN_OWNER = "AUTOTRACE_RUN_OWNER"
"""Holds the number of the user that the file system names as the run folder's owner; NFS may report another user."""

OWN_RUN = "AUTOTRACE_OWN_RUN"
"""Names the run folder whose shipper this process is, as an absolute path. The run's own shipper may load files that
the run loaded. For any other process, a stranger may have written the run. Empty: a person delivers the run by hand."""

REDACT_PATTERNS = "AUTOTRACE_REDACT_PATTERNS"
"""Holds ``--redact-patterns``. A reader of a run recorded with the option repeats the option: patterns stored in a
folder do not run."""

PLAN = "AUTOTRACE_PLAN"
"""Holds the absolute path of the compiled plan (JSON)."""

PLAN_DIGEST = "AUTOTRACE_PLAN_DIGEST"
"""Holds the SHA-256 of the plan's text. A process takes no other plan, even if others can write the run folder."""

MODULES = "AUTOTRACE_MODULES"
"""Lists the plan's top-level module names, separated by commas. A process that imports none of the modules reads no
file. ``spec.compiler.watched_modules`` leaves out clients whose calls are recorded only inside other calls."""

TRACE_BACKENDS = "AUTOTRACE_TRACE_BACKENDS"
"""Lists all installed backends, separated by commas. autotrace keeps a library's own tracer into such a backend from
starting, because autotrace delivers there."""

MAIN_PID = "AUTOTRACE_MAIN_PID"
"""Names the run's first process as ``pid:host``; the first process waits for delivery at exit."""

PLAN_DATA = "AUTOTRACE_PLAN_DATA"
"""Holds the plan (zlib, base64), for processes on nodes where ``AUTOTRACE_PLAN`` is not on disk."""

COLLECTOR = "AUTOTRACE_COLLECTOR"
"""Names the collector for nodes that do not share the run folder: ``tcp://HOST:PORT``. With a certificate:
``tls://HOST:PORT#DIGEST``, where the digest is the certificate's SHA-256."""

TOKEN = "AUTOTRACE_TOKEN"
"""Holds the run's secret; relay and collector prove to each other that both know the secret."""

OF_A_RUN = (
    RUN_ID, RUN_FOLDER, RUN_OWNER, PLAN, PLAN_DIGEST, MODULES, TRACE_BACKENDS, MAIN_PID, PLAN_DATA, COLLECTOR, TOKEN,
)  # fmt: skip
"""Lists the variables that a new run does not take over from an earlier run."""


def is_own(run_folder: str | os.PathLike[str]) -> bool:
    """Tell whether this process is the run's own shipper (``OWN_RUN``)."""
    return os.environ.get(OWN_RUN) == os.path.abspath(run_folder)


def is_by_hand(run_folder: str | os.PathLike[str]) -> bool:
    """Tell whether a person delivers this run (``autotrace ship``); such a run may be a stranger's."""
    return OWN_RUN in os.environ and not is_own(run_folder)
