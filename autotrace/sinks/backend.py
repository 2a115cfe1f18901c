"""Describe a backend: everything the launcher, the shipper and ``autotrace doctor`` know about a backend.

A backend is a ``Backend`` named by an entry point of the group ``autotrace.sinks``::

    [project.entry-points."autotrace.sinks"]
    mystore = "my_package.autotrace_backend:BACKEND"

``autotrace-run``, the shipper and ``autotrace`` import the module of the backend; a traced process never does. The
module should import no more than this module does: the backend's library belongs into the module of the sink, which
``make`` imports.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from autotrace.run.info import RunInfo
from autotrace.sinks.protocol import Sink


@dataclass(frozen=True)
class Destination:
    """Holds a person's decision about the place of trajectories."""

    tracking_uri: str | None = None
    """Holds ``--tracking-uri`` or its variables, password included. For MLflow; other backends read their own
    variables."""
    origins: Mapping[str, str] = field(default_factory=dict)
    """Maps a setting to the origin: ``option --tracking-uri``, ``environment MLFLOW_TRACKING_URI``, ``default``."""

    @property
    def uri_origin(self) -> str:
        """Return the origin of the tracking URI."""
        return self.origins.get("tracking_uri", "default")


@dataclass(frozen=True)
class Health:
    """Tells whether a backend can be used now, with the line that ``autotrace doctor`` prints."""

    ok: bool
    text: str


class Backend(ABC):
    """Describes a backend. Subclass, set ``name`` and ``summary``, write ``make``; override other methods as needed."""

    name: ClassVar[str]
    """Names the word after ``--backend``; the same as the entry point's."""
    summary: ClassVar[str]
    """Describes the backend for ``--help`` and messages: a few words, no full stop."""
    requires: ClassVar[tuple[str, ...]] = ()
    """Lists modules that must be importable."""
    install: ClassVar[str] = ""
    """Names the command that installs the modules."""
    distributions: ClassVar[tuple[str, ...]] = ()
    """Lists packages whose versions ``autotrace doctor`` prints, if installed."""
    run_bind: ClassVar[str | None] = None
    """Names the report (``spool.records.Bind``) that links traces to the run of the trainer's own logger. Traces that
    were delivered before the report are delivered once more, with the link."""

    from_tables: ClassVar[bool] = False
    """Tells whether the sink reads the tables of the run folder. Such a sink gets no trajectories, and is called once
    the trajectories are in the tables."""

    @abstractmethod
    def make(self, info: RunInfo, run_folder: Path, memory: MutableMapping[str, str]) -> Sink:
        """Make the sink for a run. Connects to nothing: the first delivery connects.

        ``memory`` keeps text by name for the next process of the same run. Two names are for users: ``place`` (where
        the traces go) and ``open_with`` (the command that shows the traces).
        """

    def warm_up(self, info: RunInfo) -> None:
        """Import the modules that the sink will need.

        Called in the shipper while the program runs, on a separate thread, once something was recorded; the sink may
        import the same at that time. Exceptions are ignored: the sink reports problems.
        """
        return

    def absolute_uri(self, uri: str) -> str:
        """Return the tracking URI in a form that does not depend on the working directory."""
        return uri

    def check(self, destination: Destination) -> None:
        """Check the settings without a connection. Raises ``ValueError`` with a sentence that names a correction."""
        return

    def prepare(self, destination: Destination) -> None:
        """Make everything that must exist once before many processes use the backend. The launcher calls this after
        ``check``. Raises ``ValueError`` with a sentence for the user."""
        return

    def health(self, destination: Destination) -> Health:
        """Ask the backend, with one short request and without writing anything. Never raises."""
        return Health(True, self.summary)
