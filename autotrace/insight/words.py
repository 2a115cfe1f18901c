"""Put findings in words and in numbers: for ``autotrace diagnose``, and beside a trainer's own metrics."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from autotrace.insight.diagnose import Diagnosis
from autotrace.insight.finding import Finding, Location
from autotrace.insight.needs import sentence
from autotrace.insight.profile import Mark, Profile, decode
from autotrace.insight.registry import codes
from autotrace.insight.step_lines import StepLine
from autotrace.insight.why import details, headline, unexplained
from autotrace.trajectory.model import Trajectory

METRICS = "autotrace"
"""Begin the names of ``metrics`` with this word."""


AFFECTS, CAUSES = "affects", "likely causes"


def facts(finding: Finding) -> list[tuple[str, str]]:
    """Return the extent and the kinds of a finding, and the traits that tell its trajectories apart."""
    kinds = "; ".join(f"{kind} ({count:,})" for kind, count in finding.notes.items())
    named, answer = [(AFFECTS, amount(finding)), ("breakdown", kinds)], finding.answer
    if answer is not None:
        for cause in answer.causes:
            named += [(CAUSES, headline(cause, answer.other)), *(("", detail) for detail in details(cause))]
        named += [(CAUSES, unexplained(answer))] if not answer.causes else []
    return [(name, words) for name, words in named if words]


def prose(finding: Finding) -> list[tuple[str, str]]:
    """Return the fault, the usual causes unless the data names a cause, and the fix."""
    usual = finding.why if finding.answer is None else ""
    named = [("what", finding.what), (CAUSES, usual), ("fix", finding.remedy)]
    return [(name, words) for name, words in named if words]


def verdict(diagnosis: Diagnosis, incomplete: bool = False) -> str:
    """Return the sentence about a run without findings: how much was checked, and the checks that could not run. Never
    a good verdict on an incomplete record."""
    trajectories, steps, without = diagnosis.trajectories, len(diagnosis.numbers), diagnosis.without_turns
    whole = f"{trajectories:,} trajector{'y' if trajectories == 1 else 'ies'} in {steps} step{'s' if steps > 1 else ''}"
    checks = sentence(codes(), diagnosis.present)
    if not trajectories:
        return f"no problems found in the metrics of {steps} steps" if steps else "this run has no trajectory"
    if without == trajectories:
        return f"{whole} without an LLM call, so little can be checked: {checks}"
    some = f" ({without:,} without an LLM call)" if without else ""
    return f"no problems found in {'what was recorded of ' if incomplete else ''}{whole}{some} by {checks}"


def amount(finding: Finding) -> str:
    """Return ``3.1% of the trajectories (31 of 1,000), since step 2, in 5 steps``."""
    share = f"{finding.share:.1%} of the {finding.unit} ({finding.trajectories:,} of {finding.of:,})"
    share = share if finding.of else "the trainer's metrics"  # of a run without rollouts
    if finding.seconds:
        share += f", {finding.seconds:,.1f} s lost"
    if finding.since_step is not None:
        share += f", since step {finding.since_step}"
    return share + (f", in {finding.steps} steps" if finding.steps > 1 else "")


def where(place: Location) -> str:
    """Return ``step 3, turn 2, token 117``; empty: nowhere in particular."""
    named = [("step", place.step), ("turn", place.turn)]
    parts = [f"{name} {number}" for name, number in named if number is not None]
    return ", ".join([*parts, *([f"token {place.token:,}"] if place.token is not None else [])])


def page(title: str, findings: Iterable[Finding]) -> str:
    """Render findings as a plain text, in lines without control characters."""
    written = [title]
    for number, finding in enumerate(findings, 1):
        written += ["", f"{number}. {finding.code}  {finding.title}"]
        written += [f"   {'follows from':15}{finding.under}"] * bool(finding.under)
        places = [("e.g.", "  ".join(filter(None, (one.trace_id, where(one), one.note)))) for one in finding.places]
        written += [f"   {name:15}{words}" for name, words in (*facts(finding), *places, *prose(finding))]
    return "".join(f"{plain(line)}\n" for line in written)


def plain(text: str) -> str:
    """Replace characters of ``text`` that could move a cursor, reverse a line or hide."""
    return "".join(character if character.isprintable() else "\ufffd" for character in text)


def worst(findings: Sequence[Finding]) -> tuple[str, str]:
    """Return the most costly finding, ``AT-RETOKENIZED (3.1% of the trajectories)``, and a trajectory of the finding;
    empty texts without findings."""
    if not findings:
        return "", ""
    first = findings[0]
    places = [place.trace_id for place in first.places]
    return f"{plain(first.code)} ({percent(first.share)} of the {first.unit})", (places or [""])[0]


def percent(share: float) -> str:
    """Format a share: ``34%``, ``3.1%``, ``0.02%``."""
    return f"{100 * share:.0f}%" if share >= 0.1 else f"{100 * share:.2g}%"


def metrics(line: StepLine, findings: Iterable[Finding]) -> dict[str, float]:
    """Compute numbers of a training step for the trainer's metrics: shares, unless the name says otherwise."""
    named: dict[str, float | None] = {
        "truncated": line.truncated,
        "flat_groups": line.flat / line.groups if line.groups else None,
        "failed": line.failed / line.trajectories if line.trajectories else None,
        "turns_mean": line.turns_mean,
        "tokens_mean": line.tokens_mean,
        "seconds_p50": line.seconds_p50,
        "seconds_p99": line.seconds_p99,
        "cached": line.cached,
        "weights_behind_mean": line.staleness,
        "tool_errors_per_trajectory": sum(line.tool_errors.values()) / line.trajectories if line.trajectories else None,
    }
    named |= {f"time/{name.removesuffix('_s')}": share for name, share in line.time.items()}
    shares = {finding.code: finding.share for finding in findings}
    named |= {f"finding/{code}": share for code, share in shares.items()}
    named["findings"] = float(len(shares))
    return {f"{METRICS}/{name}": float(value) for name, value in named.items() if value is not None}


def of_turns(trajectory: Trajectory) -> list[tuple[int | None, Mark, str]]:
    """List the marks of a trajectory: the turn (None: the whole trajectory), the mark, and its words."""
    found = []
    for mark in (decode(trajectory.profile) or Profile()).all_marks:
        code = codes().get(mark.code)
        at = "" if mark.token is None else f", token {mark.token:,}"
        turn = mark.turn if mark.turn is not None and mark.turn <= trajectory.turns else None
        found.append((turn, mark, f"{code.title if code else ''}{at}{': ' if mark.note else ''}{mark.note}"))
    return found


def at(mark: Mark) -> str:
    """Return ``turn 2, token 117: 31 tokens are missing there``."""
    place = where(Location("", None, mark.turn, mark.token))
    return plain(": ".join(part for part in (place, mark.note) if part))
