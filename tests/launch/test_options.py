"""Every setting is an option and a variable; what is wrong with one is said in one line that names it."""

from __future__ import annotations

import json
import os

import pytest

from autotrace.launch.option_types import OptionError
from autotrace.launch.options import SETTINGS, Options, SettingsCommand, unknown_variables
from tests.places import SHOW, Place


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith(("AUTOTRACE", "MLFLOW"))]:
        monkeypatch.delenv(name)


def parsed(*words: str) -> Options:
    with SettingsCommand("autotrace-run").make_context("autotrace-run", list(words)) as ctx:
        return Options.from_context(ctx)


EXAMPLES = {
    "backends": "jsonl,otlp", "tracking_uri": "sqlite:///x.db", "project": "p", "experiment": "e", "specs": "mine.yaml",
    "run_dir": "runs", "drain_timeout": "7", "content": "text", "sample_rate": "0.5", "validate_rate": "1",
    "every_n_steps": "2", "samples": "1,2", "max_samples_per_step_per_worker": "4", "seed": "7", "logprobs": "1",
    "redact_keys": "a*,b", "redact_patterns": "x+", "redact_hook": "m.n:f", "max_string": "10", "spool_limit": "1GB",
    "follow_threads": "0", "watch": "0", "keep_spool": "1", "images": "1", "keep": "errors,random=0.1",
    "step_budget": "2KB", "strict": "1", "supervise": "1", "quiet": "yes", "token_facts": "all",
    "tokenizer": "Qwen/Qwen3-8B",
    "alert": "https://hooks.example.com/x", "alert_on": "AT-HUNG,AT-REPETITION", "alert_texts": "1",
    "stop_on": "AT-HUNG", "tables": "s3://bucket/lake",
}  # fmt: skip


def test_an_option_and_its_variable_mean_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    assert set(EXAMPLES) == {setting.name for setting in SETTINGS}
    for setting in SETTINGS:
        text = EXAMPLES[str(setting.name)]
        option = parsed(setting.opts[0], *([] if setting.is_flag else [text]))
        monkeypatch.setenv(setting.variables[0], f" {text} ")
        variable = Options.from_settings({})
        monkeypatch.delenv(setting.variables[0])
        assert option != Options.from_settings({})
        origins = option.origins[str(setting.name)], variable.origins[str(setting.name)]
        assert origins == (f"option {setting.opts[0]}", f"environment {setting.variables[0]}")
        assert {**vars(option), "origins": None} == {**vars(variable), "origins": None}


def test_an_option_wins_over_a_variable_and_that_over_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOTRACE_PROJECT", "variable")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://theirs")
    assert (parsed().project, parsed("--project", "option").project) == ("variable", "option")
    assert parsed().origins["tracking_uri"] == "environment MLFLOW_TRACKING_URI"
    monkeypatch.setenv("AUTOTRACE_TRACKING_URI", "http://ours")
    assert (parsed().tracking_uri, parsed().origins["tracking_uri"]) == (
        "http://ours",
        "environment AUTOTRACE_TRACKING_URI",
    )
    assert (parsed().backends, parsed().origins["backends"]) == (("mlflow",), "default")


def test_a_place_for_the_tables_chooses_its_backend_beside_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    alone = parsed("--tables", "there")
    assert (alone.backends, alone.origins["backends"]) == (("mlflow", "parquet"), "default")
    assert alone.delivery["tables"] == os.path.abspath("there")
    assert parsed("--tables", "there", "--backend", "jsonl").backends == ("jsonl", "parquet")
    assert parsed("--tables", "there", "--backend", "parquet,jsonl").backends == ("parquet", "jsonl")
    monkeypatch.setenv("AUTOTRACE_TABLES", "s3://bucket/lake/")
    assert parsed().backends == ("mlflow", "parquet") and parsed().delivery["tables"] == "s3://bucket/lake"
    assert parsed("--tables", "there").delivery == alone.delivery


def test_a_blank_variable_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    for setting in SETTINGS:
        monkeypatch.setenv(setting.variables[0], "  ")
    assert Options.from_settings({}) == parsed()
    assert set(Options.from_settings({}).origins.values()) == {"default"}


def test_several_in_one_word_or_in_several(monkeypatch: pytest.MonkeyPatch) -> None:
    assert parsed("--backend", "jsonl,otlp", "--backend", "jsonl").backends == ("jsonl", "otlp")
    assert parsed("--spec", "a:b.yaml", "--spec", "c.yaml").specs == ("a:b.yaml", "c.yaml")
    monkeypatch.setenv("AUTOTRACE_SPECS", f"a.yaml{os.pathsep}c.yaml")
    assert parsed().specs == ("a.yaml", "c.yaml")


def test_what_is_wrong_with_a_variable_names_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOTRACE_KEEP", "random=x")
    with pytest.raises(OptionError) as caught:
        Options.from_settings({})
    assert str(caught.value) == (
        "environment AUTOTRACE_KEEP: the keep-rule random has no value 'x'; write a number between 0 and 1"
    )


def test_a_traced_process_imports_no_click(place: Place) -> None:
    place.write("steps.py", "def step(number): return number\n")
    place.write("spec.yaml", "- steps.step\n")
    code = (
        "import json, steps, sys; steps.step(1)\n"
        "print(json.dumps([name for name in ('click', 'rich', 'yaml') if name in sys.modules]))"
    )
    bare = place.run(["python", "-c", code])
    done = place.launch(["python", "-c", code], ["--spec", "spec.yaml"])
    assert json.loads(done.stdout) == json.loads(bare.stdout) == []
    assert "autotrace: saved 1 trajectory to jsonl" in done.stderr


