"""Declare the settings of a run: each setting is an option of ``autotrace-run`` and an ``AUTOTRACE_*`` variable.

The settings are declared once, as click's options. ``autotrace-run`` parses the command line with the options.
``autotrace.start`` parses a command line built from the arguments. A process that the environment alone activates
parses an empty command line.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import click
from click.core import ParameterSource

from autotrace.config import environment as env
from autotrace.config.written import parse_bytes
from autotrace.launch import option_types as types
from autotrace.launch.option_types import BackendOption, OptionError
from autotrace.run import layout

RUN, RECORDING, SAMPLING, DELIVERY = "run", "recording", "sampling", "delivery"
"""Destinations of a setting: ``Options`` itself, ``plan.Settings``, ``Settings.sampling``, ``RunInfo``."""
_IGNORED = "autotrace.settings_ignored"


class Setting(click.Option):
    """Describes an option that is also a variable. A blank variable counts as not given."""

    def __init__(
        self,
        option: str,
        help: str,
        *,
        name: str | None = None,
        variable: str | None = None,
        fallback: Sequence[str] = (),
        goes: str = RUN,
        separator: str = ",",
        type: Callable[[str], Any] | None = None,
        **more: Any,
    ) -> None:
        """Build the option.

        ``variable`` defaults to ``AUTOTRACE_`` and the option's name. ``fallback`` lists other tools' variables with
        the same meaning. ``separator`` splits the values in the variable of a repeatable option. ``type``: see
        ``checked``.
        """
        parameter = option.removeprefix("--").replace("-", "_")
        self.variables = (variable or f"AUTOTRACE_{parameter.upper()}", *fallback)
        self.goes, self.separator = goes, separator
        more["type"] = None if type is None else types.checked(type)
        super().__init__([option, name or parameter], help=help, envvar=list(self.variables), show_envvar=True, **more)

    def variable_given(self) -> str | None:
        """Return the variable that is set, if any."""
        return next((name for name in self.variables if os.environ.get(name, "").strip()), None)

    def value_from_envvar(self, ctx: click.Context) -> Any:
        """Return the variable's text, or the texts inside."""
        variable = self.variable_given()
        text = None if variable is None else os.environ[variable].strip()
        return text.split(self.separator) if text is not None and self.multiple else text

    def process_value(self, ctx: click.Context, value: Any) -> Any:
        """Convert the value. Raises ``OptionError``, unless this launch ignores settings."""
        try:
            if self.is_flag and isinstance(value, str):  # a variable; click's own words for this differ by release
                value = types.checked(types.flag)(value)
            return super().process_value(ctx, value)
        except OptionError as error:
            if ctx.meta.get(_IGNORED):
                return None
            error.origin = self.origin(ctx)
            raise

    def origin(self, ctx: click.Context) -> str:
        """Return ``option --backend`` | ``environment AUTOTRACE_BACKEND`` | ``default``."""
        source = ctx.get_parameter_source(self.name or "")
        if source is ParameterSource.COMMANDLINE:
            return f"option {self.opts[0]}"
        return f"environment {self.variable_given()}" if source is ParameterSource.ENVIRONMENT else "default"


class _BackendSetting(BackendOption, Setting):
    """Describes ``--backend`` with the variable of that option."""


