"""The compiled plan: what the launcher writes once and every traced process reads.

A plan is one JSON object; this module is its schema. Paths (``tokens``, ``attributes``, ``facts``, ``final``) stay
text here and are parsed in the process that binds the target (``record.fields``). Their first word is an argument name,
``self``, ``kwargs``, ``result`` or ``item``; the rest are attributes, keys or indexes: ``outputs.-1.reward_score``.
A list of paths means: the first that is present.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field

import msgspec

PLAN_VERSION = 1
SHIPPED = "patch_specs"
"""Folder of the shipped specs: inside the package when installed, beside it in a source checkout."""
LONGEST_IMAGE = 16 << 20
"""Characters of the longest text whose image ``--images`` keeps."""
ROLES = ("trajectory", "agent", "llm", "tool", "parser", "env", "reward", "engine", "trainer", "span")


_WRAPPED = ".__wrapped__"


def decorated(name: str) -> tuple[str, int]:
    """What stands under ``name``, and how many decorators are above the function that is meant.

    ``tools.search.__wrapped__`` is the function below the first decorator of ``tools.search``: ``functools.wraps`` sets
    that attribute."""
    bare = name
    while bare.endswith(_WRAPPED):
        bare = bare.removesuffix(_WRAPPED)
    return bare, (len(name) - len(bare)) // len(_WRAPPED)


@dataclass(frozen=True)
class Target:
    """One entry of a spec."""

    key: str
    """The entry's first name as written: stable, and all that a wrapper knows of its target."""
    names: tuple[str, ...]
    """Alternatives, first that exists wins. ``pkg.mod.Class.method``, ``pkg.mod:Class.method``, ``.*``, ``.**``."""
    where: str = ""
    """``file.yaml:12`` for messages."""
    without: tuple[str, ...] = ()
    """Names a glob must not match (the spec's ``exclude``)."""
    versions: str | None = None
    """PEP 508 requirement on an installed distribution: ``verl>=0.5``."""
    subclasses: bool = False
    role: str = "span"
    mode: str = "span"
    """span | count"""
    optional: bool = False
    label: str | None = None
    """Display name instead of the qualified name."""
    include: tuple[str, ...] | None = None
    """Arguments to capture (``result`` among them); None: all."""
    exclude: tuple[str, ...] = ()
    """Arguments never to capture."""
    tokens: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """``prompt``, ``response``, ``logprobs``, ``mask`` -> paths."""
    tokenizer: str | None = None
    """What decodes these tokens, as ``tokenizer_name.located`` has it; None: what the run says."""
    attributes: dict[str, tuple[str, ...]] = field(default_factory=dict)
    facts: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Facts about the trajectory, read when the call ends."""
    outcomes: dict[str, str] = field(default_factory=dict)
    """Qualified names of exceptions that end a call which did not fail, and the ``outcome`` of such a call."""
    batch: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """``group``, ``sample`` (one value per row), ``limit``, ``n`` -> paths: this call gets a batch of samples, and
    exact sampling (so many samples of each batch) is decided here."""
    rows: tuple[str, ...] = ()
    """The call is a batch, and these its rows: each a call of its own, in a trajectory of its own where the role says
    so. Paths know ``row``, ``i`` and ``n``."""
    chains: tuple[str, ...] = ()
    """The call returns these rows, one for each chain of its trajectory. Paths know ``row``, ``i`` and ``n``."""
    id: tuple[str, ...] = ()
    """What the host calls the trajectory that this call is in."""
    of: tuple[str, ...] = ()
    """The id of the trajectory that this call, or this row, belongs to."""
    of_key: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Or its attributes that name it: ``uid`` and ``rollout_n``."""
    group: bool = False
    """The trajectories that open inside of this call are the rollouts of one prompt."""
    inside: bool = False
    """Recorded only inside of another recorded call."""
    final: tuple[str, ...] = ()
    """For generators: the span ends at the first item where one of these paths is true."""
    watch: bool = True
    """Failures are noted of the functions that this one calls by name (``patch.watch``)."""
    items: int = 0
    """For generators and iterators: how many of the last items are kept; 0: the last one alone."""
    places: dict[str, str] = field(default_factory=dict)
    """Where the user's own lists give its paths: ``facts.reward``, ``capture.include`` -> ``file.yaml:14``."""

    @property
    def is_shipped(self) -> bool:
        """It comes with autotrace."""
        return self.where.startswith(f"{SHIPPED}/")


@dataclass(frozen=True)
class Settings:
    """How to record; one set for the whole run."""

    content: str = "full"
    """full | text | none"""
    logprobs: bool = False
    token_facts: str = "some"
    """What a trainer computes for each token: ``all`` columns, those of ``some`` trajectories (numbers of all), or
    ``off``."""
    max_string: int = 65_536
    """Characters kept of one captured string."""
    images: bool = False
    """Images that a text holds are kept in the run folder, by digest."""
    max_items: int = 256
    """Items kept of one captured container (token lists named in ``tokens`` are never cut)."""
    max_depth: int = 6
    redact_keys: tuple[str, ...] = ()
    """Case-insensitive globs on argument and dict key names, in addition to the built-in ones."""
    redact_patterns: tuple[str, ...] = ()
    """Regular expressions replaced in every captured string."""
    redact_hook: str | None = None
    """``pkg.mod:function`` called with each captured value as ``(name, value)`` in the flusher thread."""
    sampling: dict[str, bool | int | float | str | tuple[int | str, ...] | None] = field(default_factory=dict)
    """``rate``, ``seed``, ``every_n_steps``, ``samples``, ``max_samples_per_step_per_worker``, ``validate_rate``."""
    memory_limit: int = 64 * 1024 * 1024
    """Bytes of not yet written records a process may hold."""
    spool_limit: int = 0
    """Bytes of the whole spool; 0: no limit."""
    follow_threads: bool = True
    """A thread or greenlet belongs to the call that started it."""
    watch: bool = True  # of all targets that do not say otherwise
    keep_spool: bool = False
    """Segments stay when their trajectories are in the tables."""
    flush_interval: float = 0.2
    """Seconds between two writes of the flusher."""

    @property
    def copied(self) -> int:
        """Characters of a string that the flusher gets: the flusher cuts a text behind its images."""
        return max(self.max_string, LONGEST_IMAGE) if self.images else self.max_string


@dataclass(frozen=True)
class Plan:
    targets: tuple[Target, ...]
    settings: Settings = Settings()
    digest: str = ""
    version: int = PLAN_VERSION

    def dumps(self) -> str:
        """JSON text of the plan."""
        return json.dumps(vars(self), default=vars, separators=(",", ":"), sort_keys=True)

    @classmethod
    def loads(cls, text: str | bytes) -> Plan:
        """Inverse of ``dumps``. Raises ``ValueError`` for anything that is not a plan of this version."""
        try:
            plan: Plan = msgspec.json.decode(text, type=cls)
        except (msgspec.MsgspecError, RecursionError) as error:
            raise ValueError(f"not a plan: {error}") from None
        if plan.version != PLAN_VERSION:
            raise ValueError(f"not a plan of version {PLAN_VERSION}")
        return plan
