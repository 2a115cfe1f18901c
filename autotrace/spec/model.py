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
        _of("Record only the listed arguments or parts of arguments; the word `result` means the return value.",
            "a list of argument names", "[messages, sampling_params, result]"),
    ] = None  # fmt: skip
    exclude: Annotated[
        list[str],
        _of("Never record the listed arguments; `result.NAME` leaves one member of the result out.",
            "a list of argument names", "[image_data, result.routed_experts]"),
    ] = []  # fmt: skip


class Tokens(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Names the token lists of a call. Token lists are stored once per trajectory and never cut."""

    prompt: Annotated[Paths | None, _of("Token ids the model was given.", _PATHS, "prompt_ids")] = None
    response: Annotated[Paths | None, _of("Token ids the model produced.", _PATHS, "result.token_ids")] = None
    logprobs: Annotated[Paths | None, _of("A log-probability for each response id.", _PATHS, "result.log_probs")] = None
    mask: Annotated[
        Paths | None, _of("1 for tokens of the model, 0 for tokens of tools and users.", _PATHS, "result.response_mask")
    ] = None


class Key(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Names the trajectory that facts are about, by attributes of the trajectory."""

    uid: Annotated[Paths | None, _of("The trajectory's attribute `uid`.", _PATHS, "row.uid")] = None
    rollout_n: Annotated[Paths | None, _of("The trajectory's attribute `rollout_n`.", _PATHS, "row.number")] = None


class Batch(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Describes a batch of samples, for sampling an exact number of each batch."""

    group: Annotated[Paths | None, _of("Per row, the value common to a prompt's rollouts.", _PATHS, "batch.uid")] = None
    sample: Annotated[
        Paths | None, _of("Per row, the name of the prompt in the dataset, equal in every run.", _PATHS, "batch.index")
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
        _of("What to trace: `package.module.Class.method` or `package.module:Class.method`. In a list, the first name "
            "that exists in the installed release counts. `package.module.Class.*` means the public methods of "
            "the class, `package.**` all public functions and methods below. A decorated function is traced at the "
            "outermost function; `package.module.function.__wrapped__` means the function below a decorator that uses "
            "`functools.wraps`.",
            "a dotted name, or a list of dotted names",
            "my_project.agents.SearchAgent.run"),
    ]  # fmt: skip
    versions: Annotated[
        str | None,
        _of("Releases this entry is meant for. Any other installed release skips the entry.",
            'a distribution and a range such as "verl>=0.5,<0.8"', '"verl>=0.5"'),
    ] = None  # fmt: skip
    subclasses: Annotated[
        bool, _of("Trace every override in present and future subclasses, too, once per call.", "true or false", "true")
    ] = False
    role: Annotated[
        str,
        _of("The kind of call within a trajectory. `trajectory` opens a new trajectory.",
            "one of " + ", ".join(ROLES), "tool", enum=list(ROLES)),
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
        _of("The tokenizer that decodes the token ids of this call: a folder (relative to this file), or a name on the "
            "Hugging Face hub. Default: the option `--tokenizer`, else the tokenizer of the trainer or the engine.",
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
        _of("Exceptions that end a call without a failure, and the call's attribute `outcome` in that case. The "
            "exceptions count in every call of the process.", "a mapping from package.module.Exception to a word",
            "{my_project.errors.Handover: handed over}"),
    ] = {}  # fmt: skip
    batch: Annotated[
        Batch | None,
        _of("This call gets a batch of samples: exact sampling is decided here.",
            "a mapping with group, sample, limit and n", "{group: batch.uid, sample: batch.index}"),
    ] = None  # fmt: skip
    rows: Annotated[
        Paths,
        _of("The call is a batch, and this argument has the rows. Each row is recorded as a separate call with this "
            "role: `trajectory` opens a trajectory for each row; a row of any other role appears below a trajectory of "
            "the surrounding batch. Paths may begin with `row` (the item), `i` (the number of `row`, from 0) and `n` "
            "(the number of items).",
            _PATHS, "inputs"),
    ] = []  # fmt: skip
    chains: Annotated[
        Paths,
        _of("The call returns a list with the rows that a trainer makes from this trajectory: a row for each chain. "
            "Paths of `tokens`, `attributes`, `facts` and `capture` may begin with `row`, `i` (the row's number, from "
            "0) and `n` (the number of rows), and are then about that row.",
            _PATHS, "result.trajectories"),
    ] = []  # fmt: skip
    id: Annotated[
        Paths,
        _of("The library's id for the trajectory that this call is in, or opens. `of` names this id.", _PATHS,
            "self.trace.id"),
    ] = []  # fmt: skip
    of: Annotated[
        Paths | Key,
        _of("The id of the trajectory that this call belongs to, for a call in another task, thread or process. With "
            "`rows`: the id of the trajectory that the row's `facts` are about. The attributes `uid` and `rollout_n` "
            "name a trajectory without an id: `of: {uid: row.uid, rollout_n: row.number}`.",
            _PATHS + ", or a mapping with uid and rollout_n", "session_id"),
    ] = []  # fmt: skip
    group: Annotated[
        bool,
        _of("Trajectories that open inside this call are a group. Trajectories without a `rollout_n` are numbered, and "
            "trajectories without a `uid` get a common `uid`.", "true or false", "true"),
    ] = False  # fmt: skip
    inside: Annotated[
        bool,
        _of("Record only calls inside another recorded call: for a library that other code uses, too.", "true or false",
            "true"),
    ] = False  # fmt: skip
    final: Annotated[
        Paths,
        _of("For generators: the span ends at the first item for which any of the paths is true.",
            "a path that begins with item, or a list of such paths", "item.finished"),
    ] = []  # fmt: skip
    items: Annotated[
        Annotated[int, Meta(ge=1, le=256)] | None,
        _of("Keep this many of the last items of a generator or iterator, unless the items are chunks of a chat. "
            "Default: the last item.", "a whole number from 1 to 256", "64"),
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
        bool, _of("`false` switches off the target of an earlier file or a shipped spec.", "true or false", "false")
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
