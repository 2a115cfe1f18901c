"""Find settings in a run's records that keep something from appearing, and say how to change the setting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from autotrace.cli.terminal import counted
from autotrace.config.plan import Plan
from autotrace.run.info import RunInfo
from autotrace.run.losses import absences
from autotrace.run.process import program
from autotrace.run.status import Status
from autotrace.ship import pace
from autotrace.sinks import registry
from autotrace.spec.compiler import watched_modules
from autotrace.spool.records import CALLED_BY

SHOWN = 3
"""Limits the named places that called a model outside a trajectory."""
SINGLE_TURN = "single_turn_agent"


def advice(
    info: RunInfo, status: Status, plan: Plan | None, rows: Sequence[Any], learned: Mapping[str, Any]
) -> list[str]:
    """Return sentences of advice, the most useful first. ``learned``: the run's reports, by name (``config``, ...)."""
    config = learned.get("config", {})
    return [
        *_tracers(info, learned.get("verl_trace", {})),
        *_verl(config, learned.get("dataset", {}), rows),
        *_streaming(plan, learned.get("verl_trace", {}), rows),
        *_nothing(status, config, info, plan),
        *_outside(status, plan),
        *_targets(status, plan),
        *absences(status.absent),
        *_delivery(info, status),
        *_hosts(status, config),
        *_losses(status),
    ]


def latest_of(binds: Sequence[tuple[str, Mapping[str, Any]]]) -> dict[str, dict[str, Any]]:
    """Merge the values of each name; later keys win."""
    latest: dict[str, dict[str, Any]] = {}
    for name, value in binds:
        latest.setdefault(name, {}).update({key: item for key, item in value.items() if item is not None})
    return latest


def _tracers(info: RunInfo, trace: Mapping[str, Any]) -> list[str]:
    backend = trace.get("backend")
    if backend in registry.names() and backend not in info.backends:
        return [
            f"veRL's own trace into {backend} was switched off, and nothing was delivered there: --backend {backend}"
        ]
    if backend is None or backend in registry.names():
        return []
    return [
        f"veRL's rollout trace into {backend} is veRL's own and goes on as it is; autotrace does not deliver to "
        f"{backend}: what it recorded is in {', '.join(info.backends) or 'the run folder'} "
        f"(choose another with --backend: {', '.join(registry.names())})"
    ]


def _verl(config: Mapping[str, Any], dataset: Mapping[str, Any], rows: Sequence[Any]) -> list[str]:
    sentences = []
    if config.get("rollout_mode") == "sync":
        sentences.append(
            "actor_rollout_ref.rollout.mode=sync: veRL then runs no agent loop and there are no trajectories to trace "
            "(the default until 0.6.1); set actor_rollout_ref.rollout.mode=async"
        )
    columns = dataset.get("columns")
    loop = config.get("default_agent_loop") or SINGLE_TURN
    if columns is not None and "agent_name" not in columns and loop == SINGLE_TURN:
        sentences.append(
            "the dataset has no column agent_name, so veRL runs its single-turn loop and never calls a tool; add "
            "agent_name: tool_agent to each row, or set actor_rollout_ref.rollout.agent.default_agent_loop=tool_agent"
        )
    if len({row.uid for row in rows}) > 1 and {row.sample_index for row in rows} == {"0"}:
        sentences.append(
            "sample_index is 0 on every trajectory: the dataset has no extra_info.index; add one to tell prompts apart "
            "(until then uid does)"
        )
    return sentences


def _streaming(plan: Plan | None, trace: Mapping[str, Any], rows: Sequence[Any]) -> list[str]:
    limit = trace.get("max_samples_per_step_per_worker")
    if plan is not None:
        limit = plan.settings.sampling.get("max_samples_per_step_per_worker", limit)
    steps = {row.step for row in rows if not row.validate}
    if limit is None or steps != {-1}:
        return []
    return [
        f"max_samples_per_step_per_worker={limit} limits nothing here: prompts come one by one (fully-async training), "
        "so there is no batch to take that many from; --sample-rate takes a share of them"
    ]


def _nothing(status: Status, config: Mapping[str, Any], info: RunInfo, plan: Plan | None) -> list[str]:
    if status.traces or status.open:
        return []
    if config:
        return ["veRL ran but no trajectory began; the table of targets shows what was called"]
    if info.untraced and not status.processes:
        return [info.untraced]
    sentences = []
    own = own_targets(plan)
    named = plan is None or any(target.key in own and target.role == "trajectory" for target in plan.targets)
    if not (named or any(target.outside for target in status.targets)):
        sentences.append(
            f"no trajectory began, and your specs name none: {_name_it(f'{_script(info)}.FUNCTION')}; autotrace init "
            "proposes such a spec"
        )
    if not status.processes:
        sentences.append(
            "no traced process imported a module of the specs, or the command ran in an interpreter without autotrace "
            "(autotrace doctor shows where autotrace is installed)"
        )
    return sentences


