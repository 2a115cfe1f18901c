"""Record the public set of faults anew, into ``examples/faults``: ``python -m tests.findings.faults [FINDING ...]``.

Most faults are scenarios of the corpus, recorded in veRL's own agent loop; ``saved`` writes the others. The clean twin
of a fault is the same agent with the same settings, in which no rollout has the fault; faults of one agent share a twin
(``twins.json``). A folder has one run. A run that ``diagnose`` does not find as its name says stops the command.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import json
import logging
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from autotrace.insight.diagnose import Diagnosis
from autotrace.ship.readers import opened, places
from autotrace.tables.commits import FILE, FOLDER, Added, Commit
from autotrace.tables.steps import steps
from tests.findings import traced
from tests.findings.replies import either, single
from tests.findings.saved import CLEAN, FOLDERS, ROLLOUTS, folder_of, save
from tests.findings.scenarios import Scenario, Training, answer
from tests.findings.trained import BF16, both

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PLACE = ROOT / "examples" / "faults"
TWINS = "twins.json"
NAMES = {
    "v0": (
        "answers stripped all", "thinking dropped all", "mask over tools all", "mask of zeros all", "mask shifted all",
        "no end token all", "all wrong", "one reward", "groups with failing tools", "reward NaN faint",
        "aborted in the middle all", "empty later answer some", "empty first answer", "old weights", "tool raises all",
        "tool times out all", "error as a result all", "unknown tool all", "missing argument all", "broken JSON all",
        "the same call again all", "cache lost some", "prompt cut some", "groups cut",
        "tool's answer too long all", "groups alike some", "another's ground truth some", "paid for the form some",
        "garble all", "cut at a limit that nobody names some", "preempted some", "no reward for some some",
        "another's answer returned some", "cut at the context all", "repetition all",
        "out of turns all", "temperature changed all", "resumed with new weights all", "half of the replicas are old",
        "another model for some some", "grows with length some",
        "a log-probability that is none all", "a reward turned over some", "rows left out some",
        "rows trained twice some", "a NaN reward, trained", "equal rewards some", "cut, and clip_ratio 0 some",
    ),
    "v1": (
        "sessions that fail some", "agent raises all", "reward raises all", "reward times out all",
        "a single rollout is left", "gives up",
    ),
}  # fmt: skip
"""Trainer of veRL -> scenarios of the corpus; each folder has the name of the scenario's finding."""
SHARE, GROUPS, FIRST, LATER = 0.5, 4, 5, 500
MANY = frozenset({"AT-REWARD-CONSTANT"})
"""Findings that need all groups of the scenario."""
LONG = frozenset({"AT-ADVANTAGE-NAN", "AT-ADVANTAGE-NOISE", "AT-GROUP-OF-ONE"})
"""Findings whose rollouts are long: two groups take enough room."""
ALIKE = dict.fromkeys(("masks_all", "masks_none", "masks_shifted", "swaps", "cools"), "talks") | {"gives_up": "raises"}
"""Agent -> the one that it is like without its fault."""
FOLLOWS = frozenset({"AT-NO-SIGNAL", "AT-TOOL-ONE-ANSWER"})
"""Findings that follow from other faults in so few groups."""
MOST = 8
"""Faults that share a twin: the rollouts of each are at the twin's step, in a process of its own."""


def _slow(seconds: int) -> Any:
    """Answers in one turn; those that have the fault come late."""
    return either(lambda rollout, turn: {**answer(rollout), "slow": seconds}, single)


ALONE: dict[str, Any] = {"agent": "single_turn_agent", "reply": single}
MORE: tuple[tuple[str, str, str, dict[str, Any], str | dict[str, Any]], ...] = (
    ("v0", "cut at the response all", "AT-TRUNCATED-RESPONSE", {}, "repetition/clean"),
    ("v0", "top_p in training", "AT-SAMPLING-BIASED", ALONE, "duplicate-rollouts/clean"),
    ("v0", "weights that stay", "AT-WEIGHTS-STUCK", {**ALONE, "groups": 2}, {"weights": Scenario("").weights}),
    ("v0", "slow engine", "AT-STRAGGLER", {**ALONE, "reply": _slow(2)}, "duplicate-rollouts/clean"),
    ("v0", "one slow call", "AT-TOOL-SLOW", {"also": {"AT-STRAGGLER"}}, "tool-raises/clean"),
    ("v0", "a step that waits for many", "AT-STEP-IDLE",
     {**ALONE, "reply": _slow(21), "share": 0.25}, "duplicate-rollouts/clean"),
    ("v0", "two BOS tokens", "AT-PROMPT-HEADER", {"steps": 1, "since": 0, "groups": 2}, {}),
    ("v1", "rows that fill the batch", "AT-METRICS-PADDED", {"groups": 2}, {"training": Training(both(BF16))}),
    ("v0", "one answer 9033", "AT-TOOL-ONE-ANSWER", {}, "tool-raises/clean"),
)  # fmt: skip
"""Trainer, scenario of the corpus, finding, what differs from the scenario, and the twin: a folder, or what differs
from the fault."""
OF_TOKENS = "--logprobs", "1", "--token-facts", "all"
OF_CALLS = "--spec", str(HERE / "agents.yaml")
"""Options of the launcher for a run in veRL's loop, and for another agent."""
KILLED = frozenset({"interrupted/fault"})
"""Runs whose program is killed."""


