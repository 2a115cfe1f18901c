"""What is recorded and what is delivered of it: sampling, redaction, limits, keep-rules, as options and variables."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from autotrace.launch.options import FALSE, TRUE, OptionError


@dataclass(frozen=True)
class Knob:
    """One option of this page; its variable is ``AUTOTRACE_`` and the option's name in capitals."""

    option: str
    parse: Callable[[str], Any]
    metavar: str
    help: str
    sampling: bool = False
    """Goes into ``Settings.sampling`` instead of a field of its own."""
    delivery: bool = False
    """Concerns the shipper alone: goes into ``RunInfo``."""

    @property
    def field(self) -> str:
        return self.option.removeprefix("--").replace("-", "_")

    @property
    def variable(self) -> str:
        return f"AUTOTRACE_{self.field.upper()}"


def _share(text: str) -> float:
    number = float(text)
    if not 0 <= number <= 1:
        raise ValueError
    return number


def _count(text: str) -> int:
    number = int(text)
    if number < 0:
        raise ValueError
    return number


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",") if word.strip())


def _patterns(text: str) -> tuple[str, ...]:
    re.compile(text)
    return (text,)


def _hook(text: str) -> str:
    if not re.fullmatch(r"[\w.]+:\w+", text):
        raise ValueError
    return text


def _flag(text: str) -> bool:
    if text.lower() not in TRUE + FALSE:
        raise ValueError
    return text.lower() in TRUE


def _size(text: str) -> int:
    from autotrace.config.units import parse_bytes

    return parse_bytes("a size", text)


def _keep(text: str) -> tuple[str, ...]:
    from autotrace.config.keep_rules import KeepRules

    try:
        KeepRules.parse(_words(text))
    except ValueError as error:
        raise OptionError(str(error)) from None
    return _words(text)


KNOBS = (
    Knob("--sample-rate", _share, "SHARE", "Share of prompts recorded, 0 to 1; whole groups.", True),
    Knob("--validate-rate", _share, "SHARE", "The same for validation; default: as --sample-rate.", True),
    Knob("--every-n-steps", _count, "N", "Record training steps divisible by N only.", True),
    Knob("--samples", _words, "INDEX,...", "Follow only these samples (sample_index or uid).", True),
    Knob("--max-samples-per-step-per-worker", _count, "N", "So many prompts of each worker's batch.", True),
    Knob("--seed", str, "TEXT", "Another choice of prompts for the options above.", True),
    Knob("--logprobs", _flag, "1", "Record log-probabilities of response tokens."),
    Knob("--redact-keys", _words, "GLOB,...", "Never write values under these names (credentials never are)."),
    Knob("--redact-patterns", _patterns, "REGEX", "Replace what matches in every text."),
    Knob("--redact-hook", _hook, "MODULE:FUNCTION", "Called with (name, value) of everything before it is written."),
    Knob("--max-string", _count, "CHARACTERS", "Longest captured text; default 65536."),
    Knob("--spool-limit", _size, "SIZE", "Most bytes of the spool: delivered data goes, then no trajectory begins."),
    Knob("--keep", _keep, "RULE,...", "Deliver: errors, spread, slowest=5, extremes=5, random=0.1.", delivery=True),
    Knob("--step-budget", _size, "SIZE", "Most bytes delivered per training step and backend.", delivery=True),
    Knob("--month-budget", _size, "SIZE", "Most bytes delivered per month and backend.", delivery=True),
)  # fmt: skip


@dataclass(frozen=True)
class Recording:
    """The values given, by field name."""

    settings: Mapping[str, Any]
    """For ``config.plan.Settings``."""
    delivery: Mapping[str, Any]
    """For ``RunInfo``: ``keep``, ``step_budget``, ``month_budget``."""
    origins: Mapping[str, str]

    @classmethod
    def resolve(cls, given: Mapping[str, Any], environ: Mapping[str, str]) -> Recording:
        """An option wins over its variable. Raises ``OptionError``."""
        settings: dict[str, Any] = {}
        sampling: dict[str, Any] = {}
        delivery: dict[str, Any] = {}
        origins = {}
        for knob in KNOBS:
            text, origin = given.get(knob.field), f"option {knob.option}"
            if text is None:
                text, origin = environ.get(knob.variable, "").strip() or None, f"environment {knob.variable}"
            if text is None:
                continue
            try:
                value = knob.parse(text)
            except OptionError as error:
                raise OptionError(f"{origin}: {error}") from None
            except (ValueError, re.error):
                raise OptionError(f"{origin}: {text!r} is no {knob.metavar}: {knob.help}") from None
            (sampling if knob.sampling else delivery if knob.delivery else settings)[knob.field] = value
            origins[knob.field] = origin
        if sampling:
            names = {"sample_rate": "rate"}
            settings["sampling"] = {names.get(name, name): value for name, value in sampling.items()}
        return cls(settings, delivery, origins)
