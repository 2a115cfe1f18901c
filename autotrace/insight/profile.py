"""What is kept of one trajectory to find out what is wrong: a few numbers a turn, and what was found in it alone.

A trajectory is examined once, when it is complete; a hundred thousand of them are then diagnosed from their profiles
without reading a token again. Encoded as JSON arrays, about 60 bytes a turn.
"""

from __future__ import annotations

import msgspec

from autotrace.trajectory.chains import Chain

VERSION = 6
"""Counts up when a profile made before no longer says what it should."""
MAX_MARKS = 40
"""Kept of one trajectory."""
MAX_NOTE = 240
"""Characters of a note."""


class Mark(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Something that one trajectory shows by itself."""

    code: str
    turn: int | None = None
    """LLM call, from 1; None: not of one turn."""
    token: int | None = None
    """Index in the turn's prompt, or in what ``note`` says; None: not of one token."""
    note: str = ""
    """In words; may quote what a model or a tool wrote."""
    kind: str = ""
    """What marks of one cause have in common: the tool and the class of its message."""


class TurnProfile(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """One LLM call of the agent; None: not known."""

    prompt: int | None = None
    """Tokens of its prompt."""
    response: int | None = None
    """Tokens generated."""
    finish: str | None = None
    last: int | None = None
    """The last token generated."""
    shared: int = 0
    """Tokens that the prompt has in common with what an earlier call left in the engine."""
    cached: int | None = None
    """Tokens that the engine found in its cache."""
    weights: int | None = None
    """Version of the weights that answered."""
    seconds: float | None = None
    preempted: int = 0
    """How often it was removed from the engine's batch."""
    server: str = ""
    """Which engine answered."""


class ToolUse(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """The calls of one tool."""

    name: str
    calls: int = 0
    failed: int = 0
    seconds: float = 0.0
    longest: float = 0.0
    """Seconds of the longest call."""


class Trait(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Something by which the trajectory is compared with others (``insight.traits``)."""

    name: str
    """Under which it is declared."""
    text: str
    """The trait in words; of a quantity, its name."""
    value: float | None = None
    """The number, if the trait is a quantity."""


class Profile(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """One trajectory."""

    stamp: str = ""
    """Which detectors looked at it (``registry.stamp``)."""
    turns: list[TurnProfile] = []
    tools: list[ToolUse] = []
    marks: list[Mark] = []
    head: list[int] = []
    """The first tokens of its first prompt."""
    answers: str = ""
    """Digest of all that the model said; empty: too short to tell rollouts apart, or not recorded."""
    returned: int | None = None
    """Tokens of the response as the agent returned it, tools included."""
    judged: bool = False
    """The text that its reward judged was recorded, and can be compared with its own."""
    found: list[Mark] = []
    """What its group and its step showed of it, once they were complete."""
    asked: str = ""
    """Digest of its whole first prompt; empty: not known."""
    chains: list[Chain] = []
    """Where its turns branch; empty: it is one chain."""
    traits: list[Trait] = []
    prompt: str = ""
    """Digest of its first prompt without numbers and ids; empty: not known in words."""
    died: Mark | None = None
    """How the agent's program died: a finding if the reward is nothing, which may become known later."""

    @property
    def all_marks(self) -> tuple[Mark, ...]:
        """Those of the trajectory itself before those of its group and its step."""
        return (*self.marks, *self.found)


def encode(profile: Profile) -> str:
    """As text; empty for None."""
    return msgspec.json.encode(profile).decode()


def codes(profile: Profile | None) -> list[str] | None:
    """What is wrong with a trajectory, each code once; None: it was not examined."""
    return None if profile is None else list(dict.fromkeys(mark.code for mark in profile.all_marks))


def traits(profile: Profile | None) -> list[str] | None:
    """The traits of a trajectory without quantities; None: it was not examined."""
    return None if profile is None else [trait.text for trait in profile.traits if trait.value is None]


def chains(profile: Profile | None) -> int | None:
    """How many chains its turns are, where it branches; None: it is one, or was not examined."""
    return (len(profile.chains) or None) if profile is not None else None


def is_truncated(profile: Profile | None) -> bool | None:
    """An answer of it was cut at a limit of tokens; None: it was not examined."""
    return None if profile is None else any(mark.code.startswith("AT-TRUNCATED") for mark in profile.marks)


def has_tool_error(profile: Profile | None) -> bool | None:
    """A tool of it failed; None: it was not examined."""
    if profile is None:
        return None
    return any(tool.failed for tool in profile.tools) or any(mark.code.startswith("AT-TOOL-") for mark in profile.marks)


_decoder = msgspec.json.Decoder(Profile)


def decode(text: str | None) -> Profile | None:
    """What ``encode`` made; None where there is none, or where it was made by another version."""
    if not text or text == "{}":
        return None
    try:
        return _decoder.decode(text)
    except msgspec.MsgspecError:
        return None


def marks(text: str | None) -> list[Mark]:
    """Of what ``encode`` made: the first mark of each code."""
    by_code: dict[str, Mark] = {}
    for mark in (decode(text) or Profile()).all_marks:
        by_code.setdefault(mark.code, mark)
    return list(by_code.values())
