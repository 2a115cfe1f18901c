"""Hold the compiled plan. The launcher writes the plan once and every traced process reads the plan.

A plan is a JSON object; this module is the schema. Paths (``tokens``, ``attributes``, ``facts``, ``final``) stay text
here. The process that binds a target parses the paths (``record.fields``). The first word of a path is an argument
name, ``self``, ``kwargs``, ``result`` or ``item``. The rest are attributes, keys or indexes:
``outputs.-1.reward_score``. In a list of paths, the first path that is present counts.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field

import msgspec

PLAN_VERSION = 1
SHIPPED = "patch_specs"
"""Names the folder of the shipped specs: inside the package when installed, beside the package in a source checkout."""
LONGEST_IMAGE = 16 << 20
"""Limits the text whose image ``--images`` keeps (characters)."""
ROLES = ("trajectory", "agent", "llm", "tool", "parser", "env", "reward", "engine", "trainer", "span")
BY_CODE, BY_NAME = HOWS = ("code", "name")


_WRAPPED = ".__wrapped__"


def decorated(name: str) -> tuple[str, int]:
    """Return the bare name, and the number of decorators above the meant function.

    ``tools.search.__wrapped__`` is the function below the first decorator of ``tools.search``: ``functools.wraps`` sets
    that attribute.
    """
    bare = name
    while bare.endswith(_WRAPPED):
        bare = bare.removesuffix(_WRAPPED)
    return bare, (len(name) - len(bare)) // len(_WRAPPED)


@dataclass(frozen=True)
class Target:
    """Holds one entry of a spec."""

    key: str
    """Key: the entry's first name as written. The key is stable, and a wrapper knows nothing else about its target."""
    names: tuple[str, ...]
    """Lists alternatives; the first that exists wins. ``pkg.mod.Class.method``, ``pkg.mod:Class.method``, ``.*``,
    ``.**``."""
    where: str = ""
    """Place for messages: ``file.yaml:12``."""
    without: tuple[str, ...] = ()
    """Lists the names that a glob must not match (the spec's ``exclude``)."""
    versions: str | None = None
    """Requirement on an installed distribution (PEP 508): ``verl>=0.5``."""
    subclasses: bool = False
    how: str = BY_CODE
    """How: code | name. ``code``: the function gets another code; a callable without Python code is replaced at its
    name. ``name``: the callable is replaced at its name, whatever it is."""
    role: str = "span"
    mode: str = "span"
    """Mode: span | count"""
    optional: bool = False
    label: str | None = None
    """Display name instead of the qualified name."""
    include: tuple[str, ...] | None = None
    """Lists the arguments to capture (``result`` among the names); None: all."""
    exclude: tuple[str, ...] = ()
    """Lists the arguments never to capture."""
    tokens: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Maps ``prompt``, ``response``, ``logprobs``, ``mask`` to paths."""
    tokenizer: str | None = None
    """Names the tokenizer for the tokens, as returned by ``tokenizer_name.located``; None: the run's tokenizer."""
    attributes: dict[str, tuple[str, ...]] = field(default_factory=dict)
    facts: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Facts about the trajectory, read when the call ends."""
    outcomes: dict[str, str] = field(default_factory=dict)
    """Maps qualified names of exceptions that end a call without failure to the ``outcome`` of such a call."""
    batch: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Maps ``group``, ``sample`` (one value per row), ``limit``, ``n`` to paths. The call gets a batch of samples, and
    exact sampling (a fixed number of samples from each batch) is decided here."""
    rows: tuple[str, ...] = ()
    """Paths to the rows of a batch. Each row is a call, and opens a trajectory if the role says so. The paths may use
    ``row``, ``i`` and ``n``."""
    chains: tuple[str, ...] = ()
    """Paths to the returned rows, one row for each chain of the trajectory. Paths may use ``row``, ``i`` and ``n``."""
    id: tuple[str, ...] = ()
    """Paths to the host's name for the trajectory that contains this call."""
    of: tuple[str, ...] = ()
    """Paths to the id of the trajectory that this call, or this row, belongs to."""
    of_key: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Maps ``uid`` and ``rollout_n`` to paths; both name the trajectory where no id does."""
    group: bool = False
    """Tells whether the trajectories that open inside this call are the rollouts of one prompt."""
    inside: bool = False
    """Tells whether calls are recorded only inside another recorded call."""
    final: tuple[str, ...] = ()
    """Paths for generators: the span ends at the first item where one of the paths is true."""
    watch: bool = True
    """Tells whether to note failures of the functions that this function calls by name (``patch.watch``)."""
    items: int = 0
    """Number of a generator's or iterator's last items to keep; 0: only the last item."""
    places: dict[str, str] = field(default_factory=dict)
    """Maps the paths in the user's specs to places: ``facts.reward``, ``capture.include`` -> ``file.yaml:14``."""

    @property
    def is_shipped(self) -> bool:
        """Tell whether the target comes with autotrace."""
        return self.where.startswith(f"{SHIPPED}/")