SETTINGS = (
    _BackendSetting("--backend", "Where trajectories go; repeatable.",
            name="backends", multiple=True, metavar="NAME", callback=types.backends),
    Setting("--tracking-uri", "MLflow store or server; default: veRL's MLflow logger's, else mlflow.db in --run-dir.",
            variable=env.TRACKING_URI, fallback=["MLFLOW_TRACKING_URI"], metavar="URI"),
    Setting("--tables", "Copy the run's tables there: a folder or s3://bucket/folder; adds --backend parquet.",
            variable=env.TABLES, goes=DELIVERY, type=types.tables, metavar="PLACE"),
    Setting("--project", "MLflow experiment or Weave project; default: veRL's trainer.project_name.", metavar="NAME"),
    Setting("--experiment", "Tag experiment_name; default: veRL's trainer.experiment_name.", metavar="NAME"),
    Setting("--spec", "YAML spec of your own methods to trace; repeatable.",
            name="specs", variable=env.SPECS, multiple=True, separator=os.pathsep, metavar="FILE"),
    Setting("--run-dir", "Each run makes its own folder in it; default ./autotrace-runs.", metavar="DIR"),
    Setting("--drain-timeout", "Longest wait for delivery at exit; default 60. The rest stays on disk.",
            type=types.seconds, metavar="SECONDS"),
    Setting("--content", "full (default), text (no token ids) or none (no prompts, responses, arguments).",
            type=types.one_of("a kind of content", "full", "text", "none"), metavar="KIND"),
    Setting("--sample-rate", "Share of prompts recorded, 0 to 1; whole groups.",
            goes=SAMPLING, type=types.share, metavar="SHARE"),
    Setting("--validate-rate", "The same for validation; default: as --sample-rate.",
            goes=SAMPLING, type=types.share, metavar="SHARE"),
    Setting("--every-n-steps", "Record training steps divisible by N only.",
            goes=SAMPLING, type=types.positive, metavar="N"),
    Setting("--samples", "Record these samples only (sample_index or uid).",
            goes=SAMPLING, type=types.words, metavar="INDEX,..."),
    Setting("--max-samples-per-step-per-worker", "Record this many prompts of each worker's batch.",
            goes=SAMPLING, type=types.count, metavar="N"),
    Setting("--seed", "Choose other prompts for the options above.", goes=SAMPLING, metavar="TEXT"),
    Setting("--follow-threads", "A thread belongs to the call that started it (default); 0: to none.",
            goes=RECORDING, type=types.flag, metavar="0"),
    Setting("--watch", "Note failures of the functions that a reward or tool calls and catches (default); 0: do not.",
            goes=RECORDING, type=types.flag, metavar="0"),
    Setting("--logprobs", "Record log-probabilities of response tokens.",
            goes=RECORDING, type=types.flag, metavar="1"),
    Setting("--token-facts", "Record the trainer's value of each token: for some trajectories (default), all or off.",
            goes=RECORDING, type=types.one_of("a choice of token facts", "some", "all", "off"), metavar="WHICH"),
    Setting("--redact-keys", "Never write values under these names (credentials are never written).",
            goes=RECORDING, type=types.words, metavar="GLOB,..."),
    Setting("--redact-patterns", "Replace every match in every text.",
            goes=RECORDING, type=types.pattern, metavar="REGEX"),
    Setting("--redact-hook", "Function that gets (name, value) of everything before it is written.",
            goes=RECORDING, type=types.hook, metavar="MODULE:FUNCTION"),
    Setting("--max-string", "Cut longer texts; default 65536.",
            goes=RECORDING, type=types.count, metavar="CHARACTERS"),
    Setting("--images", "Keep the images of texts (data URLs, base64) in the run folder.",
            goes=RECORDING, type=types.flag, metavar="1"),
    Setting("--spool-limit", "Largest spool: delivered data is removed, then no new trajectory is recorded.",
            goes=RECORDING, type=parse_bytes, metavar="SIZE"),
    Setting("--keep-spool", "Keep segments when their trajectories are in the tables and delivered.",
            goes=RECORDING, type=types.flag, metavar="1"),
    Setting("--tokenizer", "Tokenizer for token ids: a folder or a name on the hub; default: the trainer's.",
            goes=DELIVERY, type=types.tokenizer, metavar="NAME"),
    Setting("--keep", "Deliver only these groups: errors, spread, random=0.1.",
            goes=DELIVERY, type=types.keep, metavar="RULE,..."),
    Setting("--step-budget", "Deliver at most this much per training step and backend.",
            goes=DELIVERY, type=parse_bytes, metavar="SIZE"),
    Setting("--alert", "Address (https://...) that gets one JSON or Slack message about each finding.",
            type=types.address, metavar="URL"),
    Setting("--alert-on", "Only about these findings, and once a step; default: all, once a run.",
            goes=DELIVERY, type=types.findings, metavar="CODE,..."),
    Setting("--alert-texts", "Messages may quote what models and tools wrote.",
            goes=DELIVERY, type=types.flag, metavar="1"),
    Setting("--stop-on", "End the command with SIGTERM when one of these findings is made; implies --supervise.",
            goes=DELIVERY, type=types.findings, metavar="CODE,..."),
    Setting("--strict", "Refuse to start if a spec names nothing that exists or Python lacks autotrace.", is_flag=True),
    Setting("--supervise", "Stay as the parent that forwards signals, instead of becoming the command.", is_flag=True),
    Setting("--quiet", "Print nothing on success.", is_flag=True),
)  # fmt: skip
"""Settings in the order of ``--help``."""


