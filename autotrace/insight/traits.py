"""Declare traits, by which rollouts are compared. A trait is declared once, in a few lines over one trajectory:

    @trait(Stage.SAMPLING)
    def model(evidence: Evidence) -> Iterator[Shown]:
        for call in evidence.turns[:1]:
            yield f"the model is {call.span.inputs.get('model')}", None

The text is the whole sentence that a person reads, so rollouts with equal sentences share the trait. With a number
beside the sentence, the sentence names a quantity, and ``contrast`` searches for the threshold that tells two sets
apart. The position says how early in a rollout the trait comes about: an early trait is a cause of a later trait.

Traits are computed once, when a trajectory is complete, and kept in its profile. Findings of a trajectory, its ending
and its times are traits, too (``of_record``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from enum import IntEnum
from itertools import islice

from autotrace.insight import conduct
from autotrace.insight.conduct import SKELETON, content_of, digest_of, first_prompt, masked
from autotrace.insight.evidence import CUT, Evidence
from autotrace.insight.profile import Trait
from autotrace.insight.step_records import grouped
from autotrace.trajectory.chains import tree_of
from autotrace.trajectory.jsonable import loaded, text
from autotrace.trajectory.model import OK
from autotrace.trajectory.span_text import answered_words, thoughts
from autotrace.trajectory.token_ids import piece, tokens, unpacked
from autotrace.trajectory.tool_calls import BESIDE_NAME, ToolCall

MOST, LONGEST = 48, 160
"""Limit the traits of a trajectory, and the characters of each trait."""
EDGE, SHORT_EDGE = 40, 16
"""Keep so many characters of a text's beginning and end; a prompt may name its subject soon."""
FEW = 3
"""Keep so many answers of a tool in one trajectory."""
Shown = tuple[str, float | None]
"""Describe the trait in words, with its number if the trait is a quantity."""
Declared = Callable[[Evidence], Iterator[Shown]]


class Stage(IntEnum):
    """Order the stages of a rollout in which traits come about, the earliest first. Times and places come last: a time
    or a place explains only if nothing else does."""

    DATA, PROMPT, SAMPLING, ANSWER, PARSING, TOOL, HISTORY, END, REWARD, TIME, PLACE = range(11)


DECLARED: dict[str, tuple[Stage, Declared]] = {}
PROVES: dict[str, str] = {}
"""Map a trait that is a fault by itself -> the code of the finding."""


def trait(position: Stage, proves: str = "") -> Callable[[Declared], Declared]:
    """Declare a trait that comes about at ``position``. A trait that ``proves`` a finding has its turn as number."""

    def declare(of: Declared) -> Declared:
        DECLARED[of.__name__] = position, of
        if proves:
            PROVES[of.__name__] = proves
        return of

    return declare


def shown(evidence: Evidence, name: str) -> list[Shown]:
    """Return the sentences of a trait that proves a finding: the finding and the trait share one computation."""
    if name not in evidence.shown:
        evidence.shown[name] = list(DECLARED[name][1](evidence))
    return evidence.shown[name]


def traits_of(evidence: Evidence, failed: Callable[[str, Exception], None]) -> list[Trait]:
    """Compute the declared traits of a trajectory; ``failed`` is called for each trait that raises."""
    found: dict[str, Trait] = {}
    for name, (_, of) in DECLARED.items():
        try:
            for said, value in shown(evidence, name) if name in PROVES else of(evidence):
                short = " ".join(text(said).split())
                short = short if len(short) <= LONGEST else short[: LONGEST - 1] + "…"
                found.setdefault(said, Trait(name, short, None if name in PROVES else value))
        except Exception as error:  # recorded values may have any shape
            failed(f"trait {name}", error)
    return list(islice(found.values(), MOST))


# -- the prompt and its sampling ---------------------------------------------------------------------------------------


@trait(Stage.DATA)
def begun(evidence: Evidence) -> Iterator[Shown]:
    """Show whether the model was called at all."""
    if not evidence.turns:
        yield "the rollout makes no LLM call", None


@trait(Stage.PROMPT)
def prompt(evidence: Evidence) -> Iterator[Shown]:
    """Show the roles, the system prompt, beginning and end of the question."""
    messages = first_prompt(evidence)
    if messages:
        yield f"the first prompt has the roles {', '.join(str(one.get('role')) for one in messages[:12])}", None
        yield "characters of the first prompt", float(sum(len(content_of(one)) for one in messages))
    for message in messages[:1]:
        if message.get("role") in ("system", "developer"):
            yield f'the system prompt is "{masked(content_of(message))}" ({digest_of(content_of(message), 2)})', None
    asked = content_of(messages[-1]) if messages else ""
    for edge in (EDGE, SHORT_EDGE) if asked else ():
        yield f'the question begins with "{masked(asked[:edge])}"', None
        yield f'the question ends with "{masked(asked[-edge:])}"', None


