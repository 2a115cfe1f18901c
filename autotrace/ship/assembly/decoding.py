"""Decode token ids to text, with the tokenizer of the run or a named tokenizer, here and never in the rollout.

A tokenizer is loaded for the first trajectory with token ids (``tokenizer``). A decoding failure costs the text, never
the trajectory.
"""

from __future__ import annotations

import dataclasses
import logging
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from autotrace.config import environment as env
from autotrace.redact.redactor import Redactor
from autotrace.run import layout
from autotrace.run.info import RunInfo, plan_of
from autotrace.ship.assembly.conversation import ConversationDecoder
from autotrace.ship.assembly.shared_prompts import SharedPrompts
from autotrace.ship.assembly.tokenizer import Decode, load
from autotrace.spool.blobs import keep_tokenizer
from autotrace.trajectory.model import Span, Trajectory

_WITHHELD = "token ids, not delivered (--content text)"


def without_token_ids(trajectory: Trajectory) -> None:
    """Remove the token ids of ``trajectory``; the numbers of tokens stay (``prompt_tokens``, ``response_tokens``).

    Captured values lose token ids, too: any list of integers under a name that ends in ``ids``.
    """
    for span in trajectory.spans:
        if span.prompt_tokens is None and (prompt := span.prompt_ids) is not None:
            span.prompt_tokens = len(prompt)
        if span.response_ids is not None and span.response_tokens is None:
            span.response_tokens = len(span.response_ids)
        span.prompt_ids = span.new_prompt_ids = span.response_ids = span.prompt_base = None
        span.prompt_keep = 0
        span.inputs, span.output, span.attributes = _walk(span.inputs), _walk(span.output), _walk(span.attributes)


def _walk(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: f"{len(item)} {_WITHHELD}" if _ids(name, item) else _walk(item) for name, item in value.items()}
    return [_walk(item) for item in value] if isinstance(value, (list, tuple)) else value


def _ids(name: Any, value: Any) -> bool:
    if not (isinstance(name, str) and name.lower().endswith("ids") and isinstance(value, (list, tuple)) and value):
        return False
    rows = value if isinstance(value[0], (list, tuple)) else [value]
    return all(isinstance(row, (list, tuple)) and all(type(item) is int for item in row) for row in rows)


_log = logging.getLogger("autotrace.ship")


_PATTERNS = (
    "the run was recorded with --redact-patterns, and a pattern that a folder names is not run; "
    f"to have its texts, set {env.REDACT_PATTERNS} to the same pattern"
)


class Decoder:
    """Add the texts to trajectories. A tokenizer that the plan names for a target decodes that target's calls; the
    tokenizer in ``run.json``, else the tokenizer that the run reports (``bind``), decodes all other calls.

    The run's own shipper (``environment.OWN_RUN``) loads the run's tokenizer and keeps a copy. For any other reader the
    folder may be a stranger's: reading writes nothing into the folder, runs no code, asks no address, and of the named
    paths opens only the copies inside the folder. ``much``: see ``tokenizer.load``.
    """

    def __init__(self, run_folder: str | Path, *, much: bool = False) -> None:
        folder = Path(run_folder)
        own, plan = env.is_own(folder), plan_of(folder)
        pattern = os.environ.get(env.REDACT_PATTERNS, "").strip()
        patterns = plan.settings.redact_patterns if own or not pattern else (pattern,)
        foreign = not own and not set(plan.settings.redact_patterns) <= {pattern}
        redactor = Redactor(
            dataclasses.replace(
                plan.settings, redact_patterns=() if foreign else patterns, max_string=1 << 40, redact_hook=None
            )
        )
        """The run's own rules; texts of whole trajectories are not cut."""

        def made(name: str | None) -> _Tokenizer:
            tokenizer = _Tokenizer(folder, redactor, own, much, _PATTERNS if foreign else None)
            if name is not None:
                tokenizer.bind({"path": name, "blob": copies.get(name)})
            return tokenizer

        self._text_only = plan.settings.content == "text"
        of_run, copies = _named(folder)
        self._told = of_run is None
        """Whether the run reports its tokenizer."""
        self._of_run = made(of_run)
        by_name = {target.tokenizer: made(target.tokenizer) for target in plan.targets if target.tokenizer}
        self._of_targets = {target.key: by_name[target.tokenizer] for target in plan.targets if target.tokenizer}

    @property
    def problem(self) -> str | None:
        """Return why texts are missing, in words for the user; None if no text is missing."""
        return next((one.problem for one in (self._of_run, *self._of_targets.values()) if one.problem), None)

    def bind(self, value: Mapping[str, Any]) -> None:
        """Take ``{path, revision, trust_remote_code, blob}`` of the run's tokenizer. ``blob`` names a copy in the run
        folder, which is preferred."""
        if self._told:
            self._of_run.bind(value)

    def add_texts(self, trajectory: Trajectory) -> None:
        """Fill the texts and messages of ``trajectory``; under ``--content text`` then remove its token ids, decoded or
        not. Never raises."""
        for tokenizer, spans in self._asked(trajectory):
            tokenizer.add_texts(trajectory, spans)
        if self._text_only:
            without_token_ids(trajectory)

    def decode(self, ids: list[int], key: str = "") -> str | None:
        """Return the text of ``ids`` of the target ``key``, not redacted; None without a tokenizer, or for an unknown
        id."""
        decode = self._of_targets.get(key, self._of_run).loaded()
        try:
            return None if decode is None else decode(ids)
        except Exception:  # a token id out of range, a tokenizer's own code
            return None

    def _asked(self, trajectory: Trajectory) -> Iterator[tuple[_Tokenizer, list[Span]]]:
        """Yield each tokenizer with the calls to decode, in order."""
        having = [span for span in trajectory.spans if span.packed_prompt or span.packed_response]
        if having and not self._of_targets:
            yield self._of_run, trajectory.spans
            return
        by_tokenizer: dict[_Tokenizer, list[Span]] = {}
        for span in having:
            by_tokenizer.setdefault(self._of_targets.get(span.key, self._of_run), []).append(span)
        yield from by_tokenizer.items()