class Played(NamedTuple):
    """A run of the set."""

    folder: str
    twin: str
    mode: str
    process: int
    """0 plays the twins."""
    step: int
    scenario: Scenario


def played() -> Iterator[Played]:
    """Each fault, and each twin once."""
    of_corpus = [*_of_corpus()]
    yield from of_corpus
    yield from _more({each.folder: each.step for each in of_corpus})


def _more(steps: dict[str, int]) -> Iterator[Played]:
    from tests.findings.corpus import corpus

    taken = Counter[int]()
    for place, (mode, name, code, changed, twin) in enumerate(MORE):
        own = next(scenario for scenario in corpus(mode) if scenario.name == name)
        share = min(own.share, SHARE) if own.share > 0.1 else 0.06
        own = replace(own, **{"code": code, "share": share, "groups": GROUPS, **changed})
        folder, step = folder_of(code), LATER + 10 * place
        if isinstance(twin, str):
            step = steps[twin]
        else:
            clean = replace(own, code="", **twin)
            twin = f"{folder}/clean"
            yield Played(twin, twin, mode, 0, step, clean)
        taken[step] += 1
        yield Played(f"{folder}/fault", twin, mode, MOST + taken[step], step, own)


def _of_corpus() -> Iterator[Played]:
    from tests.findings.corpus import corpus

    step = FIRST
    for mode, names in NAMES.items():
        by_name = {scenario.name: scenario for scenario in corpus(mode)}
        twins: dict[object, list[Scenario]] = {}
        for name in names:
            fault = by_name[name]
            if fault.code not in MANY:
                share = min(fault.share, SHARE) if fault.share > 0.1 else 0.2
                groups = min(fault.groups, GROUPS) if fault.code not in LONG else 2
                fault = replace(fault, share=share, groups=groups, also=fault.also | FOLLOWS)
            agent = ALIKE.get(fault.agent, fault.agent)
            same = (*fault.overrides, agent, fault.client, fault.question, fault.steps, fault.n, fault.groups)
            of_agent = twins.setdefault((same, fault.training is None, 0), [])
            number = next(n for n in range(99) if len(twins.get((same, fault.training is None, n), ())) < MOST)
            (twins.setdefault((same, fault.training is None, number), []) if number else of_agent).append(fault)
        for faults in twins.values():
            folders = [folder_of(fault.code) for fault in faults]
            twin = f"{folders[0]}/clean"
            yield Played(twin, twin, mode, 0, step, replace(faults[0], code="", misjudged=""))
            for process, (folder, fault) in enumerate(zip(folders, faults, strict=True), 1):
                yield Played(f"{folder}/fault", twin, mode, process, step, fault)
            step += max(fault.steps for fault in faults)


async def play(mode: str, process: int, folders: Sequence[str]) -> None:
    """Play the runs of a process that are among ``folders``, each at its step."""
    from tests.findings import program

    store = program.played_trainer.Store()
    if mode == "v1":
        store.install()
    with tempfile.TemporaryDirectory() as made:
        tokenizer, model = program.model_of(Path(made), "")
        for each in played():
            if (each.mode, each.process) == (mode, process) and each.folder in folders:
                done = await program.play(each.scenario, mode, each.step, tokenizer, model, store)
                assert each.scenario.breaks or not done["problem"], (each.folder, done["problem"])


def found(folder: Path) -> set[str]:
    """The codes of the findings of a run."""
    diagnosis = Diagnosis()
    with contextlib.closing(opened(places(folder)[-1])) as reader:
        for each in steps(reader):
            diagnosis.add(each)
    return {finding.code for finding in diagnosis.findings()}


def is_right(folder: str, code: str, also: frozenset[str] = frozenset()) -> bool:
    """Whether a fault is found and nothing else, and nothing in its twin."""
    codes = found(PLACE / folder)
    return {code} <= codes <= {code, *also} if code else not codes


def compact(run: Path) -> None:
    """Leave out columns without a value, statistics and the copy of the schema, which are most of a small file, and the
    last digits of times and of probabilities, which no compression shortens."""
    added = {}
    for path in sorted((run / FOLDER).glob("*/*.parquet")):
        table = pq.read_table(path)
        table = table.select([name for name in table.column_names if table[name].null_count < table.num_rows])
        table = pa.table({name: rounded(name, table[name].combine_chunks()) for name in table.column_names})
        pq.write_table(
            table, path, compression="brotli", compression_level=11, write_statistics=False, store_schema=False,
            use_dictionary=False, column_encoding=dict(map(encoding, table.schema)),
        )  # fmt: skip
        added[path.parent.name] = Added(path.name, table.num_rows, path.stat().st_size)
    commit = Commit(1, 1, added, supersedes={}, trajectories=added["trajectories"].rows)
    (run / FOLDER / FILE).write_bytes(commit.line())


