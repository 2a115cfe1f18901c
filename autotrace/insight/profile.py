"""Keep the profile of a trajectory for the diagnosis: a few numbers per turn, and the trajectory's own marks.

A trajectory is examined once, when the trajectory is complete. A hundred thousand trajectories are then diagnosed from
their profiles without reading a token again. A profile is encoded as JSON arrays, about 60 bytes a turn.
"""

from __future__ import annotations

import msgspec

from autotrace.trajectory.chains import Chain

VERSION = 9
"""Count the versions of the format; raise the number when an older profile is no longer right."""
MAX_MARKS = 40
"""Keep so many marks of a trajectory."""
MAX_NOTE = 240
"""Limit the characters of a note."""


class Mark(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Hold a mark that one trajectory shows by itself."""

    code: str
    turn: int | None = None
    """Number the LLM call from 1; None: not about a turn."""
    token: int | None = None
    """Index of the token in the turn's prompt, or in the text that ``note`` names; None: not about a token."""
    note: str = ""
    """Describe in words, and possibly quote a model or a tool."""
    kind: str = ""
    """Name the common part of marks with one cause: the tool and the class of its message."""


class TurnProfile(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Hold an LLM call of the agent; None: not known."""

    prompt: int | None = None
    """Count the tokens of the prompt."""
    response: int | None = None
    """Count the generated tokens."""
    finish: str | None = None
    last: int | None = None
    """Store the last generated token."""
    shared: int = 0
    """Count the tokens that the prompt shares with the tokens that an earlier call left in the engine."""
    cached: int | None = None
    """Count the tokens that the engine found in its cache."""
    weights: int | None = None
    """Store the version of the weights that answered."""
    seconds: float | None = None
    preempted: int = 0
    """Count how often the engine removed the request from its batch."""
    server: str = ""
    """Name the engine that answered."""


class ToolUse(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Hold the calls of a tool."""

    name: str
    calls: int = 0
    failed: int = 0
    seconds: float = 0.0
    longest: float = 0.0
    """Store the seconds of the longest call."""


class Trait(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Hold a trait by which the trajectory is compared with others (``insight.traits``)."""

    name: str
    """Name under which the trait is declared."""
    text: str
    """Describe the trait in words, or name the quantity."""
    value: float | None = None
    """Store the number, if the trait is a quantity."""


class Profile(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Hold the profile of a trajectory."""

    stamp: str = ""
    """Name the detectors that examined the trajectory (``registry.stamp``)."""
    turns: list[TurnProfile] = []
    tools: list[ToolUse] = []
    marks: list[Mark] = []
    head: list[int] = []
    """List the first tokens of the first prompt."""
    answers: str = ""
    """Store a digest of the model's text; empty: too short to tell rollouts apart, or not recorded."""
    returned: int | None = None
    """Count the tokens of the response that the agent returned, tools included."""
    judged: bool = False
    """Store whether the judged text was recorded, and can be compared with the trajectory's own text."""
    found: list[Mark] = []
    """List the marks of the trajectory's group and step, once both were complete."""
    asked: str = ""
    """Store a digest of the whole first prompt; empty: not known."""
    chains: list[Chain] = []
    """List the chains of a trajectory whose turns branch; empty: one chain."""
    traits: list[Trait] = []
    prompt: str = ""
    """Store a digest of the first prompt without numbers and ids; empty: the words are not known."""
    died: Mark | None = None
    """Store how the agent's program died: a finding if the reward is nothing, which may become known later."""
    numbers: str = ""
    """Store the last numbers of the first prompt."""

    @property
    def all_marks(self) -> tuple[Mark, ...]:
        """Return all marks: the trajectory's own first, then its group's and step's."""
        return (*self.marks, *self.found)


def encode(profile: Profile) -> str:
    """Encode as text; empty for None."""
    return msgspec.json.encode(profile).decode()


def codes(profile: Profile | None) -> list[str] | None:
    """List the codes of a trajectory, each once; None: not examined."""
    return None if profile is None else list(dict.fromkeys(mark.code for mark in profile.all_marks))


def traits(profile: Profile | None) -> list[str] | None:
    """List the traits of a trajectory without quantities; None: not examined."""
    return None if profile is None else [trait.text for trait in profile.traits if trait.value is None]


def chains(profile: Profile | None) -> int | None:
    """Count the chains of a trajectory that branches; None: one chain, or not examined."""
    return (len(profile.chains) or None) if profile is not None else None


def is_truncated(profile: Profile | None) -> bool | None:
    """Return whether an answer was cut at a limit of tokens; None: not examined."""
    return None if profile is None else any(mark.code.startswith("AT-TRUNCATED") for mark in profile.marks)


def has_tool_error(profile: Profile | None) -> bool | None:
    """Return whether a tool failed; None: not examined."""
    if profile is None:
        return None
    return any(tool.failed for tool in profile.tools) or any(mark.code.startswith("AT-TOOL-") for mark in profile.marks)


_decoder = msgspec.json.Decoder(Profile)


def decode(text: str | None) -> Profile | None:
    """Decode the text of ``encode``; None: no text, or the text of another version."""
    if not text or text == "{}":
        return None
    try:
        return _decoder.decode(text)
    except msgspec.MsgspecError:
        return None


def marks(text: str | None) -> list[Mark]:
    """Decode the text of ``encode`` and return the first mark of each code."""
    by_code: dict[str, Mark] = {}
    for mark in (decode(text) or Profile()).all_marks:
        by_code.setdefault(mark.code, mark)
    return list(by_code.values())
