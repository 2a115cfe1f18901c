"""Traits: what rollouts are compared by. A trait is declared once, in a few lines over one trajectory:

    @trait(Position.SAMPLING)
    def model(evidence: Evidence) -> Iterator[Shown]:
        for call in evidence.turns[:1]:
            yield f"the model is {call.span.inputs.get('model')}", None

The text is the whole sentence that a person reads, so rollouts with equal sentences share the trait. With a number
beside it, the sentence names a quantity, and ``contrast`` looks for the threshold that tells two sets apart. The
position says how early in a rollout the trait comes about: an early trait is a cause of a later one.

Traits are computed once, when a trajectory is complete, and kept in its profile. Findings of a trajectory, its ending
and its times are traits, too (``of_record``).
"""

from __future__ import annotations

import functools
import hashlib
import re
from collections import Counter
from collections.abc import Callable, Iterator
from enum import IntEnum
from itertools import islice, pairwise
from typing import Any

from autotrace.insight.error_texts import classed
from autotrace.insight.evidence import MARKERS, Evidence, is_chat, marked
from autotrace.insight.profile import Trait
from autotrace.trajectory.chains import tree_of
from autotrace.trajectory.jsonable import loaded, text
from autotrace.trajectory.model import OK, Span
from autotrace.trajectory.span_text import answer, answered_words, asked_messages, thoughts
from autotrace.trajectory.token_ids import piece, unpacked
from autotrace.trajectory.tool_calls import BESIDE_NAME, ToolCall

MOST, LONGEST = 48, 160
"""Traits of one trajectory, and characters of each."""
LOOKED_AT, SKELETON, EDGE, DIGESTED = 400, 100, 40, 1000
"""Characters of a text that are masked, that are kept of it, that are kept of a prompt's beginning and end, and that
its digest reads at each end."""
FEW = 3
"""Answers of one tool in one trajectory that are kept."""
Shown = tuple[str, float | None]
"""The trait in words, and its number where it is a quantity."""
Declared = Callable[[Evidence], Iterator[Shown]]


class Position(IntEnum):
    """Where in a rollout a trait comes about, the earliest first. Times and places come last: they explain only if
    nothing else does."""

    DATA, PROMPT, SAMPLING, ANSWER, PARSING, TOOL, HISTORY, END, REWARD, TIME, PLACE = range(11)


DECLARED: dict[str, tuple[Position, Declared]] = {}


def trait(position: Position) -> Callable[[Declared], Declared]:
    """Declare a trait that comes about at ``position``."""

    def declare(of: Declared) -> Declared:
        DECLARED[of.__name__] = position, of
        return of

    return declare


def traits_of(evidence: Evidence, failed: Callable[[str, Exception], None]) -> list[Trait]:
    """The declared traits of one trajectory; ``failed`` is called for each that raises."""
    found: dict[str, Trait] = {}
    for name, (_, of) in DECLARED.items():
        try:
            for said, value in of(evidence):
                short = " ".join(text(said).split())
                found.setdefault(
                    said, Trait(name, short if len(short) <= LONGEST else short[: LONGEST - 1] + "…", value)
                )
        except Exception as error:  # recorded values may have any shape
            failed(f"trait {name}", error)
    return list(islice(found.values(), MOST))


# -- texts without what differs from rollout to rollout ----------------------------------------------------------------

_TOKEN, _DIGIT, _QUOTED = re.compile(r"[\w.:/@-]+"), re.compile(r"\d"), re.compile(r"(?<!\w)'[^'\n]{1,80}'(?!\w)")
_WORD = re.compile(r"\w{3,}")


def masked(text: str, given: str = "") -> str:
    """``text`` with numbers, ids, quoted names and the words of ``given`` replaced, cut to ``SKELETON`` characters."""
    return _masked(text[:LOOKED_AT], given[:LOOKED_AT])


@functools.lru_cache(maxsize=2048)
def _masked(text: str, given: str) -> str:
    words = {word.lower() for word in _WORD.findall(given)}
    text = _QUOTED.sub("'…'", _TOKEN.sub(lambda found: "#" if _DIGIT.search(found[0]) else found[0], text))
    if words:
        text = _WORD.sub(lambda found: "…" if found[0].lower() in words else found[0], text)
    return _cut(" ".join(text.split()), SKELETON)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[:most] + "…"


def _content(message: dict[str, Any]) -> str:
    content = message.get("content")
    if isinstance(content, list):
        return "\n".join(
            part["text"] for part in content if isinstance(part, dict) and isinstance(part.get("text"), str)
        )
    return content if isinstance(content, str) else ""


