"""What of a command line is written down."""

from __future__ import annotations

import pytest

from autotrace.redact.masking import masked_command, masked_uri, masked_variable

KEY = "sk-" + "a1B2c3D4" * 4


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["--token", "S", "train.py"], ["--token", "***", "train.py"]),
        (["--api-key=S", "+a.api_key=S T"], ["--api-key=***", "+a.api_key=***"]),
        (["-H", "Authorization: Bearer S"], ["-H", "Authorization: ***"]),
        (["http://h/v1?a=1&api_key=S&b=2"], ["http://h/v1?a=1&api_key=***&b=2"]),
        (['{"env_vars": {"WANDB_API_KEY": "S", "A": "1"}}'], ['{"env_vars": {"WANDB_API_KEY": "***", "A": "1"}}']),
        (['{"env_vars":{"WANDB_API_KEY":"S"}}'], ['{"env_vars":{"WANDB_API_KEY":"***"}}']),
        (["bash", "-c", "export WANDB_API_KEY=S; run"], ["bash", "-c", "export WANDB_API_KEY=***; run"]),
        (["bash", "-c", "run --token S --steps 3"], ["bash", "-c", "run --token *** --steps 3"]),
        (["-c", "A=1 HF_TOKEN='S' run"], ["-c", "A=1 HF_TOKEN='***' run"]),
        (["env={WANDB_API_KEY:S,A:1}"], ["env={WANDB_API_KEY:***,A:1}"]),
        (["postgresql://bob:S@host/db"], ["postgresql://bob:***@host/db"]),
        (["run", "sk-abcdefghijklmnopqrst"], ["run", "***"]),
    ],
)
def test_secrets_are_masked_wherever_they_stand(words: list[str], shown: list[str]) -> None:
    assert masked_command(words) == shown


@pytest.mark.parametrize(
    "words",
    [
        ["data.max_tokens=512", "++a.pad_token_id=0", "--max-tokens", "5", "tokenizer=x", "trainer.n_gpus=8"],
        ["-c", "import os, sys; print(os.getpid(), 'autotrace' in sys.modules, sys.argv[1:])"],
        ["actor_rollout_ref.model.path=/models/a=b", "http://host:5000/a?b=c"],
    ],
)
def test_the_rest_stays_as_it_is(words: list[str]) -> None:
    assert masked_command(words) == words


def test_uris_and_variables() -> None:
    assert masked_uri("htp://bob:hunter2@host") == "htp://bob:***@host"
    assert masked_uri("http://u:p@ss@host") == "http://u:***@host"
    assert masked_uri("http://u:a b@host/?a=b") == "http://u:***@host/?a=b"
    assert masked_variable("AUTOTRACE_TOKEN", "S") == masked_variable("AUTOTRACE_ALERT", "http://h/S") == "***"
    assert masked_variable("AUTOTRACE_TRACKING_URI", "http://u:S@h") == "http://u:***@h"
    assert masked_variable("AUTOTRACE_RUN_DIR", "/runs") == "/runs"


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("DB_PASSWORD", "S", "***"),
        ("MINHA_SENHA", "S", "***"),
        ("AUTOTRACE_NOTE", f"use {KEY} now", "use *** now"),
        ("AUTOTRACE_HEADERS", "x-api-key=S", "x-api-key=***"),
        ("AUTOTRACE_COMMAND", "login --token S", "login --token ***"),
        ("AUTOTRACE_TRACKING_URI", f"http://h/?key={KEY}", "http://h/?key=***"),
        ("AUTOTRACE_TRACKING_URI", "https:\\/\\/u:S@h", "https:\\/\\/u:***@h"),
        ("AUTOTRACE_KEEP", "reward < 0.5", "reward < 0.5"),
        ("AUTOTRACE_TOKEN", "", ""),
    ],
)
def test_a_variable_is_masked_by_its_name_and_by_the_shape_of_its_value(name: str, value: str, shown: str) -> None:
    assert masked_variable(name, value) == shown
