"""Values under their names: what is written of a mapping, and what is remembered of its keys."""

from __future__ import annotations

from autotrace.config.plan import Settings
from autotrace.redact.credentials import REDACTED
from autotrace.redact.redactor import LONGEST_NAME, Redactor

KEYS = ["ghp_" + letter * 36 for letter in "abc"]


def test_keys_that_are_redacted_to_the_same_text_keep_their_values() -> None:
    cleaned = Redactor(Settings()).clean("value", {key: number for number, key in enumerate(KEYS)})
    assert cleaned == {REDACTED: 0, f"{REDACTED} #2": 1, f"{REDACTED} #3": 2}


def test_a_number_that_is_taken_is_not_given_again() -> None:
    cleaned = Redactor(Settings()).clean("value", {f"{REDACTED} #3": 0, KEYS[0]: 1, KEYS[1]: 2})
    assert sorted(cleaned.values()) == [0, 1, 2]


def test_long_texts_are_no_names_to_be_remembered() -> None:
    redactor = Redactor(Settings())
    for number in range(50):
        text = f"{number}" * 50_000
        redactor.clean("value", {"name": text, "value": 1})
        redactor.clean(text, 1)
        redactor.clean("value", {text: 1})
    assert sum(map(len, redactor._names)) < 50 * LONGEST_NAME


def test_a_long_name_is_still_looked_at() -> None:
    name = "x" * LONGEST_NAME + "_password"
    assert Redactor(Settings()).clean("value", {name: "hunter"}) == {name: REDACTED}


def test_a_private_key_line_by_line() -> None:
    lines = ["-----BEGIN RSA PRIVATE KEY-----\n", "MIIEpAIBAAKC\n", "AQEA7bq+/w==\n", "-----END RSA PRIVATE KEY-----\n"]
    cleaned = Redactor(Settings()).clean("value", [*lines, "word"])
    assert "MIIE" not in str(cleaned) and "AQEA" not in str(cleaned) and cleaned[-1] == "word"


def test_the_schema_of_an_argument_is_no_secret() -> None:
    declared = {"type": "string", "description": "the user's password", "minLength": 8}
    tool = {"parameters": {"type": "object", "properties": {"password": declared, "api_key": {"type": "string"}}}}
    assert Redactor(Settings()).clean("tools", [tool]) == [tool]
    cleaned = Redactor(Settings()).clean(
        "tools", {"password": {**declared, "default": "hunter2", "examples": ["hunter2"]}}
    )
    assert "hunter2" not in str(cleaned) and cleaned["password"]["type"] == "string"
    kept = {"password": {"type": "string", "value": "hunter2"}}
    assert Redactor(Settings()).clean("tools", kept) == {"password": REDACTED}


def test_a_list_or_mapping_under_the_name_of_a_secret_is_hidden_with_its_secrets() -> None:
    hidden = {
        "access_token": ["hunter2hunter2"], "github_token": {"value": "hunter2hunter2"}, "password": {"new": "hunter"},
        "secret_key": list(range(32)), "api_key": [{"value": "hunter"}],
    }  # fmt: skip
    assert set(Redactor(Settings()).clean("value", hidden).values()) == {REDACTED}


def test_tokens_of_a_model_and_codes_of_a_game_stay() -> None:
    kept = {
        "tokens": ["hunter2hunter2"], "token_ids": [1, 2], "token": {"id": 5, "text": "hunter2hunter2"},
        "secret": ["CRANE", "SLATE"], "secret_code": [1, 2, 3, 4], "api_key": {}, "password": [None], "cookies": [],
        "top_logprobs": [{"token": "hunter2hunter2", "token_id": 5}],
        "choice": {"token": ["hunter2hunter2", "other3other3"], "logprobs": [-0.5, -0.25]},
    }  # fmt: skip
    assert Redactor(Settings()).clean("value", kept) == kept


def test_the_value_of_a_key_that_nobody_needs_stays() -> None:
    kept = {"api_key": "EMPTY", "OPENAI_API_KEY": "sk-no-key-required", "password": "<password>", "token": "${TOKEN}"}
    assert Redactor(Settings()).clean("value", kept) == kept
    assert Redactor(Settings()).clean("value", {"password": "<hunter2>"}) == {"password": REDACTED}