def first_prompt(evidence: Evidence) -> list[dict[str, Any]]:
    """The messages of the first prompt, or those that the rollout was given; empty: neither is known."""
    asked = asked_messages(evidence.turns[0].span, whole=True) if evidence.turns else []
    given = (value for span in (evidence.root, evidence.agent) if span is not None for value in span.inputs.values())
    return asked or next(filter(is_chat, given), [])


def prompt_digest(evidence: Evidence) -> str:
    """A digest of the first prompt without its numbers and ids; empty: its words are not known."""
    said = [text for message in first_prompt(evidence)[:12] if (text := _content(message))]
    whole = "".join(_digest(text, 8) for text in said)
    return hashlib.blake2b(whole.encode(), digest_size=8).hexdigest() if said else ""


@functools.lru_cache(maxsize=512)
def _digest(text: str, size: int) -> str:
    """A digest of the beginning and the end of ``text`` without numbers and ids."""
    ends = text if len(text) <= 2 * DIGESTED else text[:DIGESTED] + text[-DIGESTED:]
    hidden = _TOKEN.sub(lambda found: "#" if _DIGIT.search(found[0]) else found[0], ends)
    return hashlib.blake2b(hidden.encode("utf-8", "replace"), digest_size=size).hexdigest()


# -- the prompt and how it is sampled ----------------------------------------------------------------------------------


@trait(Position.DATA)
def begun(evidence: Evidence) -> Iterator[Shown]:
    """Whether the model was asked at all."""
    if not evidence.turns:
        yield "the rollout makes no LLM call", None


@trait(Position.PROMPT)
def prompt(evidence: Evidence) -> Iterator[Shown]:
    """Roles, system prompt, beginning and end of what is asked, tools that are offered."""
    messages = first_prompt(evidence)
    if messages:
        yield f"the first prompt has the roles {', '.join(str(one.get('role')) for one in messages[:12])}", None
        yield "characters of the first prompt", float(sum(len(_content(one)) for one in messages))
    for message in messages[:1]:
        if message.get("role") in ("system", "developer"):
            yield f'the system prompt is "{masked(_content(message))}" ({_digest(_content(message), 2)})', None
    asked = _content(messages[-1]) if messages else ""
    if asked:
        yield f'the question begins with "{masked(asked[:EDGE])}"', None
        yield f'the question ends with "{masked(asked[-EDGE:])}"', None


@trait(Position.PROMPT)
def tools_offered(evidence: Evidence) -> Iterator[Shown]:
    """Names of the tools that the first request offers."""
    for call in evidence.turns[:1]:
        if call.span.messages or "tools" in call.span.inputs:
            offered = call.span.inputs.get("tools")
            names = sorted(filter(None, map(_tool, offered))) if isinstance(offered, list) else []
            yield f"the request offers {'the tools ' + ', '.join(names) if names else 'no tools'}", None


def _tool(offered: Any) -> str:
    inner = offered.get("function", offered) if isinstance(offered, dict) else {}
    return str(inner.get("name") or "") if isinstance(inner, dict) else ""


@trait(Position.PROMPT)
def first_tokens(evidence: Evidence) -> Iterator[Shown]:
    """The tokens with which the first prompt begins; two equal ones are two BOS tokens."""
    ids = unpacked(piece(evidence.turns[0].span.packed_prompt or b"", 0, 6)) if evidence.turns else []
    if ids:
        yield f"the first prompt begins with the tokens {' '.join(map(str, ids))}", None
        if len(ids) > 1 and ids[0] == ids[1]:
            yield f"the first prompt begins with token {ids[0]} twice", None


@trait(Position.SAMPLING)
def sampling(evidence: Evidence) -> Iterator[Shown]:
    """Sampling parameters and the model of the first request."""
    for call in evidence.turns[:1]:
        inputs = call.span.inputs
        given = {**{name: inputs[name] for name in _PARAMETERS if name in inputs}, **call.sampling}
        for name, value in islice(given.items(), 12):
            if isinstance(value, (bool, int, float, str)):
                yield f"{name} is {str(value)[:40]}", None


_PARAMETERS = ("model", "temperature", "top_p", "top_k", "min_p", "max_tokens", "max_completion_tokens", "seed", "stop",
               "tool_choice", "presence_penalty", "frequency_penalty", "reasoning_effort")  # fmt: skip


# -- answers and calls -------------------------------------------------------------------------------------------------