class _Tokenizer:
    """Load a tokenizer of a run on demand. ``bind`` names the source; before ``bind`` nothing is decoded."""

    def __init__(self, run_folder: Path, redactor: Redactor, own: bool, much: bool, refused: str | None) -> None:
        """Take ``refused``: why nothing is decoded."""
        self._run_folder, self._redactor = run_folder, redactor
        self._own, self._much = own, much
        self._seen: list[dict[str, Any]] = []
        self._binds: list[dict[str, Any]] = []
        self._decode: Decode | None = None
        self._shared: SharedPrompts | None = None
        self._source = ""
        self._refused = refused
        self.problem: str | None = None

    def bind(self, value: Mapping[str, Any]) -> None:
        """See ``Decoder.bind``."""
        bind = dict(value)
        if bind in self._seen:
            return
        self._seen.append(bind)
        try:  # copy now: a run may load its tokenizer from a temporary folder
            if self._own and not bind.get("blob"):
                bind["blob"] = keep_tokenizer(self._run_folder, str(bind.get("path") or ""))
        except OSError as error:
            _log.warning("the tokenizer cannot be copied: %s", error)
        self._binds.append(bind)
        if self._decode is None:
            self.problem = None

    def add_texts(self, trajectory: Trajectory, spans: list[Span]) -> None:
        """Fill the texts and messages of ``spans``. Never raises."""
        decode = self.loaded()
        if decode is None:
            if self.problem:
                trajectory.notes.append(f"no text: {self.problem}")
            return
        trajectory.tokenizer = trajectory.tokenizer or self._source
        try:
            if self._shared is None:
                self._shared = SharedPrompts(decode, self._redactor)
            ConversationDecoder(trajectory, decode, self._redactor, self._shared, spans).fill()
        except Exception as error:  # a token id out of range, a tokenizer's own code
            trajectory.notes.append(f"no text: decoding failed with {type(error).__name__}")

    def loaded(self) -> Decode | None:
        """Return the decoding function; None without a tokenizer, or if the tokenizer cannot be loaded."""
        if self._decode is not None or self.problem is not None or not self._binds:
            return self._decode
        if self._refused is not None:
            self.problem = self._refused
            return None
        problems = []
        for bind in self._binds:
            for source in self._sources(bind):
                try:
                    self._decode = load(source, bind, self._run_folder, trusted=self._own, much=self._much)
                    self._source = source
                    return self._decode
                except Exception as error:
                    problems.append(f"{source}: {type(error).__name__}: {str(error).splitlines()[:1]}"[:300])
        self.problem = "the tokenizer cannot be loaded (" + "; ".join(problems) + ")"
        _log.warning("%s", repr(self.problem)[1:-1])  # names from the folder
        return None

    def _sources(self, bind: Mapping[str, Any]) -> list[str]:
        sources = []
        blob = bind.get("blob")
        if isinstance(blob, str) and blob and "/" not in blob and not blob.startswith("."):
            sources.append(str(self._run_folder / layout.BLOBS / blob))
        path = bind.get("path")
        if isinstance(path, str) and path and (self._own or not os.path.lexists(path)):  # else a name on the hub
            sources.append(path)
        return sources


def _named(run_folder: Path) -> tuple[str | None, dict[str, str]]:
    """Return the tokenizer named for the whole run, and the copies of tokenizers that are folders."""
    try:
        info = RunInfo.read(run_folder)
    except (OSError, msgspec.MsgspecError):
        return None, {}
    return info.tokenizer, info.tokenizers
