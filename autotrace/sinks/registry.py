"""Find backends by name, built in or from other packages, by the entry points of the group ``autotrace.sinks``.

Listing imports no backend. For the launcher, the shipper and the commands; a traced process never comes here.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Iterable, Iterator, MutableMapping
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pathlib import Path

from autotrace.config.installation import DISTRIBUTION, install
from autotrace.config.stderr import complain
from autotrace.redact.masking import masked_uri
from autotrace.run.info import RunInfo
from autotrace.sinks.backend import Backend
from autotrace.sinks.protocol import Sink

GROUP = "autotrace.sinks"
DEFAULT = "mlflow"
"""Name of the backend of a run without a choice, if installed; otherwise a run has only its tables."""

TABLES = "parquet"
"""Name of the backend that ``--tables`` adds."""


class BackendError(Exception):
    """Reports that a backend cannot be used; the message is a sentence for the user."""


def names() -> tuple[str, ...]:
    """List every backend that ``get`` knows: built-in and other backends, each group in alphabetical order."""
    built_in = _built_in()
    return (*built_in, *sorted(_installed().keys() - built_in.keys()))


def get(name: str) -> Backend:
    """Load the descriptor of the backend ``name``. Imports the backend's module, not its library.

    Raises ``BackendError``.
    """
    return _loaded(_entry(name))


def default() -> tuple[str, ...]:
    """Return the backends of a run without a choice."""
    return (DEFAULT,) if _importable(get(DEFAULT).requires[0]) else ()


def usable(name: str) -> Backend:
    """Load the descriptor of the backend ``name``, whose library must be installed. Raises ``BackendError``."""
    backend = get(name)
    for library in backend.requires:
        try:
            importable = _importable(library)
        except Exception as error:  # the import of a dotted name's package may raise anything
            raise BackendError(
                f"the backend {name} needs {library}, which cannot be imported: {type(error).__name__}: {error}"
            ) from error
        if not importable:
            raise _missing(backend, library)
    return backend


def trusted(address: str, own: bool, *given: str | None) -> str:
    """Return ``address`` from a run folder if a person agrees: the run is the reader's ``own``, or ``address`` is one
    of ``given``, which is then returned. Credentials never go to an address that only data names. Raises
    ``BackendError``."""
    agreed = [address] if own else [uri for uri in given if uri and masked_uri(uri) == masked_uri(address)]
    if agreed:
        return agreed[0]
    raise BackendError(f"the run folder names {masked_uri(address)}, which nobody has chosen here")


def make(name: str, info: RunInfo, run_folder: Path, memory: MutableMapping[str, str]) -> Sink:
    """Make the sink of the backend ``name`` for one run; see ``Backend.make``. Raises ``BackendError``."""
    backend = usable(name)
    try:
        return backend.make(info, run_folder, memory)
    except ImportError as error:
        raise _missing(backend, error.name or str(error)) from error


def linked_by(bind: str, backends: Iterable[str]) -> list[str]:
    """List the ``backends`` that link traces to the trainer's own run once ``bind`` was reported."""
    linked = []
    for name in backends:
        with contextlib.suppress(BackendError):  # a run can be read where its backend is no longer installed
            if get(name).run_bind == bind:
                linked.append(name)
    return linked


def distributions() -> Iterator[str]:
    """Yield the packages that the backends name for ``autotrace doctor``."""
    for name in names():
        with contextlib.suppress(BackendError):  # doctor says so where the backend is chosen
            yield from get(name).distributions


def help_text() -> str:
    """Describe all backends in one line, for ``--help``: ``mlflow (default where installed; ...), ...``."""
    shown = []
    for name in names():
        try:
            summary = get(name).summary
        except BackendError as error:
            summary = str(error)
        shown.append(f"{name} ({'default where installed; ' if name == DEFAULT else ''}{summary})")
    return ", ".join(shown)


@functools.cache
def _built_in() -> dict[str, EntryPoint]:
    """List the folders beside this file: a source tree on ``PYTHONPATH`` has no metadata, an old editable install stale
    metadata.

    ``pyproject.toml`` has the same entry points (a test compares the two).
    """
    folders = sorted(path.parent.name for path in Path(__file__).parent.glob("*/backend.py"))
    return {name: EntryPoint(name, f"{__package__}.{name}.backend:BACKEND", GROUP) for name in folders}


@functools.cache
def _installed() -> dict[str, tuple[EntryPoint, ...]]:
    """Map names to entry points of other packages; several for a name if packages contradict each other."""
    values_of: dict[str, dict[str, EntryPoint]] = {}
    for entry in entry_points(group=GROUP):
        if _package(entry) != DISTRIBUTION:
            values_of.setdefault(entry.name, {})[entry.value] = entry
    return {name: tuple(by_value.values()) for name, by_value in values_of.items()}


def _package(entry: EntryPoint) -> str:
    """Return the name of the installed package that has ``entry``, or the module if the metadata has no name."""
    try:
        name = entry.dist.name if entry.dist is not None else None
    except Exception:  # metadata without a name
        name = None
    return name.replace("_", "-").lower() if name else entry.value.partition(":")[0]


def _entry(name: str) -> EntryPoint:
    others = _installed().get(name, ())
    built_in = _built_in().get(name)
    if built_in is not None:
        if any(entry.value != built_in.value for entry in others):
            _warn_of_others(name)
        return built_in
    if not others:
        raise BackendError(f"there is no backend {name!r}; choose from {', '.join(names())}")
    if len(others) > 1:
        packages = ", ".join(sorted(f"{_package(entry)} ({entry.value})" for entry in others))
        raise BackendError(f"several packages have a backend {name!r}: {packages}; uninstall all of them but one")
    return others[0]


@functools.cache
def _warn_of_others(name: str) -> None:
    """Warn once in a process."""
    packages = ", ".join(sorted({_package(entry) for entry in _installed()[name]}))
    complain(f"warning: {packages} has a backend {name!r}, too; autotrace's own is used")


def _loaded(entry: EntryPoint) -> Backend:
    try:
        backend = entry.load()
    except Exception as error:  # another's module, which may raise anything
        raise BackendError(f"the backend {entry.name} cannot be loaded: {type(error).__name__}: {error}") from error
    if not isinstance(backend, Backend) or getattr(backend, "name", None) != entry.name:
        raise BackendError(
            f"the entry point {entry.name} = {entry.value} does not name an autotrace.sinks.backend.Backend "
            f"whose name is {entry.name!r}"
        )
    return backend


def _missing(backend: Backend, library: str) -> BackendError:
    own = type(backend).__module__.startswith("autotrace.")
    remedy = install(backend.name) if own else backend.install or f"install {library}"
    return BackendError(
        f"the backend {backend.name} needs {library}, which is not installed beside autotrace: {remedy}"
    )


def _importable(library: str) -> bool:
    try:
        return find_spec(library) is not None
    except ModuleNotFoundError:  # the parent package of a dotted name is missing
        return False
    except ValueError:  # imported without a spec
        if library not in sys.modules:
            raise
        return True
