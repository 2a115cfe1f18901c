"""Find useless rewards: not a number, raised, timed out, all the same, of another rollout, for the form alone."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from statistics import median
from typing import Any

from autotrace.insight.conduct import masked
from autotrace.insight.evidence import Evidence, is_timeout
from autotrace.insight.finding import Code
from autotrace.insight.profile import Mark
from autotrace.insight.step_records import History, Hit, Record, Step, grouped, measured
from autotrace.trajectory.jsonable import finite, number
from autotrace.trajectory.model import Span
from autotrace.trajectory.span_text import answered_words, asked_words, swallowed

MANY_ROWS, MANY_GROUPS, ONE_VALUE = 64, 8, 0.99
"""Report one reward for such a share of so many rows and groups."""

CODES = Code.each({
    "AT-REWARD-NAN": 1.0, "AT-REWARD-RAISES": 1.0, "AT-REWARD-TIMEOUT": 0.8, "AT-REWARD-CONSTANT": 0.9,
    "AT-REWARD-MISMATCHED": 1.0, "AT-REWARD-MISSING": 0.6, "AT-FORMAT-GAMED": 0.5, "AT-REWARD-DROPPED": 1.0,
    "AT-REWARD-JUMPED": 0.1, "AT-REWARD-NO-TURN": 1.0, "AT-FALSE-ZERO": 1.0,
})  # fmt: skip


_STOPPED, _FAILED = ("CANCELLED", "INTERRUPTED"), ("AT-REWARD-TIMEOUT", "AT-REWARD-RAISES")


def failed(evidence: Evidence) -> Iterator[Mark]:
    """Find rewards that raised, timed out, or are not finite."""
    turn = len(evidence.turns) or None
    raised = next((span for span in reversed(evidence.rewards) if span.error and span.status not in _STOPPED), None)
    if raised is not None:
        code = "AT-REWARD-TIMEOUT" if is_timeout(raised) else "AT-REWARD-RAISES"
        yield Mark(code, turn, None, raised.error_text or "", masked(raised.error_text or ""))
    told = [evidence.facts, *(span.output for span in evidence.rewards)] if raised is None else []
    parts = [one.get("reward_extra_info") for one in told if isinstance(one, dict)]
    yield from _reported(
        parts, [evidence.facts.get("reward"), *(_score(span.output) for span in evidence.rewards)], turn
    )


def _reported(parts: Sequence[Any], scores: Sequence[Any], turn: int | None) -> Iterator[Mark]:
    """Read failures from the reward's own parts, and scores that are not finite."""
    for part in parts:
        if isinstance(part, dict) and part.get("timeout") is True:
            yield Mark("AT-REWARD-TIMEOUT", turn, None, "the reward's own parts say so")
            break
        if isinstance(part, dict) and isinstance(error := part.get("error"), str) and error:  # a number is a part
            yield Mark("AT-REWARD-RAISES", turn, None, error, masked(error))
            break
    odd = next((score for score in scores if finite(measured(score) or 0.0) is None), None)
    if odd is not None:
        yield Mark("AT-REWARD-NAN", turn, None, f"reward {odd}")


def told_later(step: Step, history: History) -> Iterator[Hit]:
    """Find rewards that failed or are not finite, and were reported after the trajectory was complete."""
    for record in step.records:
        parts, turn = [record.facts.get("reward_extra_info")], len(record.profile.turns) or None
        for mark in _reported(parts, [record.facts.get("reward")], turn):
            if not record.has(*(_FAILED if mark.code in _FAILED else [mark.code])):
                yield Hit(mark.code, record, turn, None, mark.note, mark.kind)


def _score(output: Any) -> Any:
    """Return the score in the output of a reward function."""
    if isinstance(output, dict):
        return output.get("score", output.get("reward_score", output.get("reward")))
    return output


