"""What is known of a run's configuration, as far as findings need it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

import msgspec

from autotrace.trajectory.jsonable import integer, number


@dataclass(frozen=True)
class TrainerSettings:
    """None: not known."""

    prompt_length: int | None = None
    """Tokens a first prompt may have; the trainer cuts longer ones."""
    response_length: int | None = None
    """Tokens a response may have over all turns, tools included."""
    max_model_len: int | None = None
    """Tokens of prompt and response together: as the engine resolved it, else as it is configured."""
    max_assistant_turns: int | None = None
    max_user_turns: int | None = None
    rollout_n: int | None = None
    """Rollouts of a group."""
    adv_estimator: str | None = None
    trainer_mode: str | None = None
    """``sync`` where rollouts end before the weights change."""
    max_off_policy_threshold: int | None = None
    """Steps that weights may be old."""
    temperature: float | None = None
    """With which rollouts are sampled, and which the trainer assumes."""
    nnodes: int | None = None
    n_gpus_per_node: int | None = None
    end_tokens: frozenset[int] = frozenset()
    """Tokens that end a response."""

    @classmethod
    def of(cls, binds: Iterable[tuple[str, Mapping[str, Any]]]) -> TrainerSettings:
        """From what was reported about a run (``Reader.binds``)."""
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
        if len(limits) == 1:  # of several engines with several limits it is not known which one answered
            known["max_model_len"] = limits.pop()
        return cls(**{**known, "end_tokens": frozenset(ends)})

    def encode(self) -> str:
        """As text, without what is not known."""
        known = {name: value for name, value in asdict(self).items() if value not in (None, frozenset())}
        return msgspec.json.encode(known).decode()

    @classmethod
    def decode(cls, text: str | None) -> TrainerSettings:
        """What ``encode`` made; nothing is known where it is something else."""
        try:
            known = msgspec.json.decode(text or "{}", type=dict[str, Any])
        except msgspec.MsgspecError:
            known = {}
        return cls.of([("config", known), ("tokenizer", {"end_tokens": known.get("end_tokens")})])

    @property
    def trains(self) -> bool:
        """A trainer's configuration is known: without one nothing says that what is rolled out is trained on."""
        return self.adv_estimator is not None or self.trainer_mode is not None

    @property
    def gpus(self) -> int | None:
        """GPUs of the trainer, on all nodes."""
        return self.nnodes * self.n_gpus_per_node if self.nnodes and self.n_gpus_per_node else None

    @property
    def is_sync(self) -> bool:
        """The trainer is known to wait for its rollouts."""
        return self.trainer_mode == "sync"


def _as(kind: str, value: Any) -> Any:
    """``value`` if it is of the type that ``kind`` names; None: it is not."""
    if kind.startswith("float"):
        return number(value)
    if kind.startswith("int"):
        whole = integer(value)
        return whole if whole is not None and whole > 0 else None
    return value if isinstance(value, str) else None