def unknown_variables(environ: Mapping[str, str]) -> list[str]:
    """Return a sentence for each ``AUTOTRACE_*`` variable that nothing reads but that resembles a known variable."""
    known = {value for name, value in vars(env).items() if name.isupper() and isinstance(value, str)}
    known |= {name for setting in SETTINGS for name in setting.variables}
    near = {
        name: difflib.get_close_matches(name, known, 1, 0.85)
        for name in sorted(environ)
        if name.startswith("AUTOTRACE_") and name not in known
    }
    return [f"there is no variable {name}; did you mean {close[0]}?" for name, close in near.items() if close]


class SettingsCommand(click.Command):
    """Adds ``SETTINGS`` in front of a command's own options."""

    def __init__(self, *arguments: Any, ignores: Callable[[], bool] = lambda: False, **more: Any) -> None:
        """Build the command. ``ignores`` tells whether this launch uses no setting, so that a wrong setting is not an
        error."""
        super().__init__(*arguments, **more)
        self.params[:0] = SETTINGS
        self.ignores = ignores

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse as click does. Raises ``OptionError``."""
        ctx.meta[_IGNORED] = self.ignores()
        return super().parse_args(ctx, args)


def _default_backends() -> tuple[str, ...]:
    # Imported late: a nested or switched off launch makes no Options and pays nothing.
    from autotrace.sinks import registry

    return registry.default()


@dataclass(frozen=True)
class Options:
    """Holds a run's settings and origins: an option wins over a variable, a variable over the default."""

    backends: tuple[str, ...] = field(default_factory=_default_backends)
    tracking_uri: str | None = None
    project: str | None = None
    experiment: str | None = None
    specs: tuple[str, ...] = ()
    run_dir: str = layout.DEFAULT_RUN_DIR
    drain_timeout: float = 60.0
    """Seconds."""
    content: str = "full"
    alert: str | None = None
    strict: bool = False
    supervise: bool = False
    quiet: bool = False
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Recording settings: further fields of ``config.plan.Settings``."""
    delivery: Mapping[str, Any] = field(default_factory=dict)
    """Delivery settings, and addresses for findings: further fields of ``RunInfo``."""
    origins: Mapping[str, str] = field(default_factory=dict)
    """Maps a setting to ``option --backend`` | ``environment AUTOTRACE_BACKEND`` | ``default``."""

    @classmethod
    def from_context(cls, ctx: click.Context) -> Options:
        """Build the options from a parsed ``SettingsCommand``."""
        values: dict[str, dict[str, Any]] = {RUN: {}, RECORDING: {}, SAMPLING: {}, DELIVERY: {}}
        origins: dict[str, str] = {}
        for setting in SETTINGS:
            name, origin = str(setting.name), setting.origin(ctx)
            value = ctx.params[name]
            if origin != "default" and value not in (None, ()):
                values[setting.goes][name], origins[name] = value, origin
            elif setting.goes == RUN:
                origins[name] = "default"
        if "tables" in origins:
            from autotrace.sinks import registry

            chosen = values[RUN].get("backends") or registry.default()
            values[RUN]["backends"] = tuple(dict.fromkeys((*chosen, registry.TABLES)))
        sampling = {"rate" if name == "sample_rate" else name: value for name, value in values[SAMPLING].items()}
        settings = {**values[RECORDING], **({"sampling": sampling} if sampling else {})}
        return cls(**values[RUN], settings=settings, delivery=values[DELIVERY], origins=origins)

    @classmethod
    def from_settings(cls, values: Mapping[str, Any]) -> Options:
        """Build the options from Python values by name (``run_dir``), and from variables. Raises ``OptionError``."""
        words = [word for name, value in values.items() for word in _words(name, value)]
        with SettingsCommand("autotrace-run").make_context("autotrace-run", words) as ctx:
            return cls.from_context(ctx)


def _words(name: str, value: Any) -> list[str]:
    """Return the words that a command line of ``autotrace-run`` would have for the value."""
    option = "--" + name.replace("_", "-")
    setting = next((one for one in SETTINGS if option in one.opts), None)
    if setting is None:
        names = [one.opts[0].removeprefix("--").replace("-", "_") for one in SETTINGS]
        near = difflib.get_close_matches(name, names, 1)
        raise OptionError(f"there is no setting {name!r}; {f'did you mean {near[0]}?' if near else _CHOOSE}")
    if value is None or (setting.is_flag and not value):
        return []
    if setting.is_flag:
        return [option]
    texts = [_text(one) for one in value] if isinstance(value, (list, tuple)) else [_text(value)]
    return [f"{option}={text}" for text in (texts if setting.multiple else [",".join(texts)])]


_CHOOSE = "the settings are the options of autotrace-run, with _ for -"


def _text(value: Any) -> str:
    return str(int(value)) if isinstance(value, bool) else str(value)