@trait(Stage.PROMPT)
def tools_offered(evidence: Evidence) -> Iterator[Shown]:
    """Show the names of the tools that the first request offers."""
    for call in evidence.turns[:1]:
        if call.span.messages or "tools" in call.span.inputs:
            offered = call.span.inputs.get("tools")
            names = sorted(filter(None, map(conduct.tool_name, offered))) if isinstance(offered, list) else []
            yield f"the request offers {'the tools ' + ', '.join(names) if names else 'no tools'}", None


@trait(Stage.PROMPT)
def first_tokens(evidence: Evidence) -> Iterator[Shown]:
    """Show the tokens with which the first prompt begins, and ends."""
    prompt = (evidence.turns[0].span.packed_prompt or b"") if evidence.turns else b""
    for where, at in (("begins", 0), ("ends", max(0, tokens(prompt) - 6))):
        if ids := unpacked(piece(prompt, at, at + 6)):
            yield f"the first prompt {where} with the tokens {' '.join(map(str, ids))}", None


@trait(Stage.SAMPLING)
def sampling(evidence: Evidence) -> Iterator[Shown]:
    """Show the sampling parameters and the model of the first request."""
    for call in evidence.turns[:1]:
        inputs = call.span.inputs
        more = inputs["extra_body"] if isinstance(inputs.get("extra_body"), dict) else {}
        given = {**{name: inputs[name] for name in _PARAMETERS if name in inputs}, **more, **call.sampling}
        for name, value in islice(given.items(), 12):
            if isinstance(value, (bool, int, float, str, list, dict)):
                yield f"{name} is {str(value)[:40]}", None


_PARAMETERS = ("model", "temperature", "top_p", "top_k", "min_p", "max_tokens", "max_completion_tokens", "seed", "stop",
               "tool_choice", "presence_penalty", "frequency_penalty", "reasoning_effort")  # fmt: skip


# -- answers and calls -------------------------------------------------------------------------------------------------


@trait(Stage.ANSWER)
def thinking(evidence: Evidence) -> Iterator[Shown]:
    """Show whether the model thinks, and whether its thinking ends."""
    texts = [answered_words(call.span) or "" for call in evidence.turns]
    if any(thoughts(call.span) for call in evidence.turns) or any("<think>" in text for text in texts):
        yield "the model thinks", None
    if any("<think>" in text and "</think>" not in text for text in texts):
        yield "the thinking has no end (</think>)", None
    if any(not text.strip() for text in texts) and evidence.turns and any(texts):
        yield "an answer has no text", None


@trait(Stage.ANSWER)
def after_the_end(evidence: Evidence) -> Iterator[Shown]:
    """Show an answer that goes on after its end token: the token with which the answer ends."""
    for call in evidence.turns:
        if call.last is not None and call.finish not in CUT and call.last in unpacked(call.ids or b"")[:-1]:
            yield f"an answer goes on after the token {call.last}, with which the answer ends", None


@trait(Stage.PARSING)
def calls_in_text(evidence: Evidence) -> Iterator[Shown]:
    """Show that a tool call stays in the text of an answer."""
    for call in evidence.turns:
        if conduct.text_call(call.span) is not None:
            yield "a tool call stays in the text of the answer", None


@trait(Stage.PARSING)
def calls(evidence: Evidence) -> Iterator[Shown]:
    """Count the calls that answers request, and the calls of tools."""
    asked = [len(conduct.requested(evidence, call)) for call in evidence.turns]
    if evidence.parsed or any(call.span.messages for call in evidence.turns):
        yield "calls that the model asks for", float(sum(asked))
    yield from ((f"calls of {name}", float(n)) for name, n in Counter(call.name for call in evidence.tools).items())


@trait(Stage.TOOL)
def tool_answers(evidence: Evidence) -> Iterator[Shown]:
    """Show the called tools, and the answers of tools and of the environment."""
    yield f"the tools called are {', '.join(sorted({call.name for call in evidence.tools})) or 'none'}", None
    for name, made in grouped(_asked(evidence), lambda call: call.name).items():
        if made[0].span.role == "tool":  # what an environment says follows from the actions
            yield f"characters of {name}'s longest answer", float(max(len(call.answer) for call in made))
        told = Counter(words for call in made if (words := _told(call, quotes=True)))
        yield from ((f"{name} {words}", None) for words, _ in told.most_common(FEW))


@trait(Stage.TOOL)
def fixed_answers(evidence: Evidence) -> Iterator[Shown]:
    """Show answers of tools that repeat no word of the question: equal answers in many groups answer different
    questions."""
    told = Counter((call.name, words) for call in _asked(evidence) if (words := _told(call, quotes=False)))
    yield from ((f"{name} {words}", None) for (name, words), _ in told.most_common(FEW))
    for name in {name: None for name, words in told if words.startswith('answers "')}:
        yield f"{name}'s answer repeats no word of the call", None


