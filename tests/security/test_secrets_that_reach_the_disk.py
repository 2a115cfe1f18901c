"""What agents and the programs around them hold, in the shapes and at the places where it once reached the disk."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from autotrace.config.plan import Settings
from autotrace.redact.masking import masked_command
from autotrace.redact.redactor import Redactor
from tests.redact.test_rules import written_out

SHAPES = {
    "telegram": "1102015431:AA{33}", "discord": "https://discord.com/api/webhooks/123456789012345678/{40}{28}",
    "teams": "https://acme.webhook.office.com/webhookb2/{x8}-0123-4567-89ab-{x12}@{x8}-0123-4567-89ab-{x12}"
    "/IncomingWebhook/{x32}/{x8}-0123-4567-89ab-{x12}",
    "pinecone": "pcsk_5A2b1C_{40}{20}", "e2b": "e2b_{x40}", "jina": "jina_{x32}{28}", "firecrawl": "fc-{x32}",
    "browserbase": "bb_live_{27}", "twilio": "SK{x32}", "mailgun": "key-{x32}", "doppler": "dp.st.prd.{40}",
    "notion": "ntn_{40}", "linear": "lin_api_{40}", "supabase": "sbp_{x40}", "postman": "PMAK-{x24}-{x34}",
    "grafana": "glsa_{32}_{x8}", "sentry": "sntryu_{x64}", "openai's page": "sess-{40}", "google refresh": "1//0{40}",
    "discord bot": "MTk4NjIyNDgzNDcxOTI1MjQ4.Cl2FMQ.{38}", "atlassian": "ATATT3{40}{40}", "airtable": "pat{14}.{x64}",
    "terraform": "{14}.atlasv1.{40}{25}", "dropbox": "sl.{40}{40}{40}", "fly.io": "fo1_{40}123",
    "1password": "ops_eyJ{40}{40}", "heroku": "HRKU-AA{40}{20}", "new relic": "NRAK-{u27}",
}  # fmt: skip
"""What is left of an address may stay: the host, and which hook it is."""
PEM = base64.b64encode(
    b"-----BEGIN RSA PRIVATE KEY-----\nMIIEowIBAAKCAQEAx0123456789\n-----END RSA PRIVATE KEY-----\n"
).decode()
LONG = written_out("{40}")
PLACES: dict[str, tuple[Any, str]] = {
    "OAuth's code in a URL": (f"GET https://app/cb?state=1&code={LONG} HTTP/1.1", LONG),
    "OAuth's code at the front": (f"http://localhost:8123/callback?code={LONG}", LONG),
    "a field pat": ({"pat": "secret-of-mine"}, "secret-of-mine"),
    "a field github_pat": ({"github_pat": "secret-of-mine"}, "secret-of-mine"),
    "pat in a text of JSON": (f'the answer was {{"pat": "{LONG}"}}', LONG),
    "pat in escaped JSON": (f'"{{\\"pat\\": \\"{LONG}\\"}}"', LONG),
    "set password": ("then set password hunter2x for bob", "hunter2x"),
    "set the password to": ("please set the root password to 'Winter2026'", "Winter2026"),
    "sig in argv": (["azcopy", f"sig={LONG}"], LONG),
    "client-key-data": (f"users:\n- user:\n    client-key-data: {PEM}\n", PEM[60:100]),
    "client-key-data in a dict": ({"client-key-data": "b" * 30}, "b" * 30),
    "an address within an address": (f"https://h/?next=https%3A%2F%2Fi%2F%3Faccess_token%3D{LONG}%26x%3D1", LONG),
    "a name without a break": (f"version: 2\nauthtoken: {LONG}\n", LONG),
    "a dict of such a name": ({"accesstoken": "hunter2x", "creds": "hunter2x", "openaiKey": "hunter2x"}, "hunter2x"),
    "a plural": ({"access_tokens": ["hunter2x"]}, "hunter2x"),
    "names with capitals": ({"Name": "DB_PASSWORD", "Value": "hunter2x"}, "hunter2x"),
    "an attribute": ('<property name="password" value="hunter2x"/>', "hunter2x"),
    "a form's attribute": ('<input type="password" name="pw" id="p" value="hunter2x">', "hunter2x"),
    "a form in parts": (b'form-data; name="password"\r\n\r\nhunter2x\r\n--b--'.decode(), "hunter2x"),
    "a form in escaped parts": (r'form-data; name="password"\r\n\r\nhunter2x\r\n--b--', "hunter2x"),
    "a browser's tool": ({"element": "Password field", "ref": "e1", "text": "hunter2x"}, "hunter2x"),
    "a browser's call": ("page.fill('#password', 'hunter2x')", "hunter2x"),
    "an account in code": ("get(url, auth=('bob', 'hunter2x'))", "hunter2x"),
    "Markdown": ("- **Password:** `hunter2x`", "hunter2x"),
    "a command in words": (["docker", "login", "-u", "bob", "-p", "hunter2x"], "hunter2x"),
    "an account in words": (["curl", "-u", "bob:hunter2x", "https://h"], "hunter2x"),
    "an option with its value": (["mysql", "-uroot", "-phunter2x", "db"], "hunter2x"),
    "a webhook in a sentence": (f"post it to https://hooks.slack.com/services/T0/B0/{LONG}, please", LONG),
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("text", ["{}", "use {} then", '{{"a": "{}"}}', "https://h/p?x={}", "export X={}\n"])
def test_a_well_known_shape_is_masked_in_a_text(shape: str, text: str) -> None:
    secret = written_out(SHAPES[shape])
    cleaned = Redactor(Settings()).clean("text", text.format(secret))
    assert secret[-20:] not in cleaned


@pytest.mark.parametrize("place", PLACES)
def test_a_place_in_a_real_program_is_masked(place: str) -> None:
    value, secret = PLACES[place]
    assert secret not in repr(Redactor(Settings()).clean("value", value))


def test_a_signature_of_a_command_line_is_masked() -> None:
    assert LONG not in repr(masked_command(["azcopy", "copy", f"sig={LONG}", "x"]))


@pytest.mark.parametrize(
    "words",
    [
        ["docker", "login", "-p", "hunter2"],
        ["curl", "-u", "bob:hunter2"],
        ["mysql", "-phunter2"],
        ["redis-cli", "-a", "hunter2"],
    ],
)
def test_a_password_that_its_command_makes_one_is_in_no_run_json(words: list[str]) -> None:
    assert "hunter2" not in repr(masked_command(words))
