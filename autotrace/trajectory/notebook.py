"""A trajectory as a notebook shows it: one block of HTML in which everything that a model wrote is escaped."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator

from autotrace.trajectory.divergence import calls
from autotrace.trajectory.model import Span, Trajectory
from autotrace.trajectory.span_text import input_text, output_text

MAX_TEXT = 20_000
"""Characters shown of one text."""
_HIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ud800-\udfff\ufeff]")
"""What acts on a reader's eyes or screen."""
_PROSE = "white-space:pre-wrap;overflow-wrap:anywhere;font:13px/1.5 monospace;unicode-bidi:isolate"
_IDENTITY = ("step", "sample_index", "rollout_n", "uid", "data_source")


def as_html(trajectory: Trajectory) -> str:
    """The conversation turn by turn, each with its tool calls and errors."""
    return "\n".join(["<div>", *_parts(trajectory), "</div>"])


def _parts(trajectory: Trajectory) -> Iterator[str]:
    known = {name: trajectory.attributes[name] for name in _IDENTITY if trajectory.attributes.get(name) is not None}
    known |= {name: trajectory.facts[name] for name in ("reward", "advantage") if name in trajectory.facts}
    said = " · ".join(f"{name} <b>{_escaped(value)}</b>" for name, value in known.items())
    yield f"<div><code>{_escaped(trajectory.trace_id[:12])}</code> {_escaped(trajectory.status)} · {said}</div>"
    made = calls(trajectory)
    for turn, span in enumerate(trajectory.llm_spans, 1):
        yield _text("prompt" if turn == 1 else f"before turn {turn}", input_text(span) or "", "#999", folded=turn == 1)
        error = f"\n{span.error_text}" if span.error_text else ""
        yield _text(f"turn {turn}{_tokens(span)}", (output_text(span) or "") + error, "#3b82c4")
        for call in made:
            if call.turn == turn:
                yield _text(f"{call} {'' if call.status == 'OK' else call.status}", call.result, "#e08e1b")
    for note in trajectory.notes:
        yield _text("note", note, "#999")


def _tokens(span: Span) -> str:
    said = "" if span.response_tokens is None else f" · {span.response_tokens:,} tokens"
    known = [value for value in span.logprobs or () if value is not None]
    if known:
        said += f" · mean log-probability {sum(known) / len(known):.3g}, lowest {min(known):.3g}"
    return said


def _text(title: str, text: str, colour: str, *, folded: bool = False) -> str:
    rest = f"\n… {len(text) - MAX_TEXT:,} characters more" if len(text) > MAX_TEXT else ""
    head = _escaped(title if len(title) <= 300 else f"{title[:299]}…")
    body = f'<div style="{_PROSE}">{_escaped(text[:MAX_TEXT] + rest)}</div>'
    inner = f"<details><summary>{head}</summary>{body}</details>" if folded else f"<b>{head}</b>{body}"
    return f'<div style="border-left:3px solid {colour};padding-left:10px;margin:6px 0">{inner}</div>'


def _escaped(value: object) -> str:
    return html.escape(_HIDDEN.sub(lambda match: repr(match[0])[1:-1], str(value)))
