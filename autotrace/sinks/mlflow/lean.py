"""As little of MLflow as writing into its database takes, for the shipper's process.

What is imported of ``mlflow`` is what the package ``mlflow-tracing`` consists of: a span and what MLflow stores of it.
That takes half of the time and of the memory of MLflow's store class, which is imported only where it is needed. The
data libraries that MLflow imports where they are installed are left out of both: MLflow works without them
(``mlflow-skinny`` needs none), and its store never uses them.
"""

from __future__ import annotations

import importlib
import sys
import threading
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

from autotrace.tables.lean import absent, asked_first

LIBRARIES = ("numpy", "pandas", "polars", "pyarrow", "pygments", "scipy")
_GATEWAY = "fastapi"
"""What MLflow's gateway is made with, and nothing of what is imported for a span."""
_ENTITIES, _STORE = "mlflow.entities", "mlflow.store.tracking.sqlalchemy_store"
_VERSION, _PART = "mlflow.version", "IS_TRACING_SDK_ONLY"
"""The flag by which MLflow knows that ``mlflow-tracing`` alone is installed."""
_one_at_a_time = threading.Lock()


def import_entities() -> None:
    """Import what MLflow stores of a span; nothing if there is an MLflow already. MLflow stays as it is imported here:
    for a process that delivers and does nothing else with it.

    Raises ``ImportError``.
    """
    with _one_at_a_time:
        if "mlflow" in sys.modules:
            return
        try:
            with absent(*LIBRARIES, _GATEWAY), asked_first(_Alone):
                importlib.import_module(_ENTITIES)
        except Exception:  # of a release that cannot be imported so
            _import_rest()


def store_class() -> Any:
    """MLflow's own store class, imported without ``LIBRARIES`` if there was no MLflow. Raises ``ImportError``."""
    with _one_at_a_time:
        if "mlflow" not in sys.modules or _parts():
            _import_rest()
    return importlib.import_module(_STORE).SqlAlchemyStore


def _import_rest() -> None:
    parts = _parts()
    for module in parts:
        setattr(module, _PART, False)
    try:
        with absent(*LIBRARIES):
            # those that have imported less are packages, and one module; the inner ones first
            for module in sorted(parts, key=lambda module: module.__name__, reverse=True):
                if hasattr(module, "__path__") or module.__name__ == "mlflow.tracking.fluent":
                    importlib.reload(module)
            importlib.import_module(_STORE)
    except Exception:  # of a release that needs one of them
        importlib.import_module(_STORE)


def _parts() -> list[ModuleType]:
    """The modules that were imported as if ``mlflow-tracing`` were all."""
    modules = [module for name, module in list(sys.modules.items()) if name.partition(".")[0] == "mlflow"]
    return [module for module in modules if vars(module).get(_PART)]


class _Alone:
    """A finder that has ``mlflow.version`` say that ``mlflow-tracing`` is all there is."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Leaves all else to the other finders."""
        spec = PathFinder.find_spec(name, path, target) if name == _VERSION else None
        if spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            setattr(module, _PART, True)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec
