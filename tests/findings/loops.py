"""Agent loops that do what people's own ones do, among it the faults of the corpus. Imported by ``program`` alone."""

from __future__ import annotations

import uuid
from contextvars import ContextVar
from typing import Any

from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopOutput, register
from verl.experimental.agent_loop.tool_agent_loop import ToolAgentLoop

from tests.findings.templates import CHATML, TEMPLATES

ENGINE: Any = None
"""The scripted engine, which knows what is planted."""
CURRENT: ContextVar[str] = ContextVar("CURRENT", default="")
"""Which rollout a loop of these makes; the engine's calls are made in its context."""


class Turns(AgentLoopBase):
    """Three turns; after each, the user says something. ``continues`` like veRL's own loops."""

    turns = 3

    async def run(self, sampling_params: dict[str, Any], **kwargs: Any) -> AgentLoopOutput:
        messages, request = list(kwargs["raw_prompt"]), uuid.uuid4().hex
        CURRENT.set(request)
        ids = self.render(messages)
        first, response, mask, output = list(ids), [], [], None
        log_probs: list[float] = []
        self.asked: list[tuple[list[int], list[int]]] = []
        for turn in range(self.turns):
            ids = self.prompt(ids, messages, turn, request)
            output = await self.server_manager.generate(
                request_id=request, prompt_ids=ids, sampling_params=self.sampling(sampling_params, turn, request)
            )
            self.planted = ENGINE.planted(request)
            self.asked.append((ids, output.token_ids))
            said = self.tokenizer.decode(output.token_ids, skip_special_tokens=True)
            self.heard(said)
            words = TEMPLATES.get(ENGINE.scenario.template, CHATML).between(f"And turn {turn}, again?")
            between = self.tokenizer.encode(words, add_special_tokens=False)
            messages += [
                {"role": "assistant", "content": said},
                {"role": "user", "content": f"And turn {turn}, again?"},
            ]
            ids = ids + output.token_ids + between
            response += output.token_ids + (between if turn + 1 < self.turns else [])
            mask += [1] * len(output.token_ids) + [0] * (len(between) if turn + 1 < self.turns else 0)
            log_probs += output.log_probs + [0.0] * (len(between) if turn + 1 < self.turns else 0)
        response, mask = self.returned(response, mask)
        limit = self.rollout_config.response_length
        made = AgentLoopOutput(
            prompt_ids=first, response_ids=response[:limit], response_mask=mask[:limit], num_turns=2 * self.turns,
            response_logprobs=log_probs[:limit] if ENGINE.scenario.training is not None else None,
            metrics={}, extra_fields=dict(output.extra_fields) if output is not None else {},
        )  # fmt: skip
        return self.made(made)

    def render(self, messages: list[dict[str, Any]]) -> list[int]:
        return self.tokenizer.apply_chat_template(
            messages, add_generation_prompt=True, tokenize=True, return_dict=False
        )

    def prompt(self, ids: list[int], messages: list[dict[str, Any]], turn: int, request: str) -> list[int]:
        return ids

    def sampling(self, given: dict[str, Any], turn: int, request: str) -> dict[str, Any]:
        return given

    def heard(self, said: str) -> None:
        pass

    def returned(self, response: list[int], mask: list[int]) -> tuple[list[int], list[int]]:
        return response, mask

    def made(self, whole: AgentLoopOutput) -> Any:
        return whole


def cleaned(message: dict[str, Any]) -> dict[str, Any]:
    """As agents do that keep text: without thinking and without spaces around."""
    return {**message, "content": message["content"].split("</think>")[-1].strip()}


@register("talks")
class Talks(Turns):
    """Three turns, as they are."""


@register("gives_up")
class GivesUp(Turns):
    """Ends in a timeout of its own."""

    def heard(self, said: str) -> None:
        if "@late" in said:
            raise TimeoutError("no answer within 30 s")


@register("renders")
class Renders(Turns):
    """Renders the whole conversation anew each turn, of cleaned text."""

    def prompt(self, ids: Any, messages: Any, turn: int, request: str) -> list[int]:
        return ids if turn == 0 else self.render([cleaned(message) for message in messages])


@register("rewrites")
class Rewrites(Turns):
    """Rewrites what the model said."""

    def prompt(self, ids: Any, messages: Any, turn: int, request: str) -> list[int]:
        if turn == 0 or not ENGINE.planted(request):
            return ids
        return self.render([{**message, "content": message["content"].replace("of", "off")} for message in messages])


@register("shortens")
class Shortens(Turns):
    """Shortens what the user said before."""

    def prompt(self, ids: Any, messages: Any, turn: int, request: str) -> list[int]:
        if turn < 2 or not ENGINE.planted(request):
            return ids
        return self.render([*messages[:2], {**messages[2], "content": "And [...]"}, *messages[3:]])


@register("masks_all")
class MasksAll(Turns):
    def returned(self, response: Any, mask: Any) -> Any:
        return response, [1] * len(mask) if self.planted else mask


@register("masks_none")
class MasksNone(Turns):
    def returned(self, response: Any, mask: Any) -> Any:
        return response, [0] * len(mask) if self.planted else mask


@register("masks_shifted")
class MasksShifted(Turns):
    def returned(self, response: Any, mask: Any) -> Any:
        return response, [0, *mask[:-1]] if self.planted else mask


@register("raises")
class Raises(Turns):
    def heard(self, said: str) -> None:
        if "@raise" in said:
            raise ValueError("the agent's own mistake")


@register("cools")
class Cools(Turns):
    """Another temperature from the second turn on."""

    def sampling(self, given: dict[str, Any], turn: int, request: str) -> dict[str, Any]:
        return {**given, "temperature": 0.3} if turn == 1 and ENGINE.planted(request) else given


@register("swaps")
class Swaps(Turns):
    """Returns an answer that the engine never gave in this rollout."""

    def returned(self, response: Any, mask: Any) -> Any:
        if not self.planted:
            return response, mask
        other = self.tokenizer.encode("Something else altogether, which another one has said long ago. #### 3",
                                      add_special_tokens=False)  # fmt: skip
        return other, [1] * len(other)


@register("asks_short")
class AsksShort(Turns):
    """Wants few tokens in its first turn."""

    turns = 2

    def sampling(self, given: dict[str, Any], turn: int, request: str) -> dict[str, Any]:
        return {**given, "max_tokens": 40} if turn == 0 else given


@register("resets")
class Resets(Turns):
    """Begins anew with a summary."""

    def prompt(self, ids: Any, messages: Any, turn: int, request: str) -> list[int]:
        return ids if turn < 2 else self.render([{"role": "user", "content": "So far: nothing. Go on."}])

    def returned(self, response: Any, mask: Any) -> Any:
        return response, mask


@register("pair")
class Pair(Turns):
    """Two agents speak in turn, each with a conversation of its own."""

    def prompt(self, ids: Any, messages: Any, turn: int, request: str) -> list[int]:
        if turn != 1:
            return ids
        return self.render(
            [{"role": "system", "content": "You judge."}, {"role": "user", "content": messages[1]["content"]}]
        )


@register("samples")
class Samples(Renders):
    """Renders anew, and returns each turn as a sample of its own (V1)."""

    def made(self, whole: Any) -> Any:
        return [
            whole.model_copy(update={"prompt_ids": ids, "response_ids": said, "response_mask": [1] * len(said)})
            for ids, said in self.asked
        ]


@register("slides")
class Slides(Turns):
    """Leaves the oldest exchange out."""

    def prompt(self, ids: Any, messages: Any, turn: int, request: str) -> list[int]:
        return self.render([messages[0], *messages[3:]]) if turn == 2 and ENGINE.planted(request) else ids


@register("dates")
class Dates(Turns):
    """Writes the time of day into the first message, whenever it renders."""

    def prompt(self, ids: Any, messages: Any, turn: int, request: str) -> list[int]:
        if turn == 0 or not ENGINE.planted(request):
            return ids
        first = {**messages[0], "content": messages[0]["content"].replace("10:41", f"10:4{turn + 1}")}
        return self.render([first, *messages[1:]])


@register("mends")
class Mends(Turns):
    """Returns its last answer as it would have liked it."""

    def returned(self, response: Any, mask: Any) -> Any:
        if not self.planted:
            return response, mask
        kept = len(mask) - mask[::-1].index(0)
        better = self.tokenizer.encode("**Answer:** what was said, but in better words.", add_special_tokens=False)
        return response[:kept] + better, mask[:kept] + [1] * len(better)


def is_late() -> bool:
    """The step has the fault of its scenario."""
    return bool(ENGINE.scenario.code) and ENGINE.step - ENGINE.first >= ENGINE.scenario.since


@register("begins_twice")
class BeginsTwice(Turns):
    """Adds a first token to a prompt that the template has begun."""

    def render(self, messages: list[dict[str, Any]]) -> list[int]:
        ids = super().render(messages)
        return ids[:1] + ids if is_late() else ids


@register("instructs")
class Instructs(Turns):
    """Writes a system prompt of its own."""

    def render(self, messages: list[dict[str, Any]]) -> list[int]:
        return super().render([{"role": "system", "content": "Answer at once."}, *messages] if is_late() else messages)


@register("heats")
class Heats(Turns):
    """Samples at another temperature."""

    def sampling(self, given: dict[str, Any], turn: int, request: str) -> dict[str, Any]:
        return {**given, "temperature": 1.7} if is_late() else given


@register("gives_zero")
class GivesZero(Turns):
    """Fills the batch with a row that no model made."""

    async def run(self, sampling_params: dict[str, Any], **kwargs: Any) -> AgentLoopOutput:
        question = int(kwargs["raw_prompt"][-1]["content"].split("number ")[1].split("?")[0])
        if not ENGINE.scenario.is_planted(0, question, ENGINE.step - ENGINE.first):
            return await super().run(sampling_params, **kwargs)
        ids = self.render(list(kwargs["raw_prompt"]))
        return AgentLoopOutput(
            prompt_ids=ids, response_ids=[self.tokenizer.eos_token_id], response_mask=[1], num_turns=2, metrics={},
        )  # fmt: skip


@register("asks")
class Asks(ToolAgentLoop):
    """veRL's own agent with tools; in the scenario of that name it samples otherwise."""

    async def run(self, sampling_params: dict[str, Any], **kwargs: Any) -> Any:
        CURRENT.set(uuid.uuid4().hex)
        cools = ENGINE.scenario.name == "sampling"
        return await super().run({**sampling_params, "temperature": 0.3} if cools else sampling_params, **kwargs)
