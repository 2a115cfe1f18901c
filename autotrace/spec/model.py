"""Describe the spec language: the keys of an entry. JSON Schema and reference are generated from this module."""

from __future__ import annotations

import functools
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from autotrace.config.plan import BY_CODE, HOWS, ROLES

MODES = ("span", "count")


def _of(description: str, form: str, example: str, **schema: Any) -> Meta:
    """Build the description of a key.

    ``form`` says how to write the value, as the end of a sentence that begins with "write". ``example`` is a YAML
    value.
    """
    return Meta(description=description, extra={"form": form, "example": example}, extra_json_schema=schema or None)


_PATHS = "a path such as result.token_ids, or a list of paths (the first that is present counts)"
_TABLE = "a mapping from a name to a path or a list of paths"

Paths = str | list[str]


class Capture(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Chooses the recorded arguments. Default: all arguments except ``self``, within the size limits."""

    include: Annotated[
        list[str] | None,
        _of("Only these arguments, or parts of them; the word `result` stands for what the call returns.",
            "a list of argument names", "[messages, sampling_params, result]"),
    ] = None  # fmt: skip
    exclude: Annotated[
        list[str],
        _of("Never these arguments; `result.NAME` leaves one member of the result out.", "a list of argument names",
            "[image_data, result.routed_experts]"),
    ] = []  # fmt: skip


class Tokens(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Names the token lists of a call. Token lists are stored once per trajectory and never cut."""

    prompt: Annotated[Paths | None, _of("Token ids the model was given.", _PATHS, "prompt_ids")] = None
    response: Annotated[Paths | None, _of("Token ids the model produced.", _PATHS, "result.token_ids")] = None
    logprobs: Annotated[Paths | None, _of("One log-probability per response token.", _PATHS, "result.log_probs")] = None
    mask: Annotated[
        Paths | None, _of("1 for tokens of the model, 0 for tokens of tools and users.", _PATHS, "result.response_mask")
    ] = None


class Key(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Names the trajectory that facts are about, by attributes of the trajectory."""

    uid: Annotated[Paths | None, _of("Its attribute `uid`.", _PATHS, "row.uid")] = None
    rollout_n: Annotated[Paths | None, _of("Its attribute `rollout_n`.", _PATHS, "row.number")] = None


class Batch(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Describes a batch of samples, for sampling an exact number of each batch."""

    group: Annotated[Paths | None, _of("Per row, what the rollouts of one prompt share.", _PATHS, "batch.uid")] = None
    sample: Annotated[
        Paths | None, _of("Per row, what names the prompt in the dataset, equal in every run.", _PATHS, "batch.index")
    ] = None
    limit: Annotated[
        Paths | None,
        _of("How many samples of a batch to record, where the host is configured so.", _PATHS, "self.limit"),
    ] = None
    n: Annotated[Paths | None, _of("Rollouts per prompt.", _PATHS, "self.config.n")] = None


class Entry(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Describes one target: a function or method to trace, and how."""

    target: Annotated[
        str | list[str],
        _of("What to trace: `package.module.Class.method` or `package.module:Class.method`. Of a list, the first that "
            "exists in the installed release. `package.module.Class.*` means the public methods of that class, "
            "`package.**` all public functions and methods below. Of a decorated function the outermost one is traced; "
            "`package.module.function.__wrapped__` means the one below a decorator that uses `functools.wraps`.",
            "a dotted name, or a list of dotted names",
            "my_project.agents.SearchAgent.run"),
    ]  # fmt: skip
    versions: Annotated[
        str | None,
        _of("Releases this entry is meant for; with any other release installed it is skipped.",
            'a distribution and a range such as "verl>=0.5,<0.8"', '"verl>=0.5"'),
    ] = None  # fmt: skip
    subclasses: Annotated[
        bool, _of("Also every override in present and future subclasses, once per call.", "true or false", "true")
    ] = False
    role: Annotated[
        str,
        _of("What the call is in a trajectory. `trajectory` opens a new one.", "one of " + ", ".join(ROLES), "tool",
            enum=list(ROLES)),
    ] = "span"  # fmt: skip
    label: Annotated[str | None, _of("Name to show instead of the qualified name.", "a text", "web search")] = None
    capture: Annotated[
        Capture | None,
        _of("Which arguments are recorded.", "a mapping with include and exclude", "{exclude: [images]}"),
    ] = None
    tokens: Annotated[
        Tokens | None,
        _of("Where the token lists are.", "a mapping with prompt, response, logprobs and mask",
            "{prompt: prompt_ids, response: result.token_ids}"),
    ] = None  # fmt: skip
    tokenizer: Annotated[
        str | None,
        _of("What decodes the token ids of this call: a folder (relative to this file), or a name on the Hugging Face "
            "hub. Without it: the option `--tokenizer`, else what the trainer or the engine loaded.",
            "a folder, or a name on the hub", "Qwen/Qwen3-8B"),
    ] = None  # fmt: skip
    attributes: Annotated[
        dict[str, Paths], _of("Single values to show on the span, by name.", _TABLE, "{tool_name: self.name}")
    ] = {}
    facts: Annotated[
        dict[str, Paths],
        _of("Values about the whole trajectory, read when the call ends.", _TABLE, "{reward: result.reward_score}"),
    ] = {}
    outcomes: Annotated[
        dict[str, str],
        _of("Exceptions that leave a call which did not fail, and what is then its attribute `outcome`. They count in "
            "every call of the process.", "a mapping from package.module.Exception to a word",
            "{my_project.errors.Handover: handed over}"),
    ] = {}  # fmt: skip
    batch: Annotated[
        Batch | None,
        _of("This call gets a batch of samples: exact sampling is decided here.",
            "a mapping with group, sample, limit and n", "{group: batch.uid, sample: batch.index}"),
    ] = None  # fmt: skip
    rows: Annotated[
        Paths,
        _of("The call is a batch, and this argument has its rows. Each row is recorded as a call of its own with this "
            "role: `trajectory` opens one for each row, any other role stands below the trajectories of the batch "
            "around it. Paths may begin with `row` (one item), `i` (its number, from 0) and `n` (how many there are).",
            _PATHS, "inputs"),
    ] = []  # fmt: skip
    chains: Annotated[
        Paths,
        _of("The call returns a list with the rows that a trainer makes of this trajectory: one for each chain. Paths "
            "of `tokens`, `attributes`, `facts` and `capture` may begin with `row` (one of them), `i` (its number, "
            "from 0) and `n` (how many there are), and are then about that row.",
            _PATHS, "result.trajectories"),
    ] = []  # fmt: skip
    id: Annotated[
        Paths,
        _of("What the library calls the trajectory that this call is in, or opens: what `of` names.", _PATHS,
            "self.trace.id"),
    ] = []  # fmt: skip
    of: Annotated[
        Paths | Key,
        _of("The id of the trajectory that this call belongs to, where it is made outside of it: in another task, "
            "thread or process. With `rows`: of the trajectory that the row's `facts` are about. Where that has no id, "
            "its attributes `uid` and `rollout_n` name it: `of: {uid: row.uid, rollout_n: row.number}`.",
            _PATHS + ", or a mapping with uid and rollout_n", "session_id"),
    ] = []  # fmt: skip
    group: Annotated[
        bool,
        _of("The trajectories that open inside of this call are a group: they are numbered (`rollout_n`) and get a "
            "`uid`, as far as they have none of their own.", "true or false", "true"),
    ] = False  # fmt: skip
    inside: Annotated[
        bool,
        _of("Only calls inside of another recorded call: of a library that others use as well.", "true or false",
            "true"),
    ] = False  # fmt: skip
    final: Annotated[
        Paths,
        _of("For generators: the span ends at the first item for which one of these paths is true.",
            "a path that begins with item, or a list of such paths", "item.finished"),
    ] = []  # fmt: skip
    items: Annotated[
        Annotated[int, Meta(ge=1, le=256)] | None,
        _of("Of what a generator or iterator yields, keep this many of the last items where they are no chat; without "
            "it, the last one.", "a whole number from 1 to 256", "64"),
    ] = None  # fmt: skip
    watch: Annotated[
        bool,
        _of("`false`: failures that are caught below this function are not noted.", "true or false", "false"),
    ] = True  # fmt: skip
    how: Annotated[
        str,
        _of("`code` gives the function other code, so every holder of the function is recorded. `name` sets a "
            "`wrapt.FunctionWrapper` at the name instead: only calls through the name are recorded, and the function "
            "stays unchanged. A callable without Python code (C, Cython, a ufunc, an instance) always gets a wrapper.",
            "code or name", "name", enum=list(HOWS)),
    ] = BY_CODE  # fmt: skip
    mode: Annotated[
        str,
        _of("`span` records each call; `count` only counts calls, for hot loops.", "span or count", "count",
            enum=list(MODES)),
    ] = "span"  # fmt: skip
    optional: Annotated[
        bool, _of("Absence in the installed release is neither a warning nor an error.", "true or false", "true")
    ] = False
    exclude: Annotated[
        list[str],
        _of("For targets that end in `*` or have `subclasses`: names to leave out, which may contain `*` too.",
            "a list of dotted names", "[my_project.agents.SearchAgent.score]"),
    ] = []  # fmt: skip
    enabled: Annotated[
        bool, _of("`false` switches off what an earlier file or a shipped spec named.", "true or false", "false")
    ] = True


File = list[str | Entry]
"""Type of a spec file: names and entries."""


def form(struct: type[msgspec.Struct], key: str) -> str:
    """Return how to write ``key``, as the end of a sentence."""
    return str(_extra(struct, key)["form"])


def example(struct: type[msgspec.Struct], key: str) -> str:
    """Return a YAML value for ``key``."""
    return str(_extra(struct, key)["example"])


@functools.cache  # msgspec evaluates every annotation again
def types(struct: type[msgspec.Struct]) -> dict[str, Any]:
    """Map each key to its type, in the order of the model."""
    return {field.encode_name: field.type for field in msgspec.structs.fields(struct)}


def meta(struct: type[msgspec.Struct], key: str) -> Meta:
    """Return the ``Meta`` that ``_of`` built for ``key``."""
    of_key: Meta = types(struct)[key].__metadata__[0]
    return of_key


def _extra(struct: type[msgspec.Struct], key: str) -> dict[str, Any]:
    return meta(struct, key).extra or {}