@dataclass(frozen=True)
class Settings:
    """Describes how to record; one set for the whole run."""

    content: str = "full"
    """Content to record: full | text | none"""
    logprobs: bool = False
    token_facts: str = "some"
    """Selects the trainer's values for each token. ``all``: all columns. ``some``: the columns of some trajectories
    (numbers of all trajectories). ``off``: nothing."""
    max_string: int = 65_536
    """Limits the characters kept of a captured string."""
    images: bool = False
    """Tells whether images inside texts are kept in the run folder, by digest."""
    max_items: int = 256
    """Limits the items kept of a captured container (token lists named in ``tokens`` are never cut)."""
    max_depth: int = 6
    redact_keys: tuple[str, ...] = ()
    """Case-insensitive globs on argument and dict key names, in addition to the built-in globs."""
    redact_patterns: tuple[str, ...] = ()
    """Regular expressions to replace in every captured string."""
    redact_hook: str | None = None
    """Names ``pkg.mod:function``, which the flusher thread calls with each captured value as ``(name, value)``."""
    sampling: dict[str, bool | int | float | str | tuple[int | str, ...] | None] = field(default_factory=dict)
    """Options: ``rate``, ``seed``, ``every_n_steps``, ``samples``, ``max_samples_per_step_per_worker``,
    ``validate_rate``."""
    memory_limit: int = 64 * 1024 * 1024
    """Limits the bytes of records that wait in a process to be written."""
    spool_limit: int = 0
    """Limits the bytes of the whole spool; 0: no limit."""
    follow_threads: bool = True
    """Tells whether a thread or greenlet belongs to the call that started the thread or greenlet."""
    watch: bool = True  # of all targets that do not say otherwise
    keep_spool: bool = False
    """Tells whether segments stay when the tables hold the segments' trajectories."""
    flush_interval: float = 0.2
    """Seconds between two writes of the flusher."""

    @property
    def copied(self) -> int:
        """Count the characters of a string that the flusher gets: the flusher cuts a text behind the text's images."""
        return max(self.max_string, LONGEST_IMAGE) if self.images else self.max_string


@dataclass(frozen=True)
class Plan:
    targets: tuple[Target, ...]
    settings: Settings = Settings()
    digest: str = ""
    version: int = PLAN_VERSION

    def dumps(self) -> str:
        """Return the JSON text of the plan."""
        return json.dumps(vars(self), default=vars, separators=(",", ":"), sort_keys=True)

    @classmethod
    def loads(cls, text: str | bytes) -> Plan:
        """Parse the text that ``dumps`` returned. Raises ``ValueError`` for anything except a plan of this version."""
        try:
            plan: Plan = msgspec.json.decode(text, type=cls)
        except (msgspec.MsgspecError, RecursionError) as error:
            raise ValueError(f"not a plan: {error}") from None
        if plan.version != PLAN_VERSION:
            raise ValueError(f"not a plan of version {PLAN_VERSION}")
        return plan
