"""``autotrace-run python -m verl.trainer.main_ppo ...``: one real GRPO step, 4 prompts x n 2, and what MLflow has."""

from __future__ import annotations

import statistics
from collections import Counter
from typing import Any

import mlflow
import pytest
from main_ppo import MainPPO

from tests.sinks.mlflow_tokens import token_ids

TRACED = ("traced", "base_tool", "legacy")
V1 = ("traced", "base_tool")
FLOAT32 = 2.0**-23
"""What a number near 1 is rounded to in veRL's tensors."""
BFLOAT16 = 2.0**-8
NOISE = 0.05
"""How far the engine's log-probabilities are from the trainer's at most, on average over a call, where both compute in
bfloat16. Measured: 0.01 to 0.02. One token alone may be 0.13 away; rows that lie one token apart differ by several."""
TOOL = {"traced": "FunctionTool.call", "base_tool": "AddTool.execute", "legacy": "FunctionTool.call"}

pytestmark = pytest.mark.timeout(3600)  # the first test of the session waits for the runs


def trajectories(run: MainPPO) -> list[Any]:
    """The run's trajectory traces in MLflow."""
    return [trace for trace in run.traces if trace.info.tags["role"] == "trajectory"]


def role(span: Any) -> str:
    """What a span was recorded as."""
    return str(span.get_attribute("autotrace.role"))


def below(trace: Any, parent: Any) -> list[Any]:
    """Children of a span in the order they began."""
    children = [span for span in trace.data.spans if span.parent_id == parent.span_id]
    return sorted(children, key=lambda span: span.start_time_ns)


def root_of(trace: Any) -> Any:
    """The one span without a parent."""
    (root,) = [span for span in trace.data.spans if span.parent_id is None]
    return root


def reward_of(trace: Any) -> Any:
    """The feedback ``reward``."""
    (reward,) = [one for one in trace.info.assessments if one.name == "reward"]
    return reward.value


@pytest.mark.parametrize("name", [*TRACED, "plain"])
def test_the_run_ends_well(runs: dict[str, MainPPO], name: str) -> None:
    assert runs[name].returncode == 0
    assert len(runs[name].engine_calls) == 16, "the tiny model did not call its tool in every trajectory"


def test_the_run_is_the_same_without_autotrace(runs: dict[str, MainPPO], capsys: pytest.CaptureFixture[str]) -> None:
    traced, plain = runs["traced"], runs["plain"]
    assert traced.returncode == plain.returncode
    shapes = [[(sorted(row), type(row["score"])) for row in run.dump] for run in (traced, plain)]
    assert shapes[0] == shapes[1]
    questions = [Counter(row["input"] for row in run.dump) for run in (traced, plain)]
    assert sorted(questions[0].values()) == sorted(questions[1].values()) == [2, 2, 2, 2]
    with capsys.disabled():
        ratio = traced.seconds / plain.seconds
        print(f"\n  wall time traced {traced.seconds:.0f} s, without {plain.seconds:.0f} s, ratio {ratio:.2f}")


@pytest.mark.parametrize("name", TRACED)
def test_every_trajectory_is_one_trace(runs: dict[str, MainPPO], name: str) -> None:
    found = trajectories(runs[name])
    assert len(found) == 8
    assert len({trace.info.trace_id for trace in found}) == 8
    span_ids = [span.span_id for trace in found for span in trace.data.spans]
    assert len(set(span_ids)) == len(span_ids)
    assert {str(trace.info.state.value) for trace in found} == {"OK"}


@pytest.mark.parametrize("name", TRACED)
def test_the_calls_are_nested_as_they_happened(runs: dict[str, MainPPO], name: str) -> None:
    for trace in trajectories(runs[name]):
        root = root_of(trace)
        assert role(root) == "trajectory"
        agent, *rest = below(trace, root)
        assert (role(agent), agent.name) == ("agent", "ToolAgentLoop.run")
        assert "reward" in {role(span) for span in rest}
        steps = below(trace, agent)
        assert [role(step) for step in steps] == ["llm", "parser", "tool", "llm", "parser"]
        assert steps[2].name == "add", "the tool's name"
        assert TOOL[name] in [span.name for span in below(trace, steps[2])]
        for llm in (steps[0], steps[3]):
            assert llm.span_type == "CHAT_MODEL"
            (served,) = below(trace, llm)  # the server's side of the call, from its own process
            assert role(served) == "engine"
            assert served.get_attribute("autotrace.process") != llm.get_attribute("autotrace.process")