def mismatched(evidence: Evidence) -> Iterator[Mark]:
    """Compare the judged text and sample with the rollout."""
    turn = len(evidence.turns) or None
    model, sample = evidence.root.inputs.get("reward_model"), evidence.trajectory.attributes.get("sample_index")
    truth = model.get("ground_truth") if isinstance(model, dict) else None
    is_row = isinstance(model, dict)  # a row of veRL's dataset, which has the index in `extra_info`
    for span in evidence.rewards:
        judged, extra = span.inputs.get("ground_truth"), span.inputs.get("extra_info")
        index = extra.get("index") if isinstance(extra, dict) and is_row else None
        note = ""
        if truth is not None and judged is not None and str(judged) != str(truth):
            note = f"judged against {judged!r}, the prompt's answer is {truth!r}"
        elif index is not None and sample is not None and str(index) != str(sample):
            note = f"judged as sample {index}, it is sample {sample}"
        if note:
            yield Mark("AT-REWARD-MISMATCHED", turn, None, note)
            return
    yield from misread(evidence)


SHOWN = 80
"""Characters of the end of a text in a note."""


def misread(evidence: Evidence) -> Iterator[Mark]:
    """Find a judged text of another rollout. Finds nothing if the texts of the turns are not known."""
    said = [(asked_words(call.span) or "", answered_words(call.span)) for call in evidence.turns]
    if not said or any(answer is None for _, answer in said):
        return
    own = "".join(f"{asked}{answer}" for asked, answer in said)
    if foreign := next((text for text in evidence.judged if not _is_of(text, own)), None):
        note = f"judged {foreign[-SHOWN:]!r}, the rollout's last answer is {str(said[-1][1])[-SHOWN:]!r}"
        yield Mark("AT-REWARD-MISMATCHED", len(evidence.turns), None, note)


PIECE, MOST = 16, 4000
"""Search for so many characters together, in at most so many characters."""


def _is_of(judged: str, own: str) -> bool:
    """Return whether half of the judged text occurs in the rollout's own text (a judge's text has no marks of the chat
    template)."""
    text = judged[:MOST]
    pieces = [text[at : at + PIECE] for at in range(0, len(text) - PIECE + 1, PIECE)]
    return len(pieces) < 2 or 2 * sum(piece in own for piece in pieces) >= len(pieces)


def trainers_score(step: Step, history: History) -> Iterator[Hit]:
    """Find rollouts for which the trainer uses another score than the reward function returned."""
    for record in step.records:
        score, reward = number(record.facts.get("token_level_score")), record.score
        if score is not None and finite(reward) is not None:
            note = f"the reward is {reward:.4g}, the trainer has {score:.4g}"
            yield Hit("AT-REWARD-MISMATCHED", record, len(record.profile.turns) or None, note=note)


def constant(step: Step, history: History) -> Iterator[Hit]:
    """Find one reward for all rows of a data source: in this step, or with few rows, in the steps before, too."""
    having = [record for record in step.training if record.score is not None]
    for source, records in grouped(having, lambda record: record.data_source or "").items():
        ((value, count),) = Counter(record.score for record in records).most_common(1)
        own = (len(records), len({record.group for record in records}), count, value)
        steps = [(0, own)] if step.number is None else history.up_to(step.number, ("scores", source), own)
        rows, groups = sum(each[0] for _, each in steps), sum(each[1] for _, each in steps)
        same = sum(having for _, (_, _, having, usual) in steps if usual == value)
        is_one = count >= ONE_VALUE * len(records) and same >= ONE_VALUE * rows
        if is_one and rows >= MANY_ROWS and groups >= MANY_GROUPS:
            since = f" since step {steps[0][0]}" if len(steps) > 1 else ""
            note = f"{same} of {rows} rows of {source!r} have {value:.4g}{since}"
            yield from (Hit("AT-REWARD-CONSTANT", record, note=note, kind=source) for record in records)


def missing(step: Step, history: History) -> Iterator[Hit]:
    """Find finished rollouts without a reward."""
    if step.live:
        return
    for records in (step.training, step.validation):
        done = [record for record in records if record.status == "OK"]
        without = [record for record in done if record.score is None and not record.has("AT-REWARD-RAISES")]
        if len(without) * 2 < len(done):
            yield from (Hit("AT-REWARD-MISSING", record) for record in without)


HAVING_TURNS = 0.2
"""Require such a share of rollouts with turns; below it the model's calls are not recorded."""


