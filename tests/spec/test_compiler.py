"""Spec files become one plan: spellings, refinement, the shipped specs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from autotrace.config.plan import Plan, Settings, Target
from autotrace.spec import compiler, model
from autotrace.spec.compiler import compile_plan, shipped_specs
from autotrace.spec.document import SpecError
from tools import spec_reference

EVERYTHING = """
- target:
    - my.new.Agent.run
    - my.old:Agent.run
  versions: "verl>=0.5,<2"
  subclasses: true
  role: llm
  label: the agent
  capture: {include: [messages, result], exclude: [result.images]}
  tokens: {prompt: prompt_ids, response: [result.token_ids, result], logprobs: result.log_probs, mask: result.mask}
  attributes: {weight_version: result.extra_fields.global_steps, request_id: [request_id, kwargs.request_id]}
  facts: {reward: result.-1.reward_score}
  batch: {group: batch.uid, sample: [batch.index, batch.id]}
  final: [item.finished, item.done]
  mode: count
  optional: true
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spec files are written into an empty working folder."""
    monkeypatch.chdir(tmp_path)


def compiled(*texts: str) -> tuple[Target, ...]:
    """The targets of files with these texts, without the shipped specs."""
    for number, text in enumerate(texts):
        Path(f"{number}.yaml").write_text(text)
    return compile_plan([f"{number}.yaml" for number in range(len(texts))], shipped=False).targets


def test_a_name_is_enough() -> None:
    assert compiled("- my.agents.Agent.run\n") == (
        Target(key="my.agents.Agent.run", names=("my.agents.Agent.run",), where="0.yaml:1"),
    )


def test_true_and_false_are_values_in_quotes_or_not() -> None:
    (target,) = compiled(
        "- target: a.b.f\n  attributes: {validate: true, done: [x.y, false], failed: 'when(z, true)'}\n"
    )
    assert target.attributes == {"validate": ("true",), "done": ("x.y", "false"), "failed": ("when(z, true)",)}


def test_every_key_arrives_in_the_plan() -> None:
    (target,) = compiled(EVERYTHING)
    assert target == Target(
        key="my.new.Agent.run",
        names=("my.new.Agent.run", "my.old:Agent.run"),
        where="0.yaml:2",
        versions="verl>=0.5,<2",
        subclasses=True,
        role="llm",
        mode="count",
        optional=True,
        label="the agent",
        include=("messages", "result"),
        exclude=("result.images",),
        tokens={
            "prompt": ("prompt_ids",),
            "response": ("result.token_ids", "result"),
            "logprobs": ("result.log_probs",),
            "mask": ("result.mask",),
        },
        attributes={
            "weight_version": ("result.extra_fields.global_steps",),
            "request_id": ("request_id", "kwargs.request_id"),
        },
        facts={"reward": ("result.-1.reward_score",)},
        batch={"group": ("batch.uid",), "sample": ("batch.index", "batch.id")},
        final=("item.finished", "item.done"),
        places={
            "capture.include": "0.yaml:9",
            "tokens.prompt": "0.yaml:10",
            "tokens.response": "0.yaml:10",
            "tokens.logprobs": "0.yaml:10",
            "tokens.mask": "0.yaml:10",
            "attributes.weight_version": "0.yaml:11",
            "attributes.request_id": "0.yaml:11",
            "facts.reward": "0.yaml:12",
        },
    )


def test_where_a_path_stands_is_known_after_an_entry_was_refined() -> None:
    first = "- target: a.b.f\n  facts: {reward: result.x}\n  id: result.id\n"
    (refined,) = compiled(first, "- target: a.b.f\n  facts:\n    score: result.y\n    cost: result.z\n")
    assert refined.places == {"id": "0.yaml:3", "facts.score": "1.yaml:3", "facts.cost": "1.yaml:4"}
    assert not any(target.places for target in compile_plan().targets)


def test_globs_leave_names_out() -> None:
    (target,) = compiled("- {target: my.agents.Agent.*, exclude: [my.agents.Agent.score, 'my.agents.*.close']}\n")
    assert (target.names, target.without) == (("my.agents.Agent.*",), ("my.agents.Agent.score", "my.agents.*.close"))
    assert compiled("- my.**\n")[0].names == ("my.**",)


def test_anchors_are_plain_yaml() -> None:
    first, second = compiled("- {target: a.b.c, capture: &no {include: []}}\n- {target: a.b.d, capture: *no}\n")
    assert first.include == second.include == ()


def test_a_call_is_a_batch_or_returns_its_chains_as_the_later_file_says() -> None:
    batch, returns = "- target: a.b.f\n  rows: inputs\n", "- target: a.b.f\n  chains: result.rows\n"
    (one,) = compiled(batch, returns)
    assert (one.rows, one.chains) == ((), ("result.rows",))
    (other,) = compiled(returns, batch)
    assert (other.rows, other.chains) == (("inputs",), ())


def test_a_later_file_refines_an_earlier_one() -> None:
    first = "- {target: [a.new.f, a.old.f], role: llm, label: old, attributes: {x: y}}\n- a.b.g\n"
    refined, other = compiled(first, "- target: a.old.f\n  label: new\n  capture: {exclude: [image]}\n")
    assert refined.key == "a.new.f"
    assert refined.names == ("a.new.f", "a.old.f")
    assert (refined.role, refined.label, refined.exclude) == ("llm", "new", ("image",))
    assert refined.attributes == {"x": ("y",)}
    assert refined.where == "1.yaml:1"
    assert other.names == ("a.b.g",)


def test_a_name_alone_changes_nothing_of_an_earlier_entry() -> None:
    (target,) = compiled("- {target: a.b.c, role: llm}\n", "- a.b.c\n")
    assert target.role == "llm"


def test_new_names_of_a_refinement_are_tried_first() -> None:
    (target,) = compiled("- a.b.c\n", "- target: [mine.c, a.b.c]\n")
    assert (target.key, target.names) == ("a.b.c", ("mine.c", "a.b.c"))


def test_an_entry_refines_one_target_only() -> None:
    with pytest.raises(
        SpecError, match=r"names two earlier targets, `a\.b\.c` \(0\.yaml:1\) and `a\.b\.d` \(0\.yaml:2\)"
    ):
        compiled("- a.b.c\n- a.b.d\n", "- target: [a.b.c, a.b.d]\n")


def test_a_later_file_switches_a_target_off_and_another_on_again() -> None:
    first = "- {target: [a.b.c, a.b:d], role: llm}\n- a.**\n"
    (glob,) = compiled(first, "- {target: 'a.b:d', enabled: false}\n")
    assert glob.names == ("a.**",) and glob.without == ("a.b.c", "a.b.d"), "a glob does not bring it back"
    target, glob = compiled(first, "- {target: a.b.c, enabled: false}\n", "- {target: a.b.c, enabled: true}\n")
    assert target.role == "llm" and glob.without == ()


def test_a_shipped_target_is_switched_off_by_any_of_its_names() -> None:
    Path("mine.yaml").write_text("- target: verl.tools.base_tool.BaseTool.release\n  enabled: false\n")
    names = {name for target in compile_plan(["mine.yaml"]).targets for name in target.names}
    assert "verl.tools.base_tool.BaseTool.release" not in names and "verl.tools.base_tool.BaseTool.execute" in names


def test_switching_off_what_is_not_there_is_a_mistake() -> None:
    with pytest.raises(SpecError) as caught:
        compiled("- a.b.c\n", "- {target: a.b.d, enabled: false}\n")
    assert str(caught.value) == (
        "1.yaml:1:12: `a.b.d`: no earlier file has this target, so there is nothing to switch off; "
        "did you mean `a.b.c`?"
    )
    assert compiled("- {target: a.b.d, role: tool, enabled: false}\n") == (), "an entry of one's own is left out"


def test_an_empty_file_is_no_mistake() -> None:
    assert compiled("# nothing yet\n") == ()


def test_the_digest_is_of_the_content() -> None:
    Path("one.yaml").write_text("- a.b.c\n")
    first = compile_plan(["one.yaml"], shipped=False)
    assert first.digest == compile_plan(["one.yaml"], shipped=False).digest
    assert len(first.digest) == 64
    assert first.digest != compile_plan(["one.yaml"], shipped=False, settings=Settings(content="none")).digest
    Path("one.yaml").write_text("- a.b.d\n")
    assert first.digest != compile_plan(["one.yaml"], shipped=False).digest


def test_the_shipped_lists_compile_and_survive_the_journey() -> None:
    plan = compile_plan()
    assert {name.split(".")[0] for target in plan.targets for name in target.names} >= {"verl", "vllm", "sglang"}
    assert Plan.loads(plan.dumps()) == plan
    assert {path.name for path in shipped_specs()} >= {"sglang.yaml", "verl.yaml", "vllm.yaml"}


def test_the_shipped_lists_are_compiled_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``compiled.json`` stands for the lists as long as nobody changes a list, the compiler or the file."""
    lists = tmp_path / "lists"
    lists.mkdir()
    for path in shipped_specs():
        (lists / path.name).write_bytes(path.read_bytes())
    monkeypatch.setattr(compiler, "_LISTS", lists)
    made = compile_plan().targets
    compiler.write_shipped()
    written = lists / compiler.COMPILED
    assert [path.name for path in lists.iterdir() if path.suffix != ".yaml"] == [written.name]

    with monkeypatch.context() as patch:
        patch.setattr(compiler, "_compile_shipped", lambda: ())
        assert compile_plan().targets == made
        with (lists / "verl.yaml").open("a") as changed:
            changed.write("- verl.mine.f\n")
        assert compile_plan().targets == (), "another list"
    compiler.write_shipped()
    assert "verl.mine.f" in {name for target in compile_plan().targets for name in target.names}
    for damaged in (b"", written.read_bytes()[:-9], b"[]"):
        written.write_bytes(damaged)
        assert len(compile_plan().targets) == len(made) + 1
        compiler.write_shipped()
        assert written.read_bytes() not in (b"", damaged)


def test_shipped_targets_say_where_they_stand() -> None:
    lists = {f"patch_specs/{path.name}" for path in shipped_specs()}
    assert {target.where.rpartition(":")[0] for target in compile_plan().targets} == lists


def test_the_reference_names_every_key() -> None:
    entry = json.loads(spec_reference.json_schema())["$defs"]["Entry"]
    inside = {"capture": model.Capture, "tokens": model.Tokens, "batch": model.Batch, "of": model.Key}
    keys = []
    for key in entry["properties"]:
        keys += [key, *(f"{key}.{inner}" for inner in model.types(inside[key]))] if key in inside else [key]
    assert list(model.texts()) == keys
    assert all(all(text) for text in model.texts().values())
    assert entry["required"] == ["target"]
    assert entry["additionalProperties"] is False


def test_the_examples_of_the_reference_are_valid() -> None:
    for key in model.types(model.Entry):
        target = "" if key == "target" else f"  target: my.agents.{'*' if key == 'exclude' else 'run'}\n"
        earlier = ["- my.agents.run\n"] if key == "enabled" else []
        compiled(*earlier, f"- {key}: {model.texts()[key].example}\n{target}")
