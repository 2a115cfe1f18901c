"""``run.json``: what was started and where its trajectories go. Written by the launcher, read by everybody else."""

from __future__ import annotations

from pathlib import Path

import msgspec

from autotrace.run import files, layout


class RunInfo(msgspec.Struct):
    """One run. Holds no secrets: credentials stay in the environment of the shipper."""

    run_id: str
    created: str
    """ISO 8601 with time zone."""
    command: list[str]
    """As started, with values that look like secrets replaced."""
    host: str
    main_pid: int
    backends: list[str]
    tracking_uri: str | None = None
    """Given by the user (option or ``MLFLOW_TRACKING_URI``); None: veRL's own logger decides, else a local SQLite."""
    project: str | None = None
    experiment: str | None = None
    drain_timeout: float = 60.0
    plan_digest: str = ""
    version: str = ""
    origins: dict[str, str] = {}
    """Where each setting came from, for ``autotrace status``: ``tracking_uri`` -> ``environment
    MLFLOW_TRACKING_URI``."""

    keep: list[str] = []
    """Keep-rules as given (``ship.delivery.tail_sampling``); empty: everything is delivered."""
    step_budget: int | None = None
    """Bytes that may be delivered per training step to each backend."""
    month_budget: int | None = None
    """Bytes that may be delivered per calendar month to each backend."""

    tokenizer: str | None = None
    """What decodes token ids, as ``tokenizer_name.located`` has it; None: what the trainer or the engine loaded."""
    tokenizers: dict[str, str] = {}
    """Folders that were named, here or in the plan -> their copies below ``blobs``."""

    shippers: int = 0
    """Processes that deliver; 0: as many as it takes (``ship.delivery.scaling``)."""

    def write(self, run_folder: str | Path) -> None:
        """Write ``run.json`` atomically."""
        files.replace(Path(run_folder, layout.RUN_JSON), msgspec.json.format(msgspec.json.encode(self), indent=2))

    @classmethod
    def read(cls, run_folder: str | Path) -> RunInfo:
        """Read ``run.json``. Raises ``FileNotFoundError`` or ``msgspec.DecodeError``."""
        return msgspec.json.decode(Path(run_folder, layout.RUN_JSON).read_bytes(), type=cls)


def find_run(folder: str | Path) -> Path:
    """The run ``folder`` is, or the newest run inside it. Raises ``FileNotFoundError`` with one sentence."""
    folder = Path(folder)
    if (folder / layout.RUN_JSON).exists():
        return folder
    runs = sorted(folder.glob(f"*/{layout.RUN_JSON}"), key=lambda path: path.parent.name)
    if not runs:
        raise FileNotFoundError(f"{folder} holds no autotrace run (no {layout.RUN_JSON} in it or one level below)")
    return runs[-1].parent