@trait(Position.ANSWER)
def thinking(evidence: Evidence) -> Iterator[Shown]:
    """Whether the model thinks, and whether its thinking ends."""
    texts = [answered_words(call.span) or "" for call in evidence.turns]
    if any(thoughts(call.span) for call in evidence.turns) or any("<think>" in text for text in texts):
        yield "the model thinks", None
    if any("<think>" in text and "</think>" not in text for text in texts):
        yield "the thinking has no end (</think>)", None
    if any(not text.strip() for text in texts) and evidence.turns and any(texts):
        yield "an answer has no text", None


@trait(Position.PARSING)
def calls_in_text(evidence: Evidence) -> Iterator[Shown]:
    """A tool call that stays in the text of an answer."""
    for call in evidence.turns:
        if text_call(call.span) is not None:
            yield "a tool call stays in the text of the answer", None


def text_call(span: Span) -> str | None:
    """The beginning of a tool call in the text or the thinking of an answer without calls of its own."""
    reply = answer(span)
    if reply is None or reply.get("tool_calls"):
        return None
    for said in (_content(reply), thoughts(span) or ""):
        if any(marker in said for marker in MARKERS) and (found := marked(said, 0)) is not None:
            return found
    return None


@trait(Position.PARSING)
def calls(evidence: Evidence) -> Iterator[Shown]:
    """Calls that answers ask for."""
    asked = [len(requested(call.span)) for call in evidence.turns]
    if any(call.span.messages for call in evidence.turns):
        yield "calls that the model asks for", float(sum(asked))
    if not_executed(evidence):
        yield "a call that the model asks for is not executed", None


def requested(span: Span) -> list[str]:
    """Names of the tools that an answer calls."""
    made = (answer(span) or {}).get("tool_calls")
    return [_tool(one) for one in made] if isinstance(made, list) else []


def not_executed(evidence: Evidence) -> tuple[int, str] | None:
    """The first turn with calls that the next prompt does not answer, and how many; None if all calls are answered."""
    tree = tree_of(evidence.trajectory)
    for call, following in pairwise(evidence.turns):
        asked = requested(call.span)
        if len(asked) > 1 and tree.before[following.number] == call.number:
            messages = asked_messages(following.span, whole=True)
            places = [place for place, one in enumerate(messages) if one.get("role") == "assistant"]
            told = (
                [one for one in messages[places[-1] + 1 :] if one.get("role") in ("tool", "function")] if places else []
            )
            executed = sum(tool.turn == call.number for tool in evidence.tools)
            if told and len(told) < len(asked) and executed < len(asked):
                return call.number, f"{len(told)} of {len(asked)} calls were executed: {', '.join(asked)}"
    return None


@trait(Position.TOOL)
def tool_answers(evidence: Evidence) -> Iterator[Shown]:
    """Which tools are called, how, and how each answers."""
    by_name: dict[str, list[ToolCall]] = {}
    for call in evidence.tools:
        by_name.setdefault(call.name, []).append(call)
    yield f"the tools called are {', '.join(sorted(by_name)) or 'none'}", None
    for name, made in by_name.items():
        yield f"calls of {name}", float(len(made))
        yield f"characters that {name} answers", float(max(len(call.answer) for call in made))
        told = Counter(words for call in made if (words := _told(call, quotes=True)))
        yield from ((f"{name} {words}", None) for words, _ in told.most_common(FEW))


@trait(Position.TOOL)
def fixed_answers(evidence: Evidence) -> Iterator[Shown]:
    """Answers of tools that repeat no word of what was asked: equal ones in many groups answer different questions."""
    told = Counter((call.name, words) for call in evidence.tools if (words := _told(call, quotes=False)))
    yield from ((f"{name} {words}", None) for (name, words), _ in told.most_common(FEW))


def _told(call: ToolCall, quotes: bool) -> str:
    """How a tool answers, if the answer does (``quotes``), or does not, repeat something of the question."""
    if call.failed is not None or not call.told.strip():
        what = f"raises {classed(call.failed.error_text or '')}" if call.failed is not None else "answers nothing"
        return "" if quotes else what
    skeleton = masked(call.told, call.arguments)
    return f'answers "{skeleton}"' if quotes == ("…" in skeleton[:SKELETON]) else ""


@trait(Position.PARSING)
def arguments(evidence: Evidence) -> Iterator[Shown]:
    """The names of the arguments that tools are given."""
    told = Counter((call.name, _shape(call)) for call in evidence.tools)
    yield from ((f"{name} is given {words}", None) for (name, words), _ in told.most_common(2 * FEW))


