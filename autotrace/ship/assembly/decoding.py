"""Token ids as text, with the tokenizer that the run used. Here and never in the rollout.

The tokenizer is loaded when the first trajectory with token ids comes (``tokenizer``). What cannot be decoded costs the
text, never the trajectory.
"""

from __future__ import annotations

import dataclasses
import itertools
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from autotrace.config.plan import Plan, Settings
from autotrace.redact.redactor import Redactor
from autotrace.run import layout
from autotrace.ship.assembly.markup import UNKNOWN, prompt_messages, response_message
from autotrace.ship.assembly.text_only import without_token_ids
from autotrace.ship.assembly.tokenizer import Decode, load
from autotrace.spool.blobs import keep_tokenizer
from autotrace.trajectory.model import Span, Trajectory

_log = logging.getLogger("autotrace.ship")
_OUTER_ROLES = ("agent", "trajectory")


class Decoder:
    """Adds the texts to trajectories. ``bind`` names the tokenizer; before that nothing is decoded."""

    def __init__(self, run_folder: str | Path) -> None:
        self._run_folder = Path(run_folder)
        settings = _settings(self._run_folder)
        self._redactor = Redactor(dataclasses.replace(settings, max_string=1 << 40, redact_hook=None))
        """The run's own rules; texts of whole trajectories are not cut."""
        self._text_only = settings.content == "text"
        self._seen: list[dict[str, Any]] = []
        self._binds: list[dict[str, Any]] = []
        self._decode: Decode | None = None
        self._source = ""
        self.problem: str | None = None
        """Why texts are missing, in words for the user; None: they are not."""

    def bind(self, value: Mapping[str, Any]) -> None:
        """Take ``{path, revision, trust_remote_code, blob}``: where the run loaded its tokenizer from. ``blob`` names a
        copy in the run folder, which is preferred."""
        bind = dict(value)
        if bind in self._seen:
            return
        self._seen.append(bind)
        try:  # now, while it is there: a run may load its tokenizer from a temporary folder
            if not bind.get("blob"):
                bind["blob"] = keep_tokenizer(self._run_folder, str(bind.get("path") or ""))
        except OSError as error:
            _log.warning("the tokenizer cannot be copied: %s", error)
        self._binds.append(bind)
        if self._decode is None:
            self.problem = None

    def add_texts(self, trajectory: Trajectory) -> None:
        """Fill the texts and messages of ``trajectory``; under ``--content text`` its token ids are then removed,
        whether or not they could be decoded. Never raises."""
        self._decoded(trajectory)
        if self._text_only:
            without_token_ids(trajectory)

    def _decoded(self, trajectory: Trajectory) -> None:
        if not any(span.prompt_ids or span.response_ids for span in trajectory.spans):
            return
        decode = self._loaded()
        if decode is None:
            if self.problem:
                trajectory.notes.append(f"no text: {self.problem}")
            return
        trajectory.tokenizer = self._source
        try:
            earlier: dict[str, Span] = {}
            for span in trajectory.spans:
                earlier[span.span_id] = span
                _texts(span, earlier, decode)
            _whole_text(trajectory, decode)
            for span in trajectory.spans:
                if self._redact(span):
                    trajectory.notes.append(f"redacted after decoding, token ids left out: {span.name}")
        except Exception as error:  # a token id out of range, a tokenizer's own code
            trajectory.notes.append(f"no text: decoding failed with {type(error).__name__}")

    def _redact(self, span: Span) -> bool:
        """Redact the texts of a span again, now that tokens are text; ids that spell what was redacted go with it."""
        redacted = False
        texts = {"new_prompt_text": "new_prompt_ids", "response_text": "response_ids", "prompt_text": ""}
        for name, ids in texts.items():
            decoded = getattr(span, name)
            cleaned = None if decoded is None else self._redactor.text(decoded)
            if cleaned != decoded:
                setattr(span, name, cleaned)
                if ids:
                    setattr(span, ids, None)
                redacted = True
        if span.response_parts is not None:
            span.response_parts = self._redactor.clean("response_parts", span.response_parts)
        if redacted and span.messages is not None:
            span.messages = self._redactor.clean("messages", span.messages)
        return redacted

    def _loaded(self) -> Decode | None:
        if self._decode is not None or self.problem is not None or not self._binds:
            return self._decode
        problems = []
        for bind in self._binds:
            for source in self._sources(bind):
                try:
                    self._decode, self._source = load(source, bind, self._run_folder), source
                    return self._decode
                except Exception as error:
                    problems.append(f"{source}: {type(error).__name__}: {str(error).splitlines()[:1]}"[:300])
        self.problem = "the tokenizer cannot be loaded (" + "; ".join(problems) + ")"
        _log.warning("%s", self.problem)
        return None

    def _sources(self, bind: Mapping[str, Any]) -> list[str]:
        sources = []
        blob = bind.get("blob")
        if isinstance(blob, str) and blob and "/" not in blob and not blob.startswith("."):
            sources.append(str(self._run_folder / layout.BLOBS / blob))
        path = bind.get("path")
        if isinstance(path, str) and path:
            sources.append(path)
        return sources


