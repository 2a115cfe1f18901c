"""Token ids as text, with the tokenizer that the run used. Here and never in the rollout.

The tokenizer is loaded when the first trajectory with token ids comes (``tokenizer``). What cannot be decoded costs the
text, never the trajectory.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from autotrace.config.plan import Plan, Settings
from autotrace.redact.redactor import Redactor
from autotrace.run import layout
from autotrace.ship.assembly.conversation import Conversation
from autotrace.ship.assembly.shared_prompts import SharedPrompts
from autotrace.ship.assembly.text_only import without_token_ids
from autotrace.ship.assembly.tokenizer import Decode, load
from autotrace.spool.blobs import keep_tokenizer
from autotrace.trajectory.model import Trajectory

_log = logging.getLogger("autotrace.ship")


class Decoder:
    """Adds the texts to trajectories. ``bind`` names the tokenizer; before that nothing is decoded.

    ``read_only``: nothing is written into the run folder, which may make loading slow. ``much``: see
    ``tokenizer.load``.
    """

    def __init__(self, run_folder: str | Path, *, read_only: bool = False, much: bool = False) -> None:
        self._run_folder = Path(run_folder)
        self._read_only, self._much = read_only, much
        settings = _settings(self._run_folder)
        self._redactor = Redactor(dataclasses.replace(settings, max_string=1 << 40, redact_hook=None))
        """The run's own rules; texts of whole trajectories are not cut."""
        self._text_only = settings.content == "text"
        self._seen: list[dict[str, Any]] = []
        self._binds: list[dict[str, Any]] = []
        self._decode: Decode | None = None
        self._shared: SharedPrompts | None = None
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
            if not bind.get("blob") and not self._read_only:
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

    def decode(self, ids: list[int]) -> str | None:
        """The text of ``ids`` as it is, not redacted; None where there is no tokenizer, or it knows no such id."""
        decode = self._loaded()
        try:
            return None if decode is None else decode(ids)
        except Exception:  # a token id out of range, a tokenizer's own code
            return None

    def _decoded(self, trajectory: Trajectory) -> None:
        if not any(span.packed_prompt or span.packed_response for span in trajectory.spans):
            return
        decode = self._loaded()
        if decode is None:
            if self.problem:
                trajectory.notes.append(f"no text: {self.problem}")
            return
        trajectory.tokenizer = self._source
        try:
            if self._shared is None:
                self._shared = SharedPrompts(decode, self._redactor)
            Conversation(trajectory, decode, self._redactor, self._shared).fill()
        except Exception as error:  # a token id out of range, a tokenizer's own code
            trajectory.notes.append(f"no text: decoding failed with {type(error).__name__}")

    def _loaded(self) -> Decode | None:
        if self._decode is not None or self.problem is not None or not self._binds:
            return self._decode
        problems = []
        for bind in self._binds:
            for source in self._sources(bind):
                try:
                    self._decode = load(source, bind, self._run_folder, keep=not self._read_only, much=self._much)
                    self._source = source
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
