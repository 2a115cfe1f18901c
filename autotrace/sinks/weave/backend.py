"""Describe the backend ``weave``."""

from __future__ import annotations

from collections.abc import MutableMapping
from pathlib import Path

from autotrace.run.info import RunInfo
from autotrace.sinks.backend import Backend, Destination, Health
from autotrace.sinks.protocol import Sink


class WeaveBackend(Backend):
    """See ``Backend``."""

    name = "weave"
    summary = "W&B Weave"
    requires = ("httpx",)
    distributions = ("weave",)
    run_bind = "wandb"

    def make(self, info: RunInfo, run_folder: Path, memory: MutableMapping[str, str]) -> Sink:
        """See ``Backend``."""
        from autotrace.sinks.weave.sink import WeaveSink

        return WeaveSink(info, memory)

    def check(self, destination: Destination) -> None:
        """See ``Backend``. Raises ``ValueError`` without a key: nothing could be delivered."""
        if problem := _without_key():
            raise ValueError(problem)

    def health(self, destination: Destination) -> Health:
        """See ``Backend``."""
        from autotrace.sinks.http import probe
        from autotrace.sinks.weave.http import Login

        if problem := _without_key():
            return Health(False, problem)
        return probe(Login.from_environment().trace_url, "WF_TRACE_SERVER_URL")


def _without_key() -> str | None:
    from autotrace.sinks.weave.http import Login, host_of

    login = Login.from_environment()
    host = host_of(login.base_url)
    return None if login.api_key else f"no API key for {host}: set WANDB_API_KEY or run `wandb login`"


BACKEND = WeaveBackend()