def without_turn(step: Step, history: History) -> Iterator[Hit]:
    """Find rollouts with a reward and without an LLM call, where other rollouts have calls."""
    having = sum(bool(record.profile.turns) for record in step.records)
    known = history.up_to(-1 if step.number is None else step.number, "turns", (having, len(step.records)))
    if sum(count for _, (count, _) in known) < HAVING_TURNS * sum(of for _, (_, of) in known):
        return
    for record in step.records:
        if not record.profile.turns and record.profile.stamp and record.score is not None and record.status == "OK":
            note = f"reward {record.score:.4g} without an LLM call"
            yield Hit(
                "AT-REWARD-NO-TURN", record, note=note, kind="trained on" if record.trained_in_step is not None else ""
            )


# -- rewards for the form of an answer: counts suspicious rows, because nobody knows the intent ------------------------

ROWS, RIGHT, SHARE, FEWEST = 16, 4, 0.05, 3
"""Require so many rows with parts of a reward, right rows, and such a share and number of suspicious rows."""
SHORT = 0.3
"""Limit the length of a suspicious answer, as a share of a right answer's usual length: a shorter answer has nothing
but the form."""
FORM = re.compile(r"format|fmt|tag|structure|syntax|template|xml|json|schema|style|think", re.IGNORECASE)
_TRUTH = re.compile(
    r"acc|correct|right|exact|match|pass|solved|solution|success|truth|answer|outcome|verif|grade|\bem\b|\bf1\b",
    re.IGNORECASE,
)


def gamed(step: Step, history: History) -> Iterator[Hit]:
    """Find rows that are paid for their form alone."""
    names = {name for record in step.training for name in record.members("reward_extra_info")}
    of_form = {name for name in names if FORM.search(str(name))}
    of_truth = {name for name in names - of_form if _TRUTH.search(str(name))}
    if not of_form or not of_truth:
        return
    rows = [
        (record, form, truth, length)
        for record in step.training
        if finite(record.score) is not None
        and (form := _most(record, of_form)) is not None
        and (truth := _most(record, of_truth)) is not None
        and (length := record.generated) is not None
    ]
    best = max((form for _, form, _, _ in rows), default=0.0)
    right = [length for _, _, truth, length in rows if truth > 0]
    if len(rows) < ROWS or best <= 0 or len(right) < RIGHT:
        return
    usual, lowest = median(right), min((record.score or 0.0) for record, _, _, _ in rows)
    suspicious = [
        (record, length)
        for record, form, truth, length in rows
        if form >= best and truth <= 0 and length <= SHORT * usual and (record.score or 0.0) > lowest
    ]
    if len(suspicious) < max(FEWEST, SHARE * len(rows)):
        return
    for record, length in suspicious:
        note = f"{length} tokens, right answers have {usual:.0f}; {len(suspicious)} of {len(rows)} rows"
        yield Hit("AT-FORMAT-GAMED", record, len(record.profile.turns) or None, note=note)


def _most(record: Record, names: Set[object]) -> float | None:
    """Return the largest of the named parts of the reward; None: the reward has no such part."""
    parts = record.members("reward_extra_info").items()
    return max((value for name, part in parts if name in names and (value := finite(part)) is not None), default=None)


# -- failures that became rewards

FALSE_ZERO = "AT-FALSE-ZERO"
_OF_ANSWERS = re.compile(
    r"(?:Value|Index|Syntax|Assertion|Arithmetic|ZeroDivision|Overflow|Unicode\w+|Recursion|CalledProcess"
    r"|\w*(?:Pars|Decode|Format|Syntax|Validation)\w*)Error\Z|InvalidOperation\Z"
    r"|\A(?:re|json|yaml|xml|lxml|ast|tokenize|sympy|latex\w*|math_verify|antlr4|lark)\."
)  # exceptions that reading or running a model's answer raises
_READING = re.compile(
    r"pars|extract|decod|regex|match|NoneType|to_(?:float|int|number)|(?:float|int|len)\(\)"
    r"|exec|(?:run|check)_(?:code|tests?|program)", re.IGNORECASE
)  # fmt: skip
_OUTSIDE = re.compile(
    r"time?d? ?out|connect|unavailable|refused|reset by|unreachable|rate.?limit|quota|gateway|http|request|sandbox"
    r"|container|docker|remote|aiohttp|openai|grpc|fetch|out of memory|(?<![a-z])(?:ask|api|client|server|service|llm)"
    r"(?![a-z])|(?:status|code|returned|error)\W{1,3}[45]\d\d\b", re.IGNORECASE
)  # fmt: skip
"""Match the kind, the function and the message of a failure of something else than the answer, whatever its class: a
client that could not read the reply of its server raises ``JSONDecodeError``, too."""
_SAID = re.compile(r"'[^']*'|\"[^\"]*\"|`[^`]*`|: .{60,}", re.DOTALL)