@pytest.mark.parametrize("name", TRACED)
def test_the_engines_request_is_below_the_call_that_made_it(runs: dict[str, MainPPO], name: str) -> None:
    for trace in trajectories(runs[name]):
        for llm in (span for span in trace.data.spans if role(span) == "llm"):
            (served,) = below(trace, llm)
            (request,) = below(trace, served)
            assert (role(request), request.name) == ("engine", "AsyncLLM.generate")
            for count in ("autotrace.prompt_tokens", "autotrace.response_tokens"):
                assert request.get_attribute(count) == served.get_attribute(count) == llm.get_attribute(count) > 0
            assert request.get_attribute("request_id") == served.get_attribute("request_id")
            assert request.get_attribute("request_id") != llm.get_attribute("request_id"), "veRL: fresh for every turn"
            parts = [float(request.get_attribute(part)) for part in ("dispatch_s", "queue_s", "prefill_s", "decode_s")]
            assert all(part >= 0 for part in parts), "log stats are off, as veRL has them"
            assert sum(parts) <= (request.end_time_ns - request.start_time_ns) / 1e9 + 0.05


@pytest.mark.parametrize("name", TRACED)
def test_every_span_lies_within_its_parent(runs: dict[str, MainPPO], name: str) -> None:
    for trace in trajectories(runs[name]):
        spans = {span.span_id: span for span in trace.data.spans}
        for span in spans.values():
            assert span.start_time_ns <= span.end_time_ns
            if span.parent_id is not None:
                parent = spans[span.parent_id]
                assert parent.start_time_ns <= span.start_time_ns
                assert span.end_time_ns <= parent.end_time_ns


@pytest.mark.parametrize("name", TRACED)
def test_token_ids_are_those_the_engine_read_and_wrote(runs: dict[str, MainPPO], name: str) -> None:
    recorded = []
    for trace in trajectories(runs[name]):
        llm = {span.span_id: span for span in trace.data.spans if role(span) == "llm"}
        recorded += token_ids({span_id: span.attributes for span_id, span in llm.items()}).values()
    assert len(recorded) == 16
    seen = [(call.prompt_ids, call.output_ids) for call in runs[name].engine_calls]
    assert sorted(recorded) == sorted(seen)


@pytest.mark.parametrize("name", TRACED)
def test_turns_are_readable(runs: dict[str, MainPPO], name: str) -> None:
    for trace in trajectories(runs[name]):
        turns = sorted((s for s in trace.data.spans if role(s) == "llm"), key=lambda span: span.start_time_ns)
        first, second = (str(turn.inputs["messages"]) for turn in turns)
        assert "What is" in first
        assert "What is" not in second, "a turn shows its new messages"
        assert "####" in str(turns[1].outputs["choices"])
        usage = turns[0].get_attribute("mlflow.chat.tokenUsage")
        assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"] > 0


@pytest.mark.parametrize("name", V1)
def test_rewards_are_those_of_verls_dump(runs: dict[str, MainPPO], name: str) -> None:
    dumped = {row["uid"]: row["score"] for row in runs[name].dump}
    tags = [(trace.info.tags, reward_of(trace)) for trace in trajectories(runs[name])]
    recorded = {f"{tag['uid']}_{tag['rollout_n']}_0": reward for tag, reward in tags}
    assert recorded.keys() == dumped.keys()
    for key, score in dumped.items():
        assert recorded[key] == pytest.approx(score, rel=1e-6)  # veRL's went through a float32 tensor


def test_rewards_are_those_of_verls_dump_on_the_legacy_path(runs: dict[str, MainPPO]) -> None:
    dumped = sorted(row["score"] for row in runs["legacy"].dump)  # its rows have no key; no two scores are equal
    recorded = sorted(reward_of(trace) for trace in trajectories(runs["legacy"]))
    assert recorded == pytest.approx(dumped, rel=1e-6)


