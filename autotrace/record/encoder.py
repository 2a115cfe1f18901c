"""Convert events into records for the spool from the copies of the callers. Runs on the flusher's thread.

Arguments get names, secrets are taken out, and token lists become "the tokens that were written already plus the new
tokens".
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from autotrace.config.plan import Settings
from autotrace.record import faults
from autotrace.record.backlog import WhenRecording
from autotrace.record.context import Ended, OpenCall, RetainingCall
from autotrace.record.conversations import Conversations
from autotrace.record.pickled import Pickled
from autotrace.record.snapshot import Limits
from autotrace.record.timeline import EngineOutputs, Timeline
from autotrace.record.token_prefixes import TokenLog, WrittenPrompt
from autotrace.redact.redactor import Redactor
from autotrace.spool.records import (
    MEASURED,
    OF,
    Bind,
    Close,
    Define,
    Fact,
    NewTokens,
    Open,
    Record,
    Report,
    StepFacts,
    TokenFacts,
)
from autotrace.trajectory.jsonable import jsonable

if TYPE_CHECKING:
    from autotrace.record.conversation_roots import ConversationRoots


class RecordEncoder:
    """Converts events into records; ``add`` gets the records in the order of the file."""

    def __init__(
        self, settings: Settings, epoch: int, add: Callable[[Record | WhenRecording], None], run_folder: str = ""
    ) -> None:
        self.settings = settings
        self.epoch = epoch
        """Holds the epoch of the token sequences that records may refer to. Sequences of another epoch were written by
        a forked child's parent, or were lost on a full disk."""
        self._add = add
        self._run_folder = run_folder
        self._redactor: Redactor | None = None
        self._conversations: Conversations | None = None
        self.roots: ConversationRoots | None = None
        """Holds roots for calls outside any recorded call; None until such a call came."""
        self._withheld = settings.content == "none"
        self._numbers: dict[tuple[str, str, str], int] = {}
        self._kinds: dict[type, Callable[[Any], None]] = {
            OpenCall: self._opened,
            RetainingCall: self._opened,
            Ended: self._ended,
            EngineOutputs: self._arrived,
            Fact: self._fact,
            TokenFacts: add,
            StepFacts: add,
            Bind: self._bind,
            Report: add,
            WhenRecording: add,
        }

    def write(self, event: object) -> None:
        """Add the records of ``event`` (an ``Event``)."""
        self._kinds[type(event)](event)

    def forget_tokens(self) -> None:
        """Discard all token sequences after records were lost: later records cannot refer to the lost token lists."""
        self.epoch += 1

    def _opened(self, call: OpenCall) -> None:
        signature, probe = call.signature, call.probe
        if signature is None or probe is None:
            return
        target = self._target(probe.key, probe.label or signature.name, probe.role, signature.module)
        tokens = None
        prompt, call.prompt = call.prompt, None
        if prompt is not None:
            tokens = self._numbers_of(call, "prompt", self._prompt, prompt)
        inputs = None
        if call.args or call.keywords:
            inputs = self._clean_all(probe.capture.ordered(signature.named(call.args or (), call.keywords))) or None
        attributes = None if call.attributes is None else self._clean_all(call.attributes)
        if probe.is_inner and not call.parent and OF not in (attributes or ()):
            attributes = {**(attributes or {}), **self._rooted(call, inputs or {})}
        call.args = call.keywords = call.attributes = None
        self._add(
            Open(
                span=call.id,
                trace=call.trace.id,
                parent=call.parent,
                target=target,
                at=call.at,
                inputs=inputs,
                attributes=attributes,
                prompt=tokens,
            )
        )

    def _ended(self, event: Ended) -> None:
        call = event.call
        if call.args is not None:  # the opening was never queued: an exception of the host's came before
            return
        if type(call) is RetainingCall and call.timeline is not None:
            self._request(call, call.timeline, event)
            call.timeline = None
        output = self._clean("result", event.output)
        attributes = None if event.attributes is None else self._clean_all(event.attributes)
        if call.swallowed:
            notes = [note.described(*self._error(*note.error)[:2]) for note in call.swallowed]
            attributes = {**(attributes or {}), "swallowed": notes}
        if self.roots is not None and not call.parent:
            try:
                self.roots.ended(event, output)
            except Exception as error:
                faults.failed("conversation", error)
        self._add(
            Close(
                span=call.id,
                trace=call.trace.id,
                at=event.at,
                status=event.status,
                output=output,
                attributes=attributes,
                error=None if event.error is None else self._error(*event.error),
                response=self._numbers_of(call, "response", self._response, event.response, event.skip),
                logprobs=self._numbers_of(call, "logprobs", self._logprobs, event.logprobs or None),
                mask=self._numbers_of(call, "mask", self._mask, event.mask),
                first_item_at=call.first_item_at,
                skip=event.skip,
                **{name: getattr(call, name) for name in MEASURED},
            )
        )

    def _rooted(self, call: OpenCall, inputs: dict[str, Any]) -> dict[str, Any]:
        if self.roots is None:
            from autotrace.record.conversation_roots import ConversationRoots

            self.roots = ConversationRoots(self._add, self._target)
        try:
            return self.roots.begun(call, inputs)
        except Exception as error:  # the call loses its place, not its record
            faults.failed("conversation", error)
            return {}

    def _arrived(self, event: EngineOutputs) -> None:
        event.read(*event.seen)

    def _request(self, call: OpenCall, timeline: Timeline, event: Ended) -> None:
        """Add the notes of an engine's adapter on the request: timings and, over all chunks, tokens."""
        try:
            generated = timeline.response() if timeline.response is not None else None
            if generated is not None:
                event.response, event.skip = list(generated), 0
            count = None if event.response is None else len(event.response)
            event.attributes = {**timeline.read(call.at, count), **(event.attributes or {})}
            if event.response is not None and call.prompt is None and timeline.prompt:
                event.response = [*timeline.prompt, *event.response]
                event.skip = len(timeline.prompt)
        except Exception as error:
            faults.failed("timeline", error)

    def _numbers_of(self, call: OpenCall, field: str, write: Callable[..., Any], numbers: Any, *more: int) -> Any:
        """Return the result of ``write`` for ``numbers``. Returns None without numbers, or where the list's path leads
        to something else (messages, a dict per token): then the span loses the numbers, but not the record."""
        if numbers is None:
            return None
        try:
            return write(call, numbers, *more)
        except Exception as error:
            if (probe := call.probe) is not None:
                named = ", ".join(path.text for path in getattr(probe.paths, field)) or "result"
                faults.failed(f"tokens:{probe.key}:{field}: {named}", error)
            return None

    def _prompt(self, call: OpenCall, prompt: Sequence[int]) -> NewTokens:
        log = self._log(call)
        if log is None:
            tokens, call.prompt = TokenLog(self.epoch).prompt(prompt, withheld=True)
        else:
            tokens, call.prompt = log.prompt(prompt, self._withheld)
        return tokens

    def _response(self, call: OpenCall, response: Sequence[int], skip: int) -> NewTokens:
        log = self._log(call)
        withheld = self._withheld or log is None
        log = log or TokenLog(self.epoch)
        note, call.prompt = call.prompt, None
        if skip:
            return log.prompt(response, withheld)[0]  # prompt and response in one: most tokens were written already
        written = note if isinstance(note, WrittenPrompt) and note.epoch == self.epoch else None
        return log.response(written, response, withheld)

    def _logprobs(self, _: OpenCall, logprobs: Sequence[float]) -> bytes:
        return array("f", logprobs).tobytes()

    def _mask(self, _: OpenCall, mask: Sequence[int]) -> bytes:
        return bytes([1 if flag else 0 for flag in mask])

    def _log(self, call: OpenCall) -> TokenLog | None:
        """Return the token log of the call's trace; None when another process records the tokens of this call."""
        trace = call.trace
        if trace.elsewhere:
            return None
        log = trace.tokens
        if log is None:
            log = trace.tokens = TokenLog(self.epoch)
        elif log.epoch != self.epoch:
            log.forget(self.epoch)
        return log

    def _fact(self, fact: Fact) -> None:
        self._add(Fact(fact.trace, fact.key, fact.name, self._clean(fact.name, fact.value), fact.at))

    def _bind(self, bind: Bind) -> None:
        value = jsonable(bind.value)
        if bind.name == "tokenizer":
            value = self._with_copy(value)
        self._add(Bind(bind.name, self._clean(bind.name, value), bind.at))

    def _with_copy(self, value: dict[str, Any]) -> dict[str, Any]:
        """Copy the tokenizer's files at once: a run may load the files from a temporary folder."""
        from autotrace.spool.blobs import claim_tokenizer

        try:
            blob = claim_tokenizer(self._run_folder, str(value.get("path") or ""))
        except FileNotFoundError:  # the program deleted the folder before the copy: the shipper reports the loss
            return value
        except OSError as error:  # then the shipper tries
            faults.failed("tokenizer", error)
            return value
        return value if blob is None else {**value, "blob": blob}

    def _error(self, kind: str, arguments: Any, frames: list[tuple[str, int | None, str]]) -> tuple[str, str, str]:
        if self._withheld:
            message = ""
        elif isinstance(arguments, list) and len(arguments) == 1:
            message = str(self._clean("message", arguments[0]))
        else:
            message = str(self._clean("message", arguments) or "")
        # The file of a wrapper's frame is the original's file, by a way through our own folder (``template``).
        stack = "\n".join(f'  File "{os.path.normpath(file)}", line {line}, in {name}' for file, line, name in frames)
        return kind, message, stack

    def _keep_image(self, image: bytes, media_type: str) -> str | None:
        from autotrace.spool.blobs import keep_image

        return keep_image(self._run_folder, image, media_type)

    def _clean_all(self, values: dict[str, Any]) -> dict[str, Any]:
        return {name: self._clean(name, value) for name, value in values.items()}

    def _clean(self, name: str, value: Any) -> Any:
        if value is None or type(value) in (bool, float):
            return value
        try:
            if self._redactor is None or self._conversations is None:
                self._redactor = Redactor(self.settings, self._keep_image if self.settings.images else None)
                limits = Limits(self.settings.max_depth, self.settings.max_items, self.settings.copied)
                self._conversations = Conversations(self._redactor, limits)
            if type(value) is Pickled:
                return self._conversations.clean(name, value)
            return self._redactor.clean(name, value)
        except Exception as error:  # a redaction hook or pattern of the user's failed: the value is not written
            faults.failed("redact", error)
            return {"…": "redaction failed"}

    def _target(self, key: str, name: str, role: str, module: str) -> int:
        number = self._numbers.get((key, name, role))
        if number is None:
            number = self._numbers[key, name, role] = len(self._numbers) + 1
            self._add(Define(number, key, name, role, module))
        return number