def caught(evidence: Evidence) -> Iterator[Mark]:
    """Find failures that were caught when the model could not be told any more, or inside a reward."""
    told = max((call.span.end_ns or 0 for call in evidence.turns), default=0)
    notes = [(span, note) for span in evidence.trajectory.spans for note, _ in swallowed(span)]
    notes += [(span, note) for span in evidence.rewards if span.status == "OK" for note in _lost(evidence, span)]
    for span, note in notes:
        at, kind = span.start_ns + 1e9 * (number(note.get("seconds")) or 0), str(note.get("error"))
        if (span.role == "reward" or at >= told) and not _is_read(evidence, kind, note):
            where = f"in {note.get('at')}, caught in {note.get('caught')}"
            words = f"{kind}: {note.get('message')} {where}"
            yield Mark(FALSE_ZERO, len(evidence.turns) or None, None, words, f"{kind} {where}")


def _is_read(evidence: Evidence, kind: str, note: Mapping[str, Any]) -> bool:
    """Return whether the failure is that of an answer which cannot be read: its score of nothing is deserved. A key
    that a JSON answer lacks is such a failure, too."""
    function, message = str(note.get("at")).partition(" (")[0], str(note.get("message"))
    if _OUTSIDE.search(f"{kind} {function} {_SAID.sub('', message)}"):
        return False
    if _OF_ANSWERS.search(kind) or _READING.search(f"{function} {message}"):
        return True
    said = answered_words(evidence.final[-1].span) or "" if evidence.turns else ""
    return kind == "KeyError" and "{" in said and message.strip("'") not in said


def _lost(evidence: Evidence, reward: Span) -> Iterator[dict[str, Any]]:
    """Yield recorded calls of a reward that failed, if no later call of the same kind succeeded."""
    calls = [span for span in evidence.trajectory.spans if span.parent_id == reward.span_id]
    good = {span.key: span.start_ns for span in calls if span.status == "OK"}
    for span in calls:
        if span.error and span.status not in _STOPPED and good.get(span.key, 0) < span.start_ns:
            yield {"error": span.error[0], "message": span.error[1], "at": span.name, "caught": reward.name}


def false_zero(step: Step, history: History) -> Iterator[Hit]:
    """Find rollouts whose reward is a failure: the lowest reward of the data source, or the highest."""
    by_kind: dict[tuple[str, str | None], list[tuple[Record, Mark]]] = {}
    rewards = [(record, score) for record in step.records if (score := finite(record.score)) is not None]
    for record, _ in rewards:
        for mark in {mark.kind: mark for mark in record.profile.marks if mark.code == FALSE_ZERO}.values():
            by_kind.setdefault((mark.kind, record.data_source), []).append((record, mark))
    for (_, source), found in by_kind.items():
        having = {record.trace_id for record, _ in found}
        own = [score for record, score in rewards if record.trace_id in having]
        others = [score for one, score in rewards if one.data_source == source and one.trace_id not in having]
        least, most, usual = min(own + others), max(own + others), sum(others or own) / len(others or own)
        is_low = own.count(least) >= 0.95 * len(own) or max(own) < usual
        if len(own) > 1 and (is_low or own.count(most) >= 0.95 * len(own) or min(own) > usual):
            for record, mark in found:
                tokens, which = record.generated, "lowest" if is_low else "highest"
                taught = f", advantage {record.advantage:.2g} x {tokens} tokens" if record.advantage and tokens else ""
                trained = ", trained on" if record.trained_in_step is not None else ""
                note = f"reward {record.score:.4g} (the {which}){trained}{taught}: {mark.note}"
                yield Hit(FALSE_ZERO, record, mark.turn, None, note, mark.kind)


OF_TRAJECTORY = (failed, mismatched, caught)
OF_STEP = (false_zero, told_later, trainers_score, constant, missing, gamed, without_turn)