@pytest.mark.parametrize("name", TRACED)
def test_advantages_are_what_grpo_makes_of_the_rewards(runs: dict[str, MainPPO], name: str) -> None:
    groups: dict[str, list[tuple[float, float]]] = {}
    for trace in trajectories(runs[name]):
        said = {one.name: one.value for one in trace.info.assessments if one.feedback is not None}
        groups.setdefault(trace.info.tags["uid"], []).append((said["reward"], said["advantage"]))
        assert said["trained_in_step"] == 1
        assert trace.info.tags["trained_in_step"] == "1"
    for members in groups.values():
        rewards = [reward for reward, _ in members]
        spread = statistics.stdev(rewards)
        near = 1e-4 + 4 * FLOAT32 * max(map(abs, rewards)) / spread  # of scores that hardly differ few digits are left
        for reward, advantage in members:
            assert advantage == pytest.approx((reward - statistics.mean(rewards)) / (spread + 1e-6), abs=near)


def near(metric: str) -> dict[str, float]:
    """Of V1's means over the trainer's own values: they are bfloat16 on this machine, and veRL sums them as such; an
    error of a mean of 5 is one of 2 % of its exponential."""
    own = metric == "actor/entropy" or "training_" in metric or "log_ppl" in metric or "ppl_ratio" in metric
    return (
        dict.fromkeys(("rel", "abs"), 5 * BFLOAT16)
        if own and "rollout_log" not in metric
        else {"rel": 1e-6, "abs": 1e-6}
    )


@pytest.mark.parametrize("name", [*TRACED, "warm"])
def test_token_facts_make_the_metrics_that_verl_logs(runs: dict[str, MainPPO], name: str) -> None:
    mlflow.set_tracking_uri(runs[name].tracking_uri)
    (run,) = mlflow.search_runs(search_all_experiments=True, output_format="list")
    logged = run.data.metrics
    rollouts = runs[name].recorded()
    facts = [one.facts["token_facts"] for one in rollouts]
    tokens = sum(one["tokens"] for one in facts)

    def mean(what: str) -> float:
        return sum(one[what] * one["tokens"] for one in facts) / tokens

    expected = {
        "training/rollout_probs_diff_mean": mean("probs_diff_mean"),
        "training/rollout_probs_diff_max": max(one["probs_diff_max"] for one in facts),
        "actor/entropy": mean("entropy"),
        "rollout_corr/kl": -mean("log_ratio_mean"),
        "rollout_corr/k3_kl": mean("k3_mean"),
        "rollout_corr/training_log_ppl": -statistics.mean(one["old_log_prob_mean"] for one in facts),
        "rollout_corr/rollout_log_ppl": -statistics.mean(one["rollout_log_prob_mean"] for one in facts),
    }
    for metric, value in expected.items():
        assert logged[metric] == pytest.approx(value, **near(metric)), metric
    assert mean("probs_diff_mean") < NOISE, "engine and trainer are the same model"


def test_the_steps_metrics_are_those_that_verl_logs_and_those_that_follow_from_the_rows(
    runs: dict[str, MainPPO],
) -> None:
    (facts,) = runs["warm"].step_facts().values()
    mlflow.set_tracking_uri(runs["warm"].tracking_uri)
    (run,) = mlflow.search_runs(search_all_experiments=True, output_format="list")
    logged, computed = run.data.metrics, facts["token_facts"]
    assert facts["metrics"] == {name: logged[name] for name in facts["metrics"]}
    assert {"actor/entropy", "response_length/mean", "critic/score/mean", "timing_s/step"} <= facts["metrics"].keys()
    assert computed.pop("left") == 0 and len(computed) == 1
    for name, value in computed.items():
        assert logged[name] == pytest.approx(value, **near(name)), name
    lengths = [sum(call.response_tokens or 0 for call in one.llm_spans) for one in runs["warm"].recorded()]
    assert logged["response_length/mean"] >= statistics.mean(lengths), "and what tools said"