@pytest.mark.parametrize(
    ("options", "env", "said"),
    [
        (["--backend", "jaeger"], {}, "option --backend: there is no backend 'jaeger'; choose from jsonl"),
        (
            [],
            {"AUTOTRACE_DRAIN_TIMEOUT": "soon"},
            "environment AUTOTRACE_DRAIN_TIMEOUT: 'soon' is not a number of seconds",
        ),
        (["--drain-timeout", "-1"], {}, "option --drain-timeout: '-1' is not a number of seconds"),
        (["--content", "some"], {}, "option --content: 'some' is not a kind of content; choose from full, text, none"),
        ([], {"AUTOTRACE_SUPERVISE": "maybe"}, "environment AUTOTRACE_SUPERVISE: 'maybe' is neither 1 nor 0"),
        (["--step-budget", "50XB"], {}, "option --step-budget: '50XB' is not a size; write for example 500MB"),
        ([], {"AUTOTRACE_REDACT_PATTERNS": "("}, "REDACT_PATTERNS: '(' is not a regular expression: missing )"),
        ([], {"AUTOTRACE_REDACT_PATTERNS": "x{99999999999}"}, "x{99999999999}' is not a regular expression: the rep"),
        (["--sample-rate", "abc"], {}, "option --sample-rate: 'abc' is not a number between 0 and 1"),
        (["--every-n-steps", "-2"], {}, "option --every-n-steps: '-2' is not a whole number above 0"),
        (["--every-n-steps", "1_0"], {}, "option --every-n-steps: '1_0' is not a whole number above 0"),
        (["--every-n-steps", "0"], {}, "option --every-n-steps: '0' is not a whole number above 0"),
        (["--backend", "weave"], {"HOME": "/nowhere"}, "no API key for https://api.wandb.ai: set WANDB_API_KEY or run"),
        (["--redact-hook", "clean"], {}, "option --redact-hook: 'clean' does not name a function"),
        (["--keep", "slow=5"], {}, "option --keep: there is no keep-rule 'slow=5'; write one of errors, spread"),
        (["--tables", "ftp://host/x"], {}, "option --tables: ftp://host/x: unknown scheme ftp://; choose from s3, "),
        (
            [],
            {"AUTOTRACE_TABLES": "/etc/hostname"},
            "AUTOTRACE_TABLES: /etc/hostname is a file; name a folder or a URL",
        ),
        (["--tables", "abfs://c/x"], {}, "abfs://c/x needs adlfs, which is not installed: PYTHON -m pip install adlfs"),
        (["--run-dir", "/proc/nowhere"], {}, "choose another folder with --run-dir or AUTOTRACE_RUN_DIR"),
    ],
)
def test_a_bad_setting_is_2_and_says_where_it_came_from(
    place: Place, options: list[str], env: dict[str, str], said: str
) -> None:
    code, stderr = place.refusal(["python", "-c", ""], options, env)
    assert code == 2
    assert said.replace("PYTHON", place.python) in stderr
    assert len(stderr.splitlines()) == 1
    assert not place.runs()


def test_a_misspelt_variable_is_said_with_the_nearest_name(place: Place) -> None:
    found = place.record(["python", "-c", ""], env={"AUTOTRACE_SAMPLE_RAET": "0.5", "AUTOTRACE_MY_OWN": "x"})
    assert found.returncode == 0
    said = [line for line in found.stderr.splitlines() if "no variable" in line]
    assert said == ["autotrace: there is no variable AUTOTRACE_SAMPLE_RAET; did you mean AUTOTRACE_SAMPLE_RATE?"]
    assert unknown_variables({name: "1" for setting in SETTINGS for name in setting.variables}) == []


@pytest.mark.parametrize("outer", [True, False], ids=["inside a run", "switched off"])
def test_settings_that_are_not_used_are_not_judged(place: Place, outer: bool) -> None:
    inner = [place.launcher, "--sample-rate", "abc", "python", "-c", SHOW]
    found = place.launch(inner, env={"AUTOTRACE_MAX_STRING": "0"} if outer else {"AUTOTRACE": "0"})
    assert found.returncode == 0, found.stderr
    assert found.stdout.split()[1] == str(outer)


def test_settings_and_their_origins_are_written_without_secrets(place: Place) -> None:
    place.record(
        ["python", "-c", "", "--hub-token", "hush", "a.api_key=hush", "data.max_tokens=5", "http://u:hush@host/x"],
        ["--project", "p", "--drain-timeout", "7"],
        {"AUTOTRACE_EXPERIMENT": "e", "MLFLOW_TRACKING_URI": "http://user:hush@mlflow:5000"},
    )
    info = place.info()
    (run,) = place.runs()

    assert (info["project"], info["experiment"], info["drain_timeout"]) == ("p", "e", 7.0)
    assert info["tracking_uri"] == "http://user:***@mlflow:5000"
    assert info["command"][3:] == ["--hub-token", "***", "a.api_key=***", "data.max_tokens=5", "http://u:***@host/x"]
    assert info["origins"]["project"] == "option --project"
    assert info["origins"]["experiment"] == "environment AUTOTRACE_EXPERIMENT"
    assert info["origins"]["tracking_uri"] == "environment MLFLOW_TRACKING_URI"
    assert "hush" not in "".join(path.read_text() for path in run.glob("*.json"))