def _outside(status: Status, plan: Plan | None) -> list[str]:
    called = {target.key for target in status.targets if target.calls}
    roots = [target.key for target in plan.targets if target.role == "trajectory"] if plan is not None else []
    begun = ", ".join(key for key in roots if key in called)
    chains: dict[tuple[str, ...], set[str]] = {}
    for target in status.targets:
        for chain in target.outside:
            chains.setdefault(tuple(chain.split(CALLED_BY)), set()).add(library(target.key))
    sentences = []
    for functions, libraries in list(chains.items())[:SHOWN]:
        unnamed = [name for name in functions if name not in roots] or [""]
        root = next((name for name in unnamed if name.rpartition(".")[2] != "main"), unnamed[-1])
        by = f", by {CALLED_BY.join(functions)}" if functions[-1] else ""
        were = "was" if len(libraries) == 1 else "were"
        then = _name_it(root) if root else "put the code that asks into a function, and name that in a spec"
        if begun:
            then = f"{_LOST_ITS_CALL.format(begun)}; else {then}"
        asked = " and ".join(sorted(libraries))
        sentences.append(f"{asked} {were} called outside of a trajectory{by}, which is not recorded: {then}")
    return sentences


_LOST_ITS_CALL = (
    "no call of {} was around it. If a thread, task or worker makes the call that was started elsewhere (any thread, "
    "with --follow-threads 0) or whose trajectory had ended, start it inside or submit the work to a ThreadPoolExecutor"
)


def _name_it(function: str) -> str:
    return (
        f"name the function that is one rollout in a spec, such as `- {{target: {function}, role: trajectory}}`, and "
        "pass it with --spec"
    )


def _script(info: RunInfo) -> str:
    """Return the program's name in specs."""
    python = next((at for at, word in enumerate(info.command) if "python" in Path(word).name), None)
    kind, word = ("", "") if python is None else program(info.command[python:])
    return word if kind == "m" else Path(word).stem if kind == "script" else "my_agent"


def library(key: str) -> str:
    """Return the top-level module of a target."""
    return key.replace(":", ".").partition(".")[0]


def clients(plan: Plan | None) -> list[str]:
    """List the libraries whose calls are recorded only inside other calls."""
    targets = plan.targets if plan is not None else ()
    alone = {library(target.key) for target in targets if not target.inside}
    watched = set(watched_modules(plan)) if plan is not None else set()  # others get a root from a conversation
    return sorted({library(target.key) for target in targets if target.inside} - alone - watched)


def _targets(status: Status, plan: Plan | None) -> list[str]:
    sentences = []
    wanted = {target.key for target in plan.targets if not target.optional} if plan is not None else set()
    wanted -= gated(status, plan)
    for state, what in (("failed", "not wrapped"), ("refused", "refused")):
        keys = [target.key for target in status.targets if state in target.states and target.key in wanted]
        if keys:
            sentences.append(
                f"{counted(len(keys), 'target')} {what}: {', '.join(keys[:5])}{' ...' if len(keys) > 5 else ''}"
            )
    return sentences


def own_targets(plan: Plan | None) -> dict[str, str]:
    """Map the keys of targets in the user's specs to the place of each target."""
    targets = plan.targets if plan is not None else ()
    return {target.key: target.where for target in targets if target.where and not target.is_shipped}


def gated(status: Status, plan: Plan | None) -> set[str]:
    """List the keys of shipped targets for other releases than the installed release; such targets need no report."""
    versions = {
        target.key: target.versions
        for target in (plan.targets if plan is not None else ())
        if target.versions and target.is_shipped
    }
    return {
        target.key
        for target in status.targets
        if target.key in versions
        and set(target.states) == {"refused"}
        and all(reason.startswith(f"for {versions[target.key]}, installed is ") for reason in target.reasons)
    }


def _delivery(info: RunInfo, status: Status) -> list[str]:
    left = status.pending + status.open
    if status.state in ("done", "blocked") and left:
        return [
            f"{counted(left, 'trace')} not delivered; when the backend can be reached: autotrace ship {info.run_id}"
        ]
    if behind := pace.warnings(status):
        return behind
    if any(backend.rejected_count for backend in status.backends.values()):
        return ["a backend rejected trajectories for good; autotrace show TRACE says why, the run folder keeps them"]
    return []


def _hosts(status: Status, config: Mapping[str, Any]) -> list[str]:
    nodes = config.get("nnodes")
    if isinstance(nodes, int) and nodes > 1 and len(status.hosts) == 1:
        return [
            f"trainer.nnodes={nodes}, and only {status.hosts[0]} wrote into this run folder: if rollouts run on "
            "the other nodes, install autotrace for their interpreter and let them reach this one (the driver's log "
            "says which cannot; autotrace help clusters)"
        ]
    return []


def _losses(status: Status) -> list[str]:
    sentences = []
    faults = {reason.removeprefix("fault:"): n for reason, n in status.drops.items() if reason.startswith("fault:")}
    if faults:
        where = ", ".join(f"{site} ({n:,})" for site, n in sorted(faults.items(), key=lambda item: -item[1])[:5])
        sentences.append(
            f"autotrace failed in traced processes, the calls themselves went on: {where}; please report it"
        )
    if status.died:
        sentences.append(
            f"{counted(status.died, 'process', 'processes')} ended without a final record (killed?): "
            "their open calls count as INTERRUPTED"
        )
    if status.facts_waiting:
        sentences.append(f"{counted(status.facts_waiting, 'fact')} (rewards, ...) could not be matched to a trajectory")
    return sentences