@pytest.mark.parametrize("name", [*TRACED, "warm"])
def test_each_token_of_the_model_has_the_trainers_log_probability(runs: dict[str, MainPPO], name: str) -> None:
    for one in runs[name].recorded():
        lengths = [len(call.response_ids or ()) for call in one.llm_spans]
        assert [len(call.old_logprobs or ()) for call in one.llm_spans] == lengths
        assert [len(call.entropy or ()) for call in one.llm_spans] == lengths
        apart = [
            [abs(old - engine) for old, engine in zip(call.old_logprobs, call.trained_logprobs, strict=True)]
            for call in one.llm_spans
        ]
        assert max(statistics.mean(call) for call in apart) < NOISE
        largest = pytest.approx(max(map(max, apart)), abs=2 * BFLOAT16)  # the engine's are kept as float16
        assert one.facts["mismatch_max"] == largest


@pytest.mark.parametrize("name", TRACED)
def test_each_rollout_of_a_group_is_there_once(runs: dict[str, MainPPO], name: str) -> None:
    tags = [trace.info.tags for trace in trajectories(runs[name])]
    groups: dict[str, list[str]] = {}
    for tag in tags:
        groups.setdefault(tag["uid"], []).append(tag["rollout_n"])
        assert tag["validate"] == "False"
        assert tag["data_source"] == "toy/add"
        assert tag["experiment_name"] == name
    assert len(groups) == 4
    assert all(sorted(rollouts) == ["0", "1"] for rollouts in groups.values())
    indexes = {tag["uid"]: tag["sample_index"] for tag in tags}
    assert len(set(indexes.values())) == 4
    assert set(indexes.values()) <= {str(index) for index in range(8)}


@pytest.mark.parametrize("name", TRACED)
def test_a_step_is_found_by_its_tag(runs: dict[str, MainPPO], name: str) -> None:
    found = runs[name].search(filter_string="tags.step = '1'")
    assert {trace.info.trace_id for trace in found} == {trace.info.trace_id for trace in trajectories(runs[name])}
    assert runs[name].search(filter_string="tags.step = '2'") == []


@pytest.mark.parametrize("name", TRACED)
def test_the_traces_of_verls_own_mlflow_run_are_the_trajectories(runs: dict[str, MainPPO], name: str) -> None:
    mlflow.set_tracking_uri(runs[name].tracking_uri)
    (run,) = mlflow.search_runs(search_all_experiments=True, output_format="list")
    assert run.info.run_name == name
    assert "critic/score/mean" in run.data.metrics
    found = {trace.info.trace_id for trace in runs[name].search(run_id=run.info.run_id)}
    assert found == {trace.info.trace_id for trace in trajectories(runs[name])}


@pytest.mark.parametrize("name", V1)
def test_a_trainer_step_is_a_trace_of_its_own(runs: dict[str, MainPPO], name: str) -> None:
    trainers = [trace for trace in runs[name].traces if trace.info.tags["role"] == "trainer"]
    (step,) = [trace for trace in trainers if root_of(trace).name == "PPOTrainer.step"]
    assert step.info.tags["trainer_step"] == "1"
    assert {span.name for span in below(step, root_of(step))} == {"AgentLoopWorkerTQ.generate_sequences"}


@pytest.mark.parametrize("name", TRACED)
def test_the_custom_reward_function_is_in_the_trajectory(runs: dict[str, MainPPO], name: str) -> None:
    for trace in trajectories(runs[name]):
        (scored,) = [span for span in trace.data.spans if span.name == "compute_score"]
        assert scored.outputs["score"] == pytest.approx(reward_of(trace), rel=1e-6)
        assert scored.inputs["data_source"] == "toy/add"


def test_a_base_tool_lives_and_dies_in_its_trajectory(runs: dict[str, MainPPO]) -> None:
    for trace in trajectories(runs["base_tool"]):
        (call,) = [span for span in trace.data.spans if span.name == "add"]
        create, execute, release = below(trace, call)
        names = [span.name for span in (create, execute, release)]
        assert names == ["AddTool.create", "AddTool.execute", "AddTool.release"]
        assert create.inputs["create_kwargs"]["ground_truth"] == execute.outputs[0]["text"]
        assert [span.name for span in below(trace, execute)] == ["AddTool.calc_reward"]
        assert "agent_data" not in execute.inputs
