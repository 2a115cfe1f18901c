"""MLflow's store without the data libraries that MLflow imports where they are installed, for the shipper's process.

MLflow works without them (``mlflow-skinny`` needs none), its store never uses them, and they are 100 of the 250 MB that
importing it takes, and a third of the time.
"""

from __future__ import annotations

import importlib
import sys
import threading

from autotrace.data.lean import absent

LIBRARIES = ("pandas", "polars", "pyarrow", "scipy")
_STORE = "mlflow.store.tracking.sqlalchemy_store"
_one_at_a_time = threading.Lock()


def import_store() -> None:
    """Import MLflow's store class, without ``LIBRARIES`` if this release can be imported so; nothing if there is an
    MLflow already. MLflow stays as it is imported here: for a process that delivers and does nothing else with it.

    Raises ``ImportError``.
    """
    with _one_at_a_time:
        if "mlflow" in sys.modules:
            return
        try:
            with absent(*LIBRARIES):
                importlib.import_module(_STORE)
        except Exception:  # of a release that needs one of them
            importlib.import_module(_STORE)
