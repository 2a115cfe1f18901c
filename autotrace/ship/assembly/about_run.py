"""Hold facts about a run apart from its traces, for loading many traces in a row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from autotrace.insight.settings import TrainerSettings
from autotrace.run.losses import OUTSIDE_OF, losses
from autotrace.ship.store.state import State
from autotrace.trajectory.jsonable import text


class AboutRun:
    """Hold facts about a run as of the last ``refresh``."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._bound = -1
        self.settings, self.encoded_settings = TrainerSettings(), "{}"
        """TrainerSettings of the run; the same settings as text."""
        self.refresh()

    def refresh(self) -> None:
        """Read the state again, which may have grown."""
        self.config = self._state.metas("config:")
        """Names of the project and the experiment, as reported by the trainer."""
        self._drops: dict[str, Counter[str]] = {}
        bound = self._state.count("SELECT max(id) FROM binds")
        if bound != self._bound:
            self._bound, self.settings = bound, TrainerSettings.of(binds_of(self._state))
            self.encoded_settings = self.settings.encode()

    def losses(self, processes: Iterable[str]) -> Iterator[str]:
        """Yield a note on losses of the trace's processes, so that readers in a backend do not take the trace for
        complete."""
        counters: Counter[str] = Counter()
        for process in processes:
            drops = self._drops.get(process)
            if drops is None:
                drops = self._drops[process] = self._dropped_by(process)
            if drops:
                counters.update(drops)
        phrases = losses(counters) if counters else ()
        if phrases:
            listed = text("; ".join(phrases))
            yield f"the processes of this trajectory could not record everything, perhaps of this one: {listed}"

    def _dropped_by(self, process: str) -> Counter[str]:
        row = self._state.db.execute("SELECT counters FROM processes WHERE process = ?", (process,)).fetchone()
        if row is None or row["counters"] is None:
            return Counter()
        drops: dict[str, int] = msgspec.msgpack.decode(row["counters"])["drops"]
        return Counter({reason: number for reason, number in drops.items() if not reason.startswith(OUTSIDE_OF)})


def binds_of(state: State, after: int = 0) -> list[tuple[str, dict[str, Any]]]:
    """Return all reports about the run after its start, in order, without the first ``after``."""
    rows = state.db.execute("SELECT name, value FROM binds ORDER BY id LIMIT -1 OFFSET ?", (after,))
    return [(row["name"], msgspec.msgpack.decode(row["value"])) for row in rows]