def _shape(call: ToolCall) -> str:
    inputs = call.span.inputs
    called = inputs.get("tool_call")
    given = called if isinstance(called, dict) else inputs
    given = next((given[name] for name in sorted(BESIDE_NAME) if name in given), given)
    given = loaded(given, given) if isinstance(given, str) else given
    if not isinstance(given, dict):
        return "a text" if given else "no arguments"
    return ", ".join(sorted(map(str, given))[:8]) or "no arguments"


# -- history and end ---------------------------------------------------------------------------------------------------


@trait(Position.HISTORY)
def history(evidence: Evidence) -> Iterator[Shown]:
    """What later prompts keep of earlier turns."""
    lost = history_lost(evidence)
    if lost is not None:
        yield f"a later prompt lacks the {lost[1]} of an earlier turn", None


def history_lost(evidence: Evidence) -> tuple[int, str] | None:
    """The first turn whose messages lack what an earlier turn had, and what: ``thinking`` or ``messages``."""
    tree = tree_of(evidence.trajectory)
    for call, following in pairwise(evidence.turns):
        before = asked_messages(call.span, whole=True)
        after = asked_messages(following.span, whole=True)
        if not before or not after or tree.before[following.number] != call.number:
            continue
        if len(after) <= len(before):
            return following.number, "messages"
        kept = next((one for one in after[len(before) :] if one.get("role") == "assistant"), None)
        if kept is not None and thoughts(call.span) and not _has_thoughts(kept):
            return following.number, "thinking"
    return None


def _has_thoughts(message: dict[str, Any]) -> bool:
    return any("reason" in name or "think" in name for name, part in message.items() if part) or "<think>" in str(
        message.get("content")
    )


@trait(Position.END)
def end(evidence: Evidence) -> Iterator[Shown]:
    """How the rollout ends, and on what."""
    if not evidence.turns:
        return
    last = evidence.final[-1]
    if last.finish:
        yield f"the last turn ends with {last.finish}", None
    on = ended_on(evidence)
    yield f"the rollout ends on {'an answer of the model' if on is None else on}", None


def ended_on(evidence: Evidence) -> str | None:
    """``the answer of search`` where a tool ran after the last turn; ``a call of search`` that nothing answered; None:
    the model said something last."""
    last = evidence.final[-1]
    ran = [tool.name for tool in evidence.tools if tool.turn >= last.number]
    asked = requested(last.span)
    if ran and (asked or answer(last.span) is None):
        return f"the answer of {ran[-1]}"
    return f"a call of {asked[-1]}" if asked else None


@trait(Position.REWARD)
def judged(evidence: Evidence) -> Iterator[Shown]:
    """The last answer, and the text that the reward function judged."""
    said = answered_words(evidence.final[-1].span) if evidence.turns else None
    if said is not None:
        yield "characters of the last answer", float(len(said))
        yield f'the last answer begins with "{masked(said[:EDGE])}"', None
    for span in evidence.rewards[:1]:
        if span.output is None:
            yield f"{span.shown_name} returns nothing", None
    for judged_text in evidence.judged[:1]:
        yield f'the judged text begins with "{masked(judged_text[:EDGE])}"', None


ROLE_AT = {"llm": Position.ANSWER, "engine": Position.ANSWER, "parser": Position.PARSING, "tool": Position.TOOL,
           "env": Position.TOOL, "reward": Position.REWARD}  # fmt: skip


def raised(*roles: str) -> Declared:
    """The trait of errors in calls with ``roles``, at any depth, whether or not the caller went on."""

    def errors(evidence: Evidence) -> Iterator[Shown]:
        for span in evidence.trajectory.spans:
            if (
                span.error
                and span.status != "CANCELLED"
                and (span.role in roles or (not roles and span.role not in ROLE_AT))
            ):
                went_on = " and the rollout goes on" if evidence.root.status == OK else ""
                yield f"{span.shown_name} raises {classed(span.error_text or '')}{went_on}", None

    return errors


for _position in sorted({*ROLE_AT.values()}):
    DECLARED[f"errors_{_position.name.lower()}"] = (
        _position,
        raised(*(r for r, at in ROLE_AT.items() if at is _position)),
    )
DECLARED["errors"] = Position.END, raised()


@trait(Position.PLACE)
def place(evidence: Evidence) -> Iterator[Shown]:
    """Host, process, engine."""
    root = evidence.root
    if root.host:
        yield f"the host is {root.host}", None
        yield f"the process is {root.pid} on {root.host}", None
    for server in sorted({str(call.figures["server"])[:80] for call in evidence.turns if call.figures.get("server")})[
        :4
    ]:
        yield f"the engine is {server}", None
