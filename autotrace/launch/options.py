"""What a person may decide about a run: each an option of ``autotrace-run`` and an ``AUTOTRACE_*`` variable."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from autotrace.config import environment as env
from autotrace.run import layout
from autotrace.sinks import registry

CONTENTS = ("full", "text", "none")
TRUE, FALSE = env.ON, ("", *env.OFF)


class OptionError(ValueError):
    """A value that cannot be used; the text names the option or variable and says what to write instead."""


@dataclass(frozen=True)
class Options:
    """The settings of one run and where each came from."""

    backends: tuple[str, ...] = ("mlflow",)
    tracking_uri: str | None = None
    project: str | None = None
    experiment: str | None = None
    specs: tuple[str, ...] = ()
    run_dir: str = layout.DEFAULT_RUN_DIR
    drain_timeout: float = 60.0
    """Seconds."""
    content: str = "full"
    supervise: bool = False
    quiet: bool = False
    settings: Mapping[str, Any] = field(default_factory=dict)
    """What is recorded: further fields of ``config.plan.Settings``."""
    delivery: Mapping[str, Any] = field(default_factory=dict)
    """What is delivered of it: ``keep``, ``step_budget``, ``month_budget`` of ``RunInfo``."""
    origins: Mapping[str, str] = field(default_factory=dict)
    """Setting -> ``option --backend`` | ``environment AUTOTRACE_BACKEND`` | ``default``."""

    @classmethod
    def resolve(cls, given: Mapping[str, Any], environ: Mapping[str, str]) -> Options:
        """An option wins over its variable, which wins over the default. Raises ``OptionError``.

        ``given``: options by field name; None, ``()`` and False mean "not given".
        """
        from autotrace.launch.recording import Recording

        reader = _Reader(given, environ)
        recording = Recording.resolve(given, environ)
        return cls(
            backends=_backends(*reader.words("backends", "--backend", env.BACKEND, ",", ("mlflow",))),
            tracking_uri=reader.text("tracking_uri", "--tracking-uri", env.TRACKING_URI, "MLFLOW_TRACKING_URI"),
            project=reader.text("project", "--project", env.PROJECT),
            experiment=reader.text("experiment", "--experiment", env.EXPERIMENT),
            specs=reader.words("specs", "--spec", env.SPECS, os.pathsep, ())[0],
            run_dir=reader.text("run_dir", "--run-dir", env.RUN_DIR) or layout.DEFAULT_RUN_DIR,
            drain_timeout=_seconds(*reader.value("drain_timeout", "--drain-timeout", env.DRAIN_TIMEOUT)),
            content=_choice(*reader.value("content", "--content", env.CONTENT)),
            supervise=_flag(*reader.value("supervise", "--supervise", env.SUPERVISE)),
            quiet=_flag(*reader.value("quiet", "--quiet", env.QUIET)),
            settings=recording.settings,
            delivery=recording.delivery,
            origins={**reader.origins, **recording.origins},
        )


class _Reader:
    """Finds each setting and notes where it was found."""

    def __init__(self, given: Mapping[str, Any], environ: Mapping[str, str]) -> None:
        self.given, self.environ = given, environ
        self.origins: dict[str, str] = {}

    def value(self, name: str, option: str, *variables: str) -> tuple[Any, str]:
        """The value, None when nobody gave one, and where it came from."""
        value, origin = self.given.get(name), f"option {option}"
        if value in (None, (), False):
            found = next((variable for variable in variables if self.environ.get(variable, "").strip()), None)
            value, origin = (self.environ[found].strip(), f"environment {found}") if found else (None, "default")
        self.origins[name] = origin
        return value, origin

    def text(self, name: str, option: str, *variables: str) -> str | None:
        value, _ = self.value(name, option, *variables)
        return None if value is None else str(value)

    def words(
        self, name: str, option: str, variable: str, separator: str, default: tuple[str, ...]
    ) -> tuple[tuple[str, ...], str]:
        value, origin = self.value(name, option, variable)
        if value is None:
            return default, origin
        # An option may be repeated; `--backend mlflow,jsonl` means the same as giving it twice.
        parts: Sequence[str] = [value] if isinstance(value, str) else value
        if separator == "," or isinstance(value, str):
            parts = [word.strip() for part in parts for word in part.split(separator)]
        return tuple(dict.fromkeys(word for word in parts if word)), origin


def _backends(names: tuple[str, ...], origin: str) -> tuple[str, ...]:
    for name in names:
        if name not in registry.names():
            raise OptionError(f"{origin}: there is no backend {name!r}; choose from {', '.join(registry.names())}")
    return names


def _seconds(value: Any, origin: str) -> float:
    if value is None:
        return Options.drain_timeout
    try:
        seconds = float(value)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < float("inf"):
        raise OptionError(f"{origin}: {value!r} is no number of seconds; write for example 60, or 0 for not waiting")
    return seconds


def _choice(value: Any, origin: str) -> str:
    if value is None:
        return Options.content
    if value not in CONTENTS:
        raise OptionError(f"{origin}: content is one of {', '.join(CONTENTS)}, not {value!r}")
    return str(value)


def _flag(value: Any, origin: str) -> bool:
    if value is None or value is True:
        return bool(value)
    word = str(value).lower()
    if word not in TRUE + FALSE:
        raise OptionError(f"{origin}: {value!r} is neither 1 nor 0")
    return word in TRUE
