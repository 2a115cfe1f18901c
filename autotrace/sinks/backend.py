"""The descriptor of a backend: everything the launcher, the shipper and ``autotrace doctor`` know about it.

A backend is a ``Backend`` named by an entry point of the group ``autotrace.sinks``::

    [project.entry-points."autotrace.sinks"]
    mystore = "my_package.autotrace_backend:BACKEND"

The module that holds it is imported by ``autotrace-run``, the shipper and ``autotrace``, never in a traced process. It
should import no more than this module does: its library belongs into the module of the sink, which ``make`` imports.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from autotrace.run.info import RunInfo
from autotrace.sinks.protocol import Reporter, Sink


@dataclass(frozen=True)
class Destination:
    """What a person decided about where trajectories go."""

    tracking_uri: str | None = None
    """``--tracking-uri`` or its variables, password included. MLflow's; other backends read variables of their own."""
    origins: Mapping[str, str] = field(default_factory=dict)
    """Setting -> where it came from: ``option --tracking-uri``, ``environment MLFLOW_TRACKING_URI``, ``default``."""

    @property
    def uri_origin(self) -> str:
        """Where the tracking URI came from."""
        return self.origins.get("tracking_uri", "default")


@dataclass(frozen=True)
class Health:
    """Whether a backend can be used now, and the line that ``autotrace doctor`` prints."""

    ok: bool
    text: str


class Backend(ABC):
    """Subclass it, set ``name`` and ``summary``, write ``make``; override the rest where there is something to say."""

    name: ClassVar[str]
    """The word after ``--backend``; the same as the entry point's."""
    summary: ClassVar[str]
    """For ``--help`` and messages: a few words, no full stop."""
    requires: ClassVar[tuple[str, ...]] = ()
    """Modules that must be importable."""
    install: ClassVar[str] = ""
    """The command that installs them."""
    distributions: ClassVar[tuple[str, ...]] = ()
    """Packages whose versions ``autotrace doctor`` prints, where they are installed."""
    run_bind: ClassVar[str | None] = None
    """Name of the report (``spool.records.Bind``) that links traces to the run of the trainer's own logger: what was
    delivered before it is delivered once more, with the link."""

    from_tables: ClassVar[bool] = False
    """Its sink takes what it needs from the tables of the run folder: it is given no trajectories, and called once they
    are there."""

    gather: ClassVar[float] = 0.0
    """Seconds for which trajectories wait for others to go with them, while more are to come: for a backend to which a
    delivery costs much, however small it is."""

    @abstractmethod
    def make(self, info: RunInfo, run_folder: Path, memory: MutableMapping[str, str]) -> Sink:
        """The sink for one run. Connects to nothing: that is for the first delivery.

        ``memory`` keeps text by name for the next process of the same run; two names in it are for users: ``place``
        (where the traces go) and ``open_with`` (the command that shows them).
        """

    def warm_up(self, info: RunInfo) -> None:
        """Import what the sink will need. Called in the shipper while the program runs, on a thread of its own, once
        something was recorded; the sink may import the same at that time. What it raises is ignored: the sink says it.
        """
        return

    def reporter(self, info: RunInfo, run_folder: Path, memory: MutableMapping[str, str]) -> Reporter | None:
        """What takes reports about whole steps; None where the backend has no place for them. Connects to nothing."""
        return None

    def absolute_uri(self, uri: str) -> str:
        """The tracking URI without anything that depends on the working directory."""
        return uri

    def check(self, destination: Destination) -> None:
        """Check the settings without a connection. Raises ``ValueError`` with one sentence that says what to write
        instead."""
        return

    def prepare(self, destination: Destination) -> None:
        """Make what must exist once before many processes use it. Called by the launcher, after ``check``. Raises
        ``ValueError`` with one sentence."""
        return

    def health(self, destination: Destination) -> Health:
        """Ask the backend, with one short request and without writing anything. Never raises."""
        return Health(True, self.summary)
