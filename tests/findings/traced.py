"""Runs of the public set of faults by agents of people's own, one run in each process: ``traced.py FOLDER``."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parents[1])]

from tests.findings.acts import CHAT, Act, Fault  # noqa: E402
from tests.findings.branching import BRANCHES, Branching  # noqa: E402

PROMPTS, STEP = 2, 1


def killed(act: Act) -> None:
    """The tool of the last rollout kills the process."""
    act.kills = act.prompt == PROMPTS - 1 and act.attempt == 3


_NAMED = {fault.name: replace(fault, since=0) for fault in CHAT}
ACTS = {
    "AT-MESSAGES-DROPPED": _NAMED["question dropped"],
    "AT-FALSE-ZERO": _NAMED["judge down"],
    "AT-TOOLS-MISSING": _NAMED["no tools for half"],
    "AT-ANSWER-FOREIGN": _NAMED["another's answer in the history"],
    "AT-INTERRUPTED": Fault("killed", killed, "", since=0),
    "AT-CALL-NOT-EXECUTED": _NAMED["first call only"],
    "AT-RESULT-SWAPPED": _NAMED["results swapped"],
}
"""Finding -> the fault of the agent on the openai client."""
ALSO = {"AT-INTERRUPTED": frozenset({"AT-GROUP-INCOMPLETE"})}
"""Finding -> findings that follow."""
TWINS = {code: f"{'call-not-executed' if fault.base else 'messages-dropped'}/clean" for code, fault in ACTS.items()}
TWINS |= dict.fromkeys(BRANCHES, "tokens-dropped/clean")
"""Finding -> the folder of its clean twin."""
FOLDERS = dict.fromkeys(TWINS.values(), "") | {f"{code.removeprefix('AT-').lower()}/fault": code for code in TWINS}
"""Folder -> the finding; twins have none."""


def main(folder: str) -> None:
    """Play the run of a folder."""
    import agents

    from autotrace.record.statements import bind

    code = FOLDERS[folder]
    of_twin = code or next(one for one, twin in TWINS.items() if twin == folder)
    if of_twin in BRANCHES:
        bind("config", {"adv_estimator": "grpo", "trainer_mode": "sync"})
        agent = Branching(code)
        for number in range(8):
            agent.run(number, STEP, f"{STEP}-{number // 4}", number % 4)
        return
    agents.PROMPTS, agents.STEPS = PROMPTS, 1
    with agents.serving() as url, ThreadPoolExecutor(1) as pool:
        agents.play(ACTS[of_twin], not code, STEP, agents.Agent(agents.client(url), agents.ACTS), pool)


if __name__ == "__main__":
    main(sys.argv[1])
