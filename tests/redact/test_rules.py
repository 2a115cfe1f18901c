"""Every rule finds what it is for, wherever it stands in a text, and nothing that only looks like it."""

from __future__ import annotations

import re

import pytest

from autotrace.redact import rules
from autotrace.redact.credentials import REDACTED, without_credentials

MIX = "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8s9T0"
HEX = "0123456789abcdef" * 4
EXAMPLES = {
    "openai, anthropic, deepseek, langfuse": (
        ["sk-" + "a" * 20, "sk-ant-api03-" + MIX, "sk-proj-" + MIX],
        ["sk-short", "sk-learn-like-names-of-things"],
    ),
    "stripe": (["sk_live_" + MIX, "rk_test_" + MIX[:12], "pk_live_" + MIX], ["sk_live_x", "task_live_" + MIX]),
    "hugging face": (["hf_" + MIX, "api_org_" + MIX], ["hf_hub_download_options", "shelf_" + MIX]),
    "github": (["ghp_" + MIX, "gho_" + MIX, "ghu_" + MIX, "ghs_" + MIX, "ghr_" + MIX], ["ghp_short"]),
    "github, fine-grained": (["github_pat_11ABC_" + MIX], ["github_pattern_of_names"]),
    "gitlab": (["glpat-" + MIX[:20], "gldt-" + MIX[:20], "glrt-" + MIX[:14] + ".01.x"], ["glpat-x"]),
    "slack": (["xoxb-123456789012-abcDEF", "xoxp-" + MIX], ["xoxb-none"]),
    "slack, app level": (["xapp-1-A0123-456-" + HEX], ["xapp-x"]),
    "google api": (["AIza" + MIX[:35]], ["AIzaShort"]),
    "google oauth": (["ya29." + MIX], ["ya29.a"]),
    "google oauth client": (["GOCSPX-" + MIX[:28]], ["GOCSPX-x"]),
    "groq": (["gsk_" + MIX], ["gsk_x"]),
    "npm": (["npm_" + MIX[:36]], ["npm_config_registry_url"]),
    "pypi": (["pypi-AgEIcHlwaS5vcmc" + MIX], ["pypi-publish"]),
    "aws": (["AKIAIOSFODNN7EXAMPLE", "ASIAIOSFODNN7EXAMPLE"], ["AKIAIOSFODNN7EXAMPLEISLONGER", "AKIAlowercase0000000"]),
    "nvidia": (["nvapi-" + MIX], ["nvapi-x"]),
    "x.ai": (["xai-" + MIX], ["xai-x"]),
    "perplexity": (["pplx-" + MIX], ["pplx-7b-online"]),
    "replicate": (["r8_" + MIX], ["r8_x"]),
    "together": (["tgp_v1_" + MIX], ["tgp_v1_x"]),
    "fireworks": (["fw_" + MIX[:24]], ["fw_bw"]),
    "langsmith": (["lsv2_pt_" + HEX[:32] + "_" + HEX[:10]], ["lsv2_pt_x"]),
    "tavily": (["tvly-dev-" + MIX], ["tvly-x"]),
    "weights and biases": (["wandb_v1_" + MIX], ["wandb_v1_x"]),
    "digital ocean": (["dop_v1_" + HEX], ["dop_v1_x"]),
    "docker": (["dckr_pat_" + MIX[:27]], ["dckr_pat_x"]),
    "databricks": (["dapi" + HEX[:32]], ["dapi" + HEX[:8]]),
    "hashicorp vault": (["hvs." + MIX], ["hvs.x"]),
    "sendgrid": (["SG." + MIX[:22] + "." + MIX], ["SG.x.y"]),
    "shopify": (["shpat_" + HEX[:32]], ["shpat_x"]),
    "webhook signing secret": (["whsec_" + MIX[:20] + "+/" + MIX[:8]], ["whsec_x"]),
    "age": (["AGE-SECRET-KEY-1" + MIX.upper() * 2], ["AGE-SECRET-KEY-1X"]),
    "json web token": (
        ["eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U",
         "eyJhbGciOiJIUzI1NiJ9.eyJzdWIi"],
        ["eyJhbGciOiJIUzI1NiJ9", "eyJ.a.b"],
    ),
}  # fmt: skip


def test_every_rule_has_examples() -> None:
    assert {rule.name for rule in rules.TOKENS} == set(EXAMPLES)


@pytest.mark.parametrize("rule", rules.TOKENS, ids=lambda rule: rule.name)
def test_a_rule(rule: rules.Rule) -> None:
    secrets, ordinary = EXAMPLES[rule.name]
    for secret in secrets:
        assert re.fullmatch(rule.pattern, secret)
        for text in ("{}", "The key: {}, say.", "é{}\n", "a={}&b", '"{}"', "x_{} y", "(" + "word " * 500 + "{})"):
            cleaned = without_credentials(text.format(secret))
            assert secret not in cleaned and REDACTED in cleaned, text
            assert len(cleaned) >= len(text) - 2  # the rest stays
    for text in ordinary:
        assert without_credentials(f"see {text} there") == f"see {text} there"


def test_several_in_one_text() -> None:
    first, second = "ghp_" + MIX, "sk-" + MIX
    assert without_credentials(f"{first},{second};{first}") == f"{REDACTED},{REDACTED};{REDACTED}"


@pytest.mark.parametrize("newline", ["\n", "\\n"])
@pytest.mark.parametrize("kind", ["RSA PRIVATE KEY", "PRIVATE KEY", "OPENSSH PRIVATE KEY", "PGP PRIVATE KEY BLOCK"])
def test_private_keys(kind: str, newline: str) -> None:
    lines = ["before", f"-----BEGIN {kind}-----", MIX, MIX + "+/==", f"-----END {kind}-----", "after, all of it"]
    cleaned = without_credentials(newline.join(lines))
    assert cleaned == newline.join(["before", REDACTED, "after, all of it"])
    cut = without_credentials(newline.join(lines[:4])[:-20])
    assert cut == f"before{newline}{REDACTED}"


def test_what_only_speaks_of_private_keys() -> None:
    text = 'if "-----BEGIN PRIVATE KEY-----" in text: raise ValueError("this is a private key")'
    assert without_credentials(text) == text
