"""Compare texts of rollouts without the numbers, ids and quoted names that differ from rollout to rollout."""

from __future__ import annotations

import functools
import hashlib
import re
from typing import Any

from autotrace.insight.evidence import Evidence, is_chat
from autotrace.trajectory.span_text import asked_messages

LOOKED_AT, SKELETON, DIGESTED = 400, 100, 1000
"""Characters of a text that are masked, that are kept of the masked text, and that its digest reads at each end."""
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


def content_of(message: dict[str, Any]) -> str:
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
    said = [text for message in first_prompt(evidence)[:12] if (text := content_of(message))]
    whole = "".join(digest_of(text, 8) for text in said)
    return hashlib.blake2b(whole.encode(), digest_size=8).hexdigest() if said else ""


@functools.lru_cache(maxsize=512)
def digest_of(text: str, size: int) -> str:
    """A digest of the beginning and the end of ``text`` without numbers and ids."""
    ends = text if len(text) <= 2 * DIGESTED else text[:DIGESTED] + text[-DIGESTED:]
    hidden = _TOKEN.sub(lambda found: "#" if _DIGIT.search(found[0]) else found[0], ends)
    return hashlib.blake2b(hidden.encode("utf-8", "replace"), digest_size=size).hexdigest()