def _asked(evidence: Evidence) -> list[ToolCall]:
    """Return the calls of tools and of the environment."""
    return [*evidence.tools, *(ToolCall(span, 0) for span in evidence.trajectory.spans if span.role == "env")]


def _told(call: ToolCall, quotes: bool) -> str:
    """Describe a tool's answer, if the answer repeats (``quotes``), or does not repeat, a part of the question."""
    if call.failed is not None or not call.told.strip():
        what = f"raises {masked(call.failed.error_text or '')}" if call.failed is not None else "answers nothing"
        return "" if quotes else what
    skeleton = masked(call.told, call.arguments)
    return f'answers "{skeleton}"' if quotes == ("…" in skeleton[:SKELETON]) else ""


@trait(Stage.PARSING)
def arguments(evidence: Evidence) -> Iterator[Shown]:
    """Show the names of the arguments of tool calls."""
    told = Counter((call.name, shape(call)) for call in evidence.tools)
    yield from ((f"{name} is given {words}", None) for (name, words), _ in told.most_common(2 * FEW))


def shape(call: ToolCall) -> str:
    """Describe the names of the arguments of a call."""
    inputs = call.span.inputs
    called = inputs.get("tool_call")
    given = called if isinstance(called, dict) else inputs
    given = next((given[name] for name in sorted(BESIDE_NAME) if name in given), given)
    given = loaded(given, given) if isinstance(given, str) else given
    if not isinstance(given, dict):
        return "a text" if given else "no arguments"
    return ", ".join(sorted(map(str, given))[:8]) or "no arguments"


# -- history and end ---------------------------------------------------------------------------------------------------


@trait(Stage.HISTORY)
def history(evidence: Evidence) -> Iterator[Shown]:
    """Show the part of earlier turns that a later prompt lacks."""
    lost = conduct.history_lost(evidence)
    if lost is not None:
        yield f"a later prompt lacks the {lost[1]} of an earlier turn", None
    for chain in tree_of(evidence.trajectory).chains:
        if chain.kind is not None:
            yield f"a later prompt lacks earlier turns ({chain.kind})", None


@trait(Stage.END)
def end(evidence: Evidence) -> Iterator[Shown]:
    """Show how the rollout ends, and on which call or answer."""
    if not evidence.turns:
        return
    last = evidence.final[-1]
    if last.finish:
        yield f"the last turn ends with {last.finish}", None
    on = conduct.ended_on(evidence)
    yield f"the rollout ends on {'an answer of the model' if on is None else on}", None


@trait(Stage.REWARD)
def judged(evidence: Evidence) -> Iterator[Shown]:
    """Show the last answer, and the text that the reward function judged."""
    said = answered_words(evidence.final[-1].span) if evidence.turns else None
    if said is not None:
        yield "characters of the last answer", float(len(said))
        yield f'the last answer begins with "{masked(said[:EDGE])}"', None
        yield f'the last answer ends with "{masked(said[-SHORT_EDGE:])}"', None
    for span in evidence.rewards[:1]:
        if span.output is None:
            yield f"{span.shown_name} returns nothing", None
    for judged_text in evidence.judged[:1]:
        yield f'the judged text begins with "{masked(judged_text[:EDGE])}"', None
        yield f'the judged text ends with "{masked(judged_text[-EDGE:])}"', None


ROLE_AT = {"llm": Stage.ANSWER, "engine": Stage.ANSWER, "parser": Stage.PARSING, "tool": Stage.TOOL,
           "env": Stage.TOOL, "reward": Stage.REWARD}  # fmt: skip


def raised(*roles: str) -> Declared:
    """Create the trait of errors in calls with ``roles``, at any depth, whether or not the caller went on."""

    def errors(evidence: Evidence) -> Iterator[Shown]:
        for span in evidence.trajectory.spans:
            if (
                span.error
                and span.status != "CANCELLED"
                and (span.role in roles or (not roles and span.role not in ROLE_AT))
            ):
                went_on = " and the rollout goes on" if evidence.root.status == OK else ""
                yield f"{span.shown_name} raises {masked(span.error_text or '')}{went_on}", None

    return errors


for _position in sorted({*ROLE_AT.values()}):
    DECLARED[f"errors_{_position.name.lower()}"] = (
        _position,
        raised(*(r for r, at in ROLE_AT.items() if at is _position)),
    )
DECLARED["errors"] = Stage.END, raised()


@trait(Stage.PLACE)
def place(evidence: Evidence) -> Iterator[Shown]:
    """Show host, process and engine."""
    root = evidence.root
    if root.host:
        yield f"the host is {root.host}", None
        yield f"the process is {root.pid} on {root.host}", None
    servers = {str(call.figures["server"])[:80] for call in evidence.turns if call.figures.get("server")}
    for server in sorted(servers)[:4]:
        yield f"the engine is {server}", None
