"""What is generated from the model: the JSON Schema for editors and the reference for readers (``make pages``)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

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
    return "\n".join([*lines, *_PATHS, "", TRACES.read_text(encoding="utf-8").rstrip("\n")])


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
| `result` | what was returned; of a generator its `final` item, or all items put together; of a `with` what it binds |
| `item` | what a generator just yielded (only in `final`) |

and goes on with attributes, keys and indexes, all joined by dots: `result.outputs.-1.token_ids`. Arguments that arrive
through `**kwargs` are known by their own names. What is not there is absent, never an error;
if your path was absent in every call, `autotrace status` and the last line of the run say so. A path is read with
`getattr`, keys and `get`: a property, a `__getattr__` or a `get` of the object's class runs, in the thread of the call.
Name none that computes or asks a server. Of a list of paths the
first that is present counts, so one entry can serve several releases of a library.

`*` stands for all items: `result.choices.0.logprobs.content.*.logprob` is a list, of a mapping one by its keys. Numbers
are computed with `+ - * / // %`, `sum(...)` of a list or tensor, an index in brackets, a choice with `A if B else C`
(without `else`: else absent), the opposite with `not`, sameness with `==`: `result.advantages[i - n]`,
`i // self.num_generations`, `not self.model.training`, `sum(result.token_rewards)`, `batch.phase == 'eval'`. What is no
plain number is absent.

## Batches, and trajectories by their id

A trainer that generates a batch at once has no call for each rollout. `rows` makes one for each row:

```yaml
- target: my_project.trainer.Trainer.generate_and_score
  role: trajectory
  rows: inputs
  attributes: {step: self.step, uid: i // self.group_size, rollout_n: i % self.group_size}
  facts: {reward: "result.rewards[i]"}
- target: my_project.trainer.Trainer.generate       # called by the above, with all rows or with some of them
  role: llm
  rows: prompts
  tokens: {prompt: row, response: "result[i]"}
```

A `uid` that is a number counts within its batch. Inside of a batch, rows go to the trajectories of the batch: by number
if there are as many, else by the object that the row is, else by the tokens that its prompt begins with; what fits none
is counted. Arrays and tensors are read where they lie in the CPU's memory, never elsewhere.

An agent that branches may return a list: the rows that the trainer makes of its trajectory, one for each
[chain](branches.md). `chains` names that list:

```yaml
- target: my_project.agent.Agent.run
  role: trajectory
  chains: result.rows
  tokens: {prompt: row.prompt_ids, response: row.response_ids, mask: row.response_mask}
  facts: {reward: row.reward, num_turns: result.num_turns}
```

Each row is recorded below the call when that ends. A path that begins with `row`, `i` or `n` is about the row, so each
row has a reward of its own. Any other path is about the whole call, as `num_turns` here.

A call that is made outside of the context of its trajectory says which it is `of`, by the `id` that some call inside of
that trajectory gives:

```yaml
- {target: my_project.rollout.Rollout.start, role: trajectory, id: self.id}
- {target: my_project.server.Handler.complete, role: llm, of: request.session_id}
- {target: my_project.scores.score_group, role: reward, rows: states, of: row.rollout_id, facts: {reward: row.reward}}
```

A trajectory says itself which step and which group it is of, or a call of role `trainer` around it does: the `step`,
`validate`, `project_name`, `experiment_name`, `uid`, `sample_index` and `data_source` of that call are the
trajectory's where it has none. `group` is for a call that makes the rollouts of one prompt:

```yaml
- {target: my_project.trainer.Trainer.generate, role: trainer, attributes: {step: step}}
- {target: my_project.rollout.rollout_group, role: trainer, group: true}    # within generate; calls rollout n times
- {target: my_project.rollout.rollout, role: trajectory}
```

## Several files

The shipped specs come first, then the files given with `--spec` or `AUTOTRACE_SPECS`, in order. An entry that names a
target of an earlier file refines it: the keys it gives replace the earlier ones. `enabled: false` switches it off, and
no glob of another file brings it back. Within one file a name may stand only once.
""".splitlines()


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