def encoding(field: pa.Field) -> tuple[str, str]:
    """The name of a column's values in the file, and the encoding that takes the fewest bytes."""
    is_list = pa.types.is_list(field.type)
    kind = field.type.value_type if is_list else field.type
    whole = "DELTA_BINARY_PACKED" if pa.types.is_integer(kind) and not is_list else "PLAIN"
    return field.name + ".list.element" * is_list, "BYTE_STREAM_SPLIT" if pa.types.is_floating(kind) else whole


def rounded(name: str, values: Any) -> Any:
    """Times with seven digits; log-probabilities and entropies with three."""
    if values.type == pa.float64() and name.endswith("_s"):
        return values.cast(pa.float32(), safe=False).cast(pa.float64())
    if values.type == pa.list_(pa.float32()) and not values.values.null_count:
        kept = (values.values.to_numpy().view(np.uint32) & 0xFFFFC000).view(np.float32)
        return pa.ListArray.from_buffers(values.type, len(values), values.buffers()[:2], children=[pa.array(kept)])
    return values


def recorded(made: str, name: str, options: Sequence[str], program: Sequence[str]) -> None:
    """Record a program into the folder of runs ``name``. A tool may kill the program."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("AUTOTRACE", "MLFLOW"))}
    launch = [sys.executable, "-m", "autotrace.launch.main", "--run-dir", f"{made}/{name}", "--backend", "jsonl"]
    words = [*launch, "--quiet", "--drain-timeout", "600", *options, "--", sys.executable, *program]
    subprocess.run(words, env={**environ, "PYTHONPATH": str(ROOT)}, cwd=made, check=name not in KILLED)


def main(codes: Sequence[str]) -> None:
    """Record the faults, or those of some findings, and write a folder of tables for each run."""
    given = importlib.util.spec_from_file_location("make", ROOT / "examples" / "recorded_run" / "make.py")
    assert given is not None and given.loader is not None
    given.loader.exec_module(make := importlib.util.module_from_spec(given))
    every, wrong = [*played()], []
    if not codes:
        shutil.rmtree(PLACE, ignore_errors=True)
    twins = {folder_of(each.scenario.code): each.twin for each in every if each.scenario.code}
    twins |= {folder_of(code): twin for code, twin in traced.TWINS.items()}
    twins |= {folder_of(code): CLEAN[code in ROLLOUTS] for code in FOLDERS.values() if code}
    named = {twins[folder_of(code)] for code in codes} | {f"{folder_of(code)}/fault" for code in codes}
    new = [each for each in every if not codes or (each.folder in named and not (PLACE / each.folder).exists())]
    by_hand = [folder for folder in traced.FOLDERS if not codes or (folder in named and not (PLACE / folder).exists())]
    with tempfile.TemporaryDirectory() as made:
        programs = {
            f"{mode}-{process}": (OF_TOKENS, [__file__, "play", mode, str(process), *(each.folder for each in new)])
            for mode, process in sorted({(each.mode, each.process) for each in new})
        } | {folder: (OF_CALLS, [traced.__file__, folder]) for folder in by_hand}
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda one: recorded(made, one[0], *one[1]), programs.items()))
        names = {made: "/home/you", str(ROOT): "/home/you/project"}
        runs = [(each.folder, f"{each.mode}-{each.process}", range(each.step, each.step + each.scenario.steps),
                 each.scenario.code, frozenset(each.scenario.also)) for each in new]  # fmt: skip
        runs += [(folder, folder, range(traced.STEP, traced.STEP + 1), code, traced.ALSO.get(code, frozenset()))
                 for folder, code in traced.FOLDERS.items() if folder in by_hand]  # fmt: skip
        for folder, name, steps_of, code, also in runs:
            (run,) = (path.parent for path in Path(made, name).glob("*/run.json"))
            make.tables(run, PLACE / folder, names, steps_of)
            compact(PLACE / folder)
            if not is_right(folder, code, also):
                wrong.append((folder, code, found(PLACE / folder)))
    save(PLACE)
    wrong += [(folder, code, found(PLACE / folder)) for folder, code in FOLDERS.items() if not is_right(folder, code)]
    (PLACE / TWINS).write_text(json.dumps(twins, indent=1, sort_keys=True) + "\n")
    print(f"{PLACE}: {sum(path.stat().st_size for path in PLACE.rglob('*') if path.is_file()):,} bytes")
    assert not wrong, "\n".join(map(str, wrong))


if __name__ == "__main__":
    if sys.argv[1:2] == ["play"]:
        logging.disable(logging.CRITICAL)
        asyncio.run(play(sys.argv[2], int(sys.argv[3]), sys.argv[4:]))
    else:
        main(sys.argv[1:])