def _settings(run_folder: Path) -> Settings:
    """How the run records; the defaults where its plan cannot be read."""
    try:
        return Plan.loads((run_folder / layout.PLAN_JSON).read_text(encoding="utf-8")).settings
    except (OSError, ValueError, TypeError, KeyError):
        return Settings()


def _texts(span: Span, earlier: Mapping[str, Span], decode: Decode) -> None:
    """Texts of one call; the part shared with earlier calls is copied from them, not decoded again."""
    if span.response_ids is not None:
        span.response_text = decode(span.response_ids)
    if span.prompt_ids is None or span.new_prompt_ids is None:
        return
    span.new_prompt_text = decode(span.new_prompt_ids)
    base = earlier.get(span.prompt_base or "")
    if base is None:
        span.prompt_text = span.new_prompt_text
    elif (
        base.prompt_text is not None
        and base.response_text is not None
        and span.prompt_keep == len(base.prompt_ids or ()) + len(base.response_ids or ())
    ):
        span.prompt_text = base.prompt_text + base.response_text + span.new_prompt_text
    else:
        span.prompt_text = decode(span.prompt_ids)
    if span.role == "llm" and span.messages is None:
        anew = base is not None and span.prompt_keep < len(base.prompt_ids or ()) + len(base.response_ids or ())
        before = span.prompt_text.removesuffix(span.new_prompt_text) if base is not None else ""
        span.messages = prompt_messages(span.new_prompt_text, before, UNKNOWN if anew else "user")
        if span.response_text is not None:
            span.messages.append(response_message(span.response_text))


def _whole_text(trajectory: Trajectory, decode: Decode) -> None:
    """The outermost agent call gets the first prompt and everything that followed it, as veRL's token2text has it."""
    calls = [span for span in trajectory.llm_spans if span.prompt_ids is not None]
    outer = next((span for role in _OUTER_ROLES for span in trajectory.spans if span.role == role), None)
    if not calls or outer is None:
        return
    first, last = calls[0], calls[-1]
    beginning = len(first.prompt_ids or ())
    everything = [*(last.prompt_ids or ()), *(last.response_ids or ())]
    outer.prompt_text = first.prompt_text
    response = outer.response_ids
    if response is None and everything[:beginning] == first.prompt_ids:
        response = everything[beginning:]
    if response is None:
        return
    if outer.response_text is None:
        outer.response_text = decode(response)
    outer.response_parts = _parts(response, outer.response_mask, decode)


def _parts(response: list[int], mask: list[int] | None, decode: Decode) -> list[dict[str, str]] | None:
    """The model's text (mask 1) and the tools' text (mask 0), in order."""
    if mask is None or len(mask) != len(response) or len(set(map(bool, mask))) < 2:
        return None
    parts: list[dict[str, str]] = []
    at = 0
    for model, run in itertools.groupby(map(bool, mask)):
        length = sum(1 for _ in run)
        parts.append({"model" if model else "tools": decode(response[at : at + length])})
        at += length
    return parts
