"""The descriptor of the backend ``weave``."""

from __future__ import annotations

from collections.abc import MutableMapping
from pathlib import Path

from autotrace.run.info import RunInfo
from autotrace.sinks.backend import Backend, Destination, Health, extra
from autotrace.sinks.protocol import Sink


class WeaveBackend(Backend):
    """See ``Backend``."""

    name = "weave"
    summary = "W&B Weave"
    parallel = True
    requires = ("httpx",)
    install = extra("weave")
    distributions = ("weave",)
    run_bind = "wandb"

    def make(self, info: RunInfo, run_folder: Path, memory: MutableMapping[str, str]) -> Sink:
        """See ``Backend``."""
        from autotrace.sinks.weave.sink import WeaveSink

        return WeaveSink(info, memory)

    def health(self, destination: Destination) -> Health:
        """See ``Backend``."""
        from autotrace.sinks.http import probe
        from autotrace.sinks.weave.http import Login

        login = Login.from_environment()
        if not login.api_key:
            return Health(False, f"no API key for {login.base_url}: set WANDB_API_KEY or log in with `wandb login`")
        return probe(login.trace_url, "WF_TRACE_SERVER_URL")


BACKEND = WeaveBackend()
