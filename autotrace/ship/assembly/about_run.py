"""What is known of a run beside its traces, for who loads one trace after the other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from autotrace.insight.settings import Settings
from autotrace.run.losses import OUTSIDE_OF, losses
from autotrace.ship.store.state import State
from autotrace.trajectory.jsonable import text


class AboutRun:
    """As the state had it at the last ``refresh``."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._bound = -1
        self.settings, self.encoded_settings = Settings(), "{}"
        """What is known of its configuration; the same as text."""
        self.refresh()

    def refresh(self) -> None:
        """The state may have more by now."""
        self.config = self._state.metas("config:")
        """Names of the project and the experiment, as the trainer told them."""
        self._drops: dict[str, Counter[str]] = {}
        bound = self._state.count("SELECT max(id) FROM binds")
        if bound != self._bound:
            self._bound, self.settings = bound, Settings.of(binds_of(self._state))
            self.encoded_settings = self.settings.encode()

    def losses(self, processes: Iterable[str]) -> Iterator[str]:
        """What the processes of a trace could not record so far, so that its readers in a backend do not take it for
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
    """Everything reported about the run after its start, in order, without the first ``after``."""
    rows = state.db.execute("SELECT name, value FROM binds ORDER BY id LIMIT -1 OFFSET ?", (after,))
    return [(row["name"], msgspec.msgpack.decode(row["value"])) for row in rows]
