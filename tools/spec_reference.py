"""What is generated from the model: the JSON Schema for editors and the reference for readers (``make pages``)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from autotrace.record.spec_functions import FUNCTIONS
from autotrace.spec import model
from autotrace.spec.model import Batch, Capture, Entry, Key, Tokens

TRACES = Path(__file__).with_name("worked_traces.md")
"""Programs with the trees that they give (``tests/docs/test_worked_traces.py``)."""
_INSIDE: dict[str, type[msgspec.Struct]] = {"capture": Capture, "tokens": Tokens, "batch": Batch, "of": Key}


def json_schema() -> str:
    """The JSON Schema of a spec, as it is shipped."""
    schema: dict[str, Any] = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "autotrace spec",
        "description": "A list of functions and methods to trace.",
        **_without_null(msgspec.json.schema(model.File)),
    }
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def markdown() -> str:
    """The reference: every key, what it means, what to write."""
    lines = [
        "# Spec reference",
        "",
        "A spec is a YAML list. Each entry is a name, or a mapping with the keys below; only `target` is needed.",
        "",
        "```yaml",
        "- my_project.agents.SearchAgent.run",
        "- target: my_project.tools.WebSearch.execute",
        "  role: tool",
        "  subclasses: true",
        "```",
        "",
        "Editors complete and check specs that begin with `# yaml-language-server: $schema=PATH`. `autotrace init` "
        "writes this line, with the path of the schema beside the shipped specs.",
        "",
    ]
    for key in model.types(Entry):
        lines += _section(Entry, key)
        if key in _INSIDE:
            lines += _table(_INSIDE[key], key)
    return "\n".join(
        [*lines, _PATHS.replace("FUNCTIONS", _functions()), TRACES.read_text(encoding="utf-8").rstrip("\n")]
    )


def _functions() -> str:
    """The table of the functions that a value may name."""
    rows = ["| function | value |", "|---|---|"]
    for function in FUNCTIONS.values():
        shown = ", ".join(f"{name}=..." if may_be_left_out else name for name, may_be_left_out in function.arguments)
        rows.append(f"| `{function.name}({shown})` | {function.meaning} |")
    return "\n".join(rows)


def _without_null(schema: Any) -> Any:
    """``schema`` without None: a key that is not meant is left out, ``key:`` with nothing behind it is a mistake."""
    if isinstance(schema, list):
        return [_without_null(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {key: _without_null(item) for key, item in schema.items() if not (key == "default" and item is None)}
    alternatives = [item for item in kept.pop("anyOf", []) if item != {"type": "null"}]
    if len(alternatives) == 1:
        return {**alternatives[0], **kept}
    return {**kept, "anyOf": alternatives} if alternatives else kept


_PATHS = """## Paths

A path begins with the name of an argument, or with one of

| word | what it is |
|---|---|
| `self` | the object the method was called on |
| `kwargs` | all keyword arguments |
| `result` | the return value; of a generator the `final` item, or all items put together; of a `with` the bound value |
| `item` | the item that a generator just yielded (only in `final`) |

and goes on with attributes, keys and indexes, all joined by dots: `result.outputs.-1.token_ids`. An argument that
arrives through `**kwargs` is known by the argument's own name. A missing value is absent, never an error; if your path
was absent in every call, `autotrace status` and the last line of the run say so. A path is read with `getattr`, keys
and `get`: a property, a `__getattr__` or a `get` of the object's class runs, in the thread of the call. Do not name a
property that computes or asks a server. In a list of paths, the first present path counts, so an entry can serve
several releases of a library.

`*` means all items: `result.choices.0.logprobs.content.*.logprob` is a list; for a mapping, `*` gives a mapping with
the same keys. An index in brackets is a value, too: `result.advantages[i]`. Constants are
`true`, `false`, a whole number, and a text in single quotes.

A value may be a function of values: `member(row.index, args.n_samples_per_prompt)`. If an argument is
absent or of another kind, the function has no value.

FUNCTIONS

## Batches, and trajectories by their id

A trainer that generates a batch at once has no call for each rollout. `rows` makes a call for each row:

```yaml
- target: my_project.trainer.Trainer.generate_and_score
  role: trajectory
  rows: inputs
  attributes: {step: self.step, uid: "group(i, self.group_size)", rollout_n: "member(i, self.group_size)"}
  facts: {reward: "result.rewards[i]"}
- target: my_project.trainer.Trainer.generate       # called by generate_and_score, with all or some rows
  role: llm
  rows: prompts
  tokens: {prompt: row, response: "result[i]"}
```

A `uid` that is a number counts within the batch. Inside a batch, rows go to the trajectories of the batch: by number
if the numbers of rows and trajectories are equal, else by the identity of the row's object, else by the first tokens of
the row's prompt. Rows that fit no trajectory are counted. Arrays and tensors are read only in the CPU's memory.

An agent that branches may return a list with the trainer's rows of the trajectory: a row for each
[chain](branches.md). `chains` names that list:

```yaml
- target: my_project.agent.Agent.run
  role: trajectory
  chains: result.rows
  tokens: {prompt: row.prompt_ids, response: row.response_ids, mask: row.response_mask}
  facts: {reward: row.reward, num_turns: result.num_turns}
```

Each row is recorded below the call when the call ends. A path that begins with `row`, `i` or `n` is about the row, so
each row has a separate reward. Any other path is about the whole call, as `num_turns` here.

For a call outside the trajectory's context, `of` names the trajectory, by the `id` of some call inside the trajectory:

```yaml
- {target: my_project.rollout.Rollout.start, role: trajectory, id: self.id}
- {target: my_project.server.Handler.complete, role: llm, of: request.session_id}
- {target: my_project.scores.score_group, role: reward, rows: states, of: row.rollout_id, facts: {reward: row.reward}}
```

The step and the group of a trajectory come from the trajectory's own attributes, or from a surrounding call of role
`trainer`: a trajectory without `step`, `validate`, `project_name`, `experiment_name`, `uid`, `sample_index` or
`data_source` takes the value from that call. `group` is for a call that makes the rollouts of a prompt:

```yaml
- {target: my_project.trainer.Trainer.generate, role: trainer, attributes: {step: step}}
- {target: my_project.rollout.rollout_group, role: trainer, group: true}    # within generate; calls rollout n times
- {target: my_project.rollout.rollout, role: trajectory}
```

## Several files

The shipped specs come first, then the files given with `--spec` or `AUTOTRACE_SPECS`, in order. An entry that names a
target of an earlier file refines the earlier entry, key by key. `enabled: false` switches the target off, and no glob
of another file switches the target on again. Within one file, a name may appear only once.
"""


def _description(struct: type[msgspec.Struct], key: str) -> str:
    """What ``key`` means, one or two sentences."""
    meta = model.meta(struct, key)
    return meta.description or ""


def _section(struct: type[msgspec.Struct], key: str) -> Iterator[str]:
    yield f"## `{key}`"
    yield ""
    yield f"{_description(struct, key)} Write {model.form(struct, key)}."
    yield ""
    yield from ("```yaml", f"{key}: {model.example(struct, key)}", "```", "")


def _table(struct: type[msgspec.Struct], key: str) -> Iterator[str]:
    yield from (f"| in `{key}` | meaning | example |", "|---|---|---|")
    for inner in model.types(struct):
        yield f"| `{inner}` | {_description(struct, inner)} | `{model.example(struct, inner)}` |"
    yield ""
