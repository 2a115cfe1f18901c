"""Two veRL runs that differ in planted causes: ``make diff`` plays them and asks ``autotrace diff`` for each cause.

``python -m tests.findings.two_runs [CAUSE ...]`` plays and judges. With ``play`` it is the traced program of one run:
veRL's worker, tool agent, tools and reward loop, and functions of its trainer, over the scripted engine of the corpus.
A cause in a step is planted in a step of its own, a setting in a run of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autotrace.ship.readers import of_run
from autotrace.trajectory.divergence import shared

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
GROUPS, N, SEED = 9, 4, 42


@dataclass(frozen=True)
class Cause:
    """A planted cause, and the first difference that has to be named."""

    stage: str
    words: str = ""
    """Within the words and values of the difference."""
    turn: int | None = None
    part: str = ""
    """``prompt`` or ``answer``: the token is where the engine saw both rollouts part there."""


IN_STEPS = {
    "template": Cause("prompt", "the prompt", 1, "prompt"),
    "tool answer": Cause("tool", "the result of tool call 1", 1),
    "order": Cause("data", "9 of 9 prompts"),
    "weights": Cause("weights", "equal tokens before it differ", 2, "answer"),
    "sampling": Cause("sampling", "temperature", 1),
    "reward": Cause("reward", "reward"),
    "stop token": Cause("token", "the answer", 2, "answer"),
    "truncation": Cause("token", "the answer", 2, "answer"),
    "dropped rollouts": Cause("training", "trained_in_step"),
    "off-policy lag": Cause("weights", "version of the weights", 1),
}
"""Cause -> what is named; each in the step with its number."""
SETTINGS: dict[str, tuple[Cause, list[str]]] = {
    "seed": (Cause("configuration", "rollout.seed", 2, "answer"), ["actor_rollout_ref.rollout.seed=7"]),
    "configuration without effect": (Cause("configuration", "trainer.test_freq"), ["trainer.test_freq=17"]),
    "versions": (Cause("configuration", "versions.sglang"), []),
    "none": (Cause(""), []),
}
"""Cause -> what is named, and the words of the command."""
CAUSES = {**IN_STEPS, **{name: cause for name, (cause, _) in SETTINGS.items()}}
CHANGES = {
    "tools.py": ("tool answer", "else str(2 * number)", 'else f"It is {2 * number}."'),
    "reward.py": ("reward", "else right, ", "else 0.5 + right, "),
}
"""File of the agent -> the cause that changes the file, the text before and after."""


# -- the traced program ------------------------------------------------------------------------------------------------


def replies(cause: str, seed: int) -> Any:
    """What the engine says: the same for a question and a sibling, but for the cause."""
    from tests.findings.scenarios import Reply, Rollout, call

    def reply(rollout: Rollout, turn: int) -> Reply:
        number = rollout.question * N + rollout.sibling
        if turn == 0:
            return {
                "text": f"This is rollout {number}, and a tool shall double it. "
                + call("double", number=rollout.question)
            }
        right = (rollout.sibling + rollout.question) % 2
        luck = "" if seed == SEED else f" after {seed} thoughts"
        said: Reply = {"text": f"After the tool rollout {number} says{luck} #### {2 * rollout.question + 1 - right}"}
        if rollout.planted and cause in ("weights", "sampling"):
            said["text"] += " or so"
        elif rollout.planted and cause == "stop token":
            said["eos"] = False
        elif rollout.planted and cause == "truncation":
            said |= {"text": said["text"][:20], "eos": False, "stop": "length"}
        return said

    return reply


async def play(which: str, out: Path, overrides: Sequence[str]) -> None:
    """One run: ``base`` and ``planted`` have all steps, a setting has the first step alone."""
    said = []
    for step, cause in enumerate(IN_STEPS if which in ("base", "planted") else ["template"], 1):
        said += await _step(step, cause if which == "planted" else "", overrides)
    out.write_text(json.dumps(said))


async def _step(step: int, cause: str, overrides: Sequence[str]) -> list[Any]:
    """One step: what the engine was asked and said in each rollout."""
    import in_process
    from verl.tools.function_tool import FUNCTION_TOOL_REGISTRY

    from tests.findings import loops, trainers
    from tests.findings.engine import Engine
    from tests.findings.policy import Policy
    from tests.findings.scenarios import Scenario, Training

    folder = Path(cause or "none", "model").absolute()
    if not folder.exists():
        folder.mkdir(parents=True)
        in_process.make_model(folder)
    tokenizer = in_process.make_model(folder)
    if cause == "template":
        tokenizer.chat_template = in_process.CHAT_TEMPLATE.replace("system\ntools:", "system\nTools:")
        tokenizer.save_pretrained(folder)
    for name, (own, before, after) in CHANGES.items():
        text = (HERE / name).read_text()
        assert before in text
        (folder / name).write_text(text.replace(before, after) if cause == own else text)
    config = in_process.configuration(
        folder,
        [
            f"actor_rollout_ref.rollout.multi_turn.function_tool_path={folder / 'tools.py'}",
            f"reward.custom_reward_function.path={folder / 'reward.py'}",
            "reward.custom_reward_function.name=compute_score",
            f"actor_rollout_ref.rollout.n={N}",
            "algorithm.adv_estimator=grpo",
            "trainer.use_v1=False",
            *overrides,
        ],
    )
    FUNCTION_TOOL_REGISTRY.clear()  # each step loads the tools of its own folder
    training = Training()
    if cause == "weights":
        training = Training(engine=lambda rollout, turn: Policy(noise=1.0 * rollout.planted, seed=7))
    elif cause == "dropped rollouts":
        training = Training(updates=lambda planted: [[row for row, one in enumerate(planted) if not one]])
    seed = int(config.actor_rollout_ref.rollout.seed)
    scenario = Scenario(
        cause, "planted", replies(cause, seed), groups=GROUPS, n=N, share=0.34, by_group=True, agent="asks",
        training=training, weights=lambda at: at - 2 if cause == "off-policy lag" else at - 1,
    )  # fmt: skip
    loops.ENGINE = engine = Engine(tokenizer, config, scenario, step)
    agents = in_process.worker(config, engine)
    begin = GROUPS * (step + (cause == "order"))
    prompts = [
        {"question": f"What is twice the number {place}?", "answer": str(2 * place), "index": place,
         "uid": str(uuid.uuid4()), "agent_name": "asks", "data_source": "toy"}
        for place in range(begin, begin + GROUPS)
    ]  # fmt: skip
    batch = await in_process.rollout(agents, prompts, N, step)
    engine.numbered = {one.question * N + one.sibling: one for one in engine.known.values()}
    trainers.classic(config, engine, batch, [str(one["uid"]) for one in prompts for _ in range(N)], step)
    return [*engine.said.values()]


# -- what diff says ----------------------------------------------------------------------------------------------------


@dataclass
class Played:
    """A run: its folder, and what the engine was asked and said in each rollout."""

    run: Path
    said: list[list[tuple[list[int], list[int]]]]


def played(which: str, folder: Path) -> Played:
    """Play a run under ``autotrace-run``."""
    folder.mkdir(parents=True)
    launch = [sys.executable, "-m", "autotrace.launch.main", "--run-dir", str(folder / "runs"), "--backend", "jsonl"]
    program = [
        sys.executable,
        str(HERE / "two_runs.py"),
        "play",
        which,
        *(SETTINGS[which][1] if which in SETTINGS else []),
    ]
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("AUTOTRACE", "MLFLOW"))}
    (installed := folder / "sglang-0.5.23.dist-info").mkdir()
    (installed / "METADATA").write_text(f"Name: sglang\nVersion: 0.5.{9 if which == 'versions' else 23}\n")
    environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), str(folder)])
    with (folder / "log").open("wb") as log:
        done = subprocess.run(
            [*launch, "--logprobs", "1", "--drain-timeout", "600", *program], timeout=900, cwd=folder,
            env=environ, stdout=log, stderr=log, check=False,
        )  # fmt: skip
    assert done.returncode == 0, (folder / "log").read_text(errors="replace")[-3000:]
    (run,) = (folder / "runs").glob("*/run.json")
    return Played(run.parent, json.loads((folder / "said.json").read_text()))


def judge(cause: str, base: Played, run: Played) -> str:
    """What is wrong with the answer of ``autotrace diff``; empty: nothing."""
    planted, step = CAUSES[cause], [*IN_STEPS].index(cause) + 1 if cause in IN_STEPS else 1
    at = f"@{step}" if cause in IN_STEPS else ""
    words = [sys.executable, "-m", "autotrace", "diff", f"{base.run}{at}", f"{run.run}{at}", "--json"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=600, check=False)
    if done.returncode:
        return done.stderr
    answer = json.loads(done.stdout)
    found = answer["differences"]
    if not planted.stage:
        told = [*found, *answer["metrics"], *(one for one in answer["changed_most"] if one["change"])]
        return f"differences of equal runs: {told}" if told else ""
    if not found or found[0]["stage"] != planted.stage:
        return f"the first difference is {found[:1]}"
    if planted.words not in " ".join(map(str, found[0].values())):
        return f"not named in {found[0]}"
    if cause in SETTINGS and not planted.part:
        return f"it has no effect, and yet: {found[1:]}" if found[1:] else ""
    place = found[0] if cause in IN_STEPS else found[1]
    if (place["step"], place["turn"]) != (step, planted.turn) or len(place["traces"]) != 2:
        return f"at another place: {place}"
    return _token(place, planted, base, run) if planted.part else ""


def _token(place: dict[str, Any], planted: Cause, base: Played, run: Played) -> str:
    """Compare the token with the first token at which the engine saw the two rollouts part."""
    calls = []
    for one, trace in zip((base, run), place["traces"], strict=True):
        with contextlib.closing(of_run(one.run)) as reader:
            spans = reader.load(trace).llm_spans
        recorded = [[span.prompt_ids, span.response_ids] for span in spans]
        if recorded not in [[list(call) for call in said] for said in one.said]:
            return f"the engine knows no such rollout as {trace}"
        calls.append(recorded)
    for turn, both in enumerate(zip(*calls, strict=False), 1):
        for part, here, there in zip(("prompt", "answer"), *both, strict=True):
            if here != there:
                fork = shared(here, there)
                right = (place["turn"], planted.part, place["token"]) == (turn, part, fork)
                return "" if right else f"at {place['turn']}, {place['token']}, not in the {part} of {turn} at {fork}"
    return "the engine saw no difference"


def judged(causes: Sequence[str], folder: Path) -> dict[str, str]:
    """Play the causes, two runs at a time; cause -> what is wrong."""
    of = {cause: "planted" if cause in IN_STEPS else cause for cause in causes}
    names = ["base", *dict.fromkeys(of.values())]
    with ThreadPoolExecutor(2) as pool:
        runs = dict(
            zip(names, pool.map(lambda name: played(name, folder / name.replace(" ", "_")), names), strict=True)
        )
        return dict(
            zip(causes, pool.map(lambda cause: judge(cause, runs["base"], runs[of[cause]]), causes), strict=True)
        )


def main() -> int:
    """``make diff``: play and judge; 1 if any cause is not named."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as made:
        verdicts = judged(sys.argv[1:] or [*CAUSES], Path(made))
    for cause, problem in verdicts.items():
        print(f"{'  ! ' if problem else '    '} {cause:30} {problem or 'named, with its place'}")
    print(f"{len(verdicts)} causes planted, {sum(not problem for problem in verdicts.values())} named")
    return int(any(verdicts.values()))


if __name__ == "__main__":
    if sys.argv[1:2] == ["play"]:
        sys.path[:0] = [str(ROOT / "examples/verl_loop"), str(ROOT / "tests/verl"), str(ROOT)]
        logging.disable(logging.CRITICAL)
        asyncio.run(play(sys.argv[2], Path("said.json"), sys.argv[3:]))
    else:
        sys.exit(main())
