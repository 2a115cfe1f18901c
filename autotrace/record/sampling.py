"""Decide whether a trajectory is recorded: once at the root from the root's attributes, equal for all rollouts of a
group.

A fraction keeps ``hash(seed, data_source, sample)`` under a threshold, so a resumed run, another worker and the other
rollouts of a group come to the same answer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from typing import Any

from autotrace.config.scalars import fraction
from autotrace.record.fields import ABSENT, Path, peek

refused: ContextVar[frozenset[str]] = ContextVar("autotrace_refused", default=frozenset())
"""Holds groups (``uid``, or else the sample index) that the current batch has and did not choose. A task that outlives
the batch decides nothing about the groups of another batch."""

Decision = Callable[[Mapping[str, Any]], bool]


def sample_of(attributes: Mapping[str, Any]) -> Any:
    """Return the name of the sample: ``sample_index`` unless missing or the constant 0 of a dataset without an index,
    then the prompt's digest, then the group's ``uid``."""
    index = attributes.get("sample_index")
    if index not in (None, 0, "0"):
        return index
    for name in ("prompt_digest", "uid"):
        if attributes.get(name) is not None:
            return attributes[name]
    return index


def decision(settings: Mapping[str, Any]) -> Decision | None:
    """Return the rule that ``settings`` (``Settings.sampling``) describe; None if everything is recorded."""
    rate = settings.get("rate")
    validate_rate = settings.get("validate_rate")
    every = settings.get("every_n_steps")
    samples = settings.get("samples")
    seed = settings.get("seed", 0)
    if rate is None and validate_rate is None and not every and not samples:
        return None
    if rate is not None and rate <= 0 and (validate_rate is None or validate_rate <= 0):
        return never
    wanted = {str(sample) for sample in samples or ()}

    def decide(attributes: Mapping[str, Any]) -> bool:
        if wanted and str(attributes.get("sample_index")) not in wanted and str(attributes.get("uid")) not in wanted:
            return False
        validate = str(attributes.get("validate")).lower() == "true"
        step = attributes.get("step")
        if every and not validate and isinstance(step, int) and step >= 0 and step % every:
            return False
        share = validate_rate if validate and validate_rate is not None else rate
        return share is None or fraction(seed, attributes.get("data_source"), sample_of(attributes)) < share

    return decide


def never(attributes: Mapping[str, Any]) -> bool:
    """Skip every trajectory: nobody has to read attributes for this rule."""
    return False


def admits(decide: Decision | None, attributes: Mapping[str, Any]) -> bool:
    """Tells whether the trajectory with these attributes is recorded."""
    if str(attributes.get("uid", attributes.get("sample_index"))) in refused.get():
        return False
    return decide is None or decide(attributes)


def refuse(
    paths: Mapping[str, Sequence[Path]], arguments: Mapping[str, Any], settings: Mapping[str, Any]
) -> frozenset[str]:
    """Return the names of the groups of a batch that are not recorded; empty where nothing limits the number of groups.

    ``paths`` (a target's ``batch``): ``group`` and ``sample`` name a value per row, ``limit`` and ``n`` numbers of the
    host's own configuration. ``settings["max_samples_per_step_per_worker"]`` wins over ``limit``.
    """
    limit = settings.get("max_samples_per_step_per_worker")
    if limit is None:
        limits = (path.read(arguments) for path in paths.get("limit", ()))
        limit = next((value for value in limits if value is not ABSENT and value is not None), None)
    if limit is None:
        return frozenset()
    samples = _rows(peek(paths.get("sample", ()), arguments))
    groups = _rows(peek(paths.get("group", ()), arguments)) or samples
    if len(samples) != len(groups) or len(set(samples)) <= 1:
        samples = groups  # no index in the dataset: every row has 0
    expected = peek(paths.get("n", ()), arguments)
    n = expected if isinstance(expected, int) else 1
    return frozenset(groups) - lowest(groups, samples, int(limit), settings.get("seed", 0), n)


def lowest(groups: Sequence[str], samples: Sequence[str], limit: int, seed: Any, n: int = 1) -> frozenset[str]:
    """Choose the ``limit`` groups whose samples hash lowest: the same prompts again in a resumed run.

    A group that has only some of its ``n`` rollouts on this worker is never chosen (veRL cuts a batch into chunks
    without looking), unless every row is a group of its own: then the rollouts come later (V1).
    """
    counts = Counter(groups)
    whole = (
        {group for group, count in counts.items() if count >= n} if max(counts.values(), default=0) > 1 else set(counts)
    )
    first_sample = dict(zip(reversed(groups), reversed(samples), strict=True))
    ranked = sorted(whole, key=lambda group: (fraction(seed, first_sample[group]), group))
    return frozenset(ranked[: max(limit, 0)])


def _rows(values: Any) -> list[str]:
    """Return a name per row, from an array, a list or a tensordict stack."""
    if values is ABSENT or values is None:
        return []
    tolist = getattr(values, "tolist", None)
    return [str(value) for value in (tolist() if tolist is not None else values)]
