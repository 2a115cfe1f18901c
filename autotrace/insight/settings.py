"""Hold the part of a run's configuration that findings need."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

import msgspec

from autotrace.trajectory.jsonable import integer, number


@dataclass(frozen=True)
class TrainerSettings:
    """Hold the trainer's settings; None: not known."""

    prompt_length: int | None = None
    """Limit the tokens of a first prompt; the trainer cuts longer prompts."""
    response_length: int | None = None
    """Limit the tokens of a response over all turns, tools included."""
    max_model_len: int | None = None
    """Limit the tokens of prompt and response together: the engine's resolved value, otherwise the configured value."""
    max_assistant_turns: int | None = None
    max_user_turns: int | None = None
    rollout_n: int | None = None
    """Count the rollouts of a group."""
    adv_estimator: str | None = None
    trainer_mode: str | None = None
    """Name the mode: ``sync`` if rollouts end before the weights change."""
    max_off_policy_threshold: int | None = None
    """Limit the age of weights, in steps."""
    temperature: float | None = None
    """Store the temperature of the sampling, which the trainer assumes."""
    nnodes: int | None = None
    n_gpus_per_node: int | None = None
    end_tokens: frozenset[int] = frozenset()
    """List the tokens that end a response."""

    @classmethod
    def of(cls, binds: Iterable[tuple[str, Mapping[str, Any]]]) -> TrainerSettings:
        """Read the settings from the reports about a run (``Reader.binds``)."""
        known: dict[str, Any] = {}
        limits, ends = set[int](), set[int]()
        for name, value in binds:
            if name == "config":
                given = {field.name: _as(str(field.type), value.get(field.name)) for field in fields(cls)}
                known |= {key: setting for key, setting in given.items() if setting is not None}
            elif name == "tokenizer" and isinstance(value.get("end_tokens"), list):
                ends |= {end for end in value["end_tokens"] if isinstance(end, int)}
            elif name == "engine" and (limit := _as("int", value.get("max_model_len"))) is not None:
                limits.add(limit)
        if len(limits) == 1:  # of several engines with several limits the answering engine is not known
            known["max_model_len"] = limits.pop()
        return cls(**{**known, "end_tokens": frozenset(ends)})

    def encode(self) -> str:
        """Encode as text, without unknown values."""
        known = {name: value for name, value in asdict(self).items() if value not in (None, frozenset())}
        return msgspec.json.encode(known).decode()

    @classmethod
    def decode(cls, text: str | None) -> TrainerSettings:
        """Decode the text of ``encode``; any other text gives no values."""
        try:
            known = msgspec.json.decode(text or "{}", type=dict[str, Any])
        except msgspec.MsgspecError:
            known = {}
        return cls.of([("config", known), ("tokenizer", {"end_tokens": known.get("end_tokens")})])

    @property
    def trains(self) -> bool:
        """Return whether a trainer's configuration is known: otherwise nothing shows that rollouts are trained on."""
        return self.adv_estimator is not None or self.trainer_mode is not None

    @property
    def gpus(self) -> int | None:
        """Count the GPUs of the trainer, on all nodes."""
        return self.nnodes * self.n_gpus_per_node if self.nnodes and self.n_gpus_per_node else None

    @property
    def is_sync(self) -> bool:
        """Return whether the trainer is known to wait for its rollouts."""
        return self.trainer_mode == "sync"


def _as(kind: str, value: Any) -> Any:
    """Return ``value`` if its type is ``kind``, otherwise None."""
    if kind.startswith("float"):
        return number(value)
    if kind.startswith("int"):
        whole = integer(value)
        return whole if whole is not None and whole > 0 else None
    return value if isinstance(value, str) else None
