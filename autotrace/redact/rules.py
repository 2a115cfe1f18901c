"""Credentials that can be recognised by their shape: data, one rule each. ``tests/redact/test_rules.py`` has examples.

Shapes follow what the issuers document; lengths are lower bounds, because issuers change them. Each shape begins with a
prefix of its own and holds a run of at least ``SHORTEST`` characters of ``[A-Za-z0-9_-]``, so a text without such a run
needs no further look (``redact.credentials``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

SHORTEST = 18
"""Characters of the shortest run of ``[A-Za-z0-9_-]`` in any credential below."""


@dataclass(frozen=True)
class Rule:
    """A kind of credential. ``pattern`` matches all of it and never begins in the middle of a word."""

    name: str
    pattern: str


@dataclass(frozen=True)
class Place:
    """Where a credential stands that has no shape of its own. ``pattern`` matches what leads to it as ``head``, and
    the credential; each text with a match contains ``sign`` (a character: found in no time) and one of ``needles``.

    ``needles`` stand under the fragment of a name (``named_values.FRAGMENTS``) that such a text has in small letters,
    too, as most texts have none; under ``""`` those of which one is in ``SIGNS``."""

    name: str
    sign: str
    needles: Mapping[str, tuple[str, ...]]
    pattern: str
    reach: int | None = None
    """A match begins at a word, at most so many characters before a fragment that ``needles`` names; None: anywhere.
    A pattern takes a hundred times as long as to find such fragments."""


TOKENS = (
    Rule("openai, anthropic, deepseek, langfuse", r"sk-(?=[A-Za-z0-9]{16}|[A-Za-z_-]{0,64}\d)[A-Za-z0-9_-]{16,}"),
    Rule("stripe", r"[srp]k_(?:live|test)_[A-Za-z0-9]{10,}"),
    Rule("hugging face", r"(?:hf|api_org)_[A-Za-z0-9]{16,}"),
    Rule("github", r"gh[opsur]_[A-Za-z0-9]{16,}"),
    Rule("github, fine-grained", r"github_pat_[A-Za-z0-9_]{20,}"),
    Rule("gitlab", r"gl(?:pat|ptt|rt|dt|oas|cbt|ft|soat|imt|agent)-[A-Za-z0-9_-]{14,}(?:\.[A-Za-z0-9_-]+)*"),
    Rule("slack", r"xox[abeoprs]-[A-Za-z0-9-]{13,}"),
    Rule("slack, app level", r"xapp-[A-Za-z0-9-]{14,}"),
    Rule("google api", r"AIza[A-Za-z0-9_-]{30,}"),
    Rule("google oauth", r"ya29\.[A-Za-z0-9_-]{18,}"),
    Rule("google oauth client", r"GOCSPX-[A-Za-z0-9_-]{20,}"),
    Rule("groq", r"gsk_[A-Za-z0-9]{16,}"),
    Rule("npm", r"npm_[A-Za-z0-9]{16,}"),
    Rule("pypi", r"pypi-[A-Za-z0-9_-]{30,}"),
    Rule("aws", r"A(?:KIA|SIA|BIA|CCA)[A-Z0-9]{16}(?![A-Za-z0-9])"),
    Rule("nvidia", r"nvapi-[A-Za-z0-9_-]{20,}"),
    Rule("x.ai", r"xai-[A-Za-z0-9]{20,}"),
    Rule("perplexity", r"pplx-[A-Za-z0-9]{20,}"),
    Rule("replicate", r"r8_[A-Za-z0-9]{20,}"),
    Rule("together", r"tgp_v1_[A-Za-z0-9_-]{20,}"),
    Rule("fireworks", r"fw_[A-Za-z0-9]{20,}"),
    Rule("langsmith", r"lsv2_(?:pt|sk)_[A-Za-z0-9_]{20,}"),
    Rule("tavily", r"tvly-[A-Za-z0-9-]{16,}"),
    Rule("weights and biases", r"wandb_v\d_[A-Za-z0-9_]{20,}"),
    Rule("digital ocean", r"do[opr]_v1_[a-f0-9]{20,}"),
    Rule("docker", r"dckr_(?:pat|oat)_[A-Za-z0-9_-]{16,}"),
    Rule("databricks", r"dapi[a-f0-9]{32}"),
    Rule("hashicorp vault", r"hv[sbr]\.[A-Za-z0-9_-]{20,}"),
    Rule("sendgrid", r"SG\.[A-Za-z0-9_-]{18,}\.[A-Za-z0-9_-]{18,}"),
    Rule("shopify", r"shp(?:at|ca|pa|ss)_[A-Fa-f0-9]{20,}"),
    Rule("webhook signing secret", r"whsec_[A-Za-z0-9]{12,}[A-Za-z0-9+/=]*"),
    Rule("age", r"AGE-SECRET-KEY-1[A-Z0-9]{40,}"),
    Rule(
        "json web token",
        r"eyJ(?:[A-Za-z0-9_-]{15,400}\.[A-Za-z0-9_-]{4,}|[A-Za-z0-9_-]{401,})(?:\.[A-Za-z0-9_-]*)*",
    ),
)
"""Found anywhere in a text. A rule's prefix may follow ``_`` or ``-``, never a letter or digit."""

PRIVATE_KEY_BEGINS = Rule("private key", r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?(?=(?P<dashes>-----))")
"""What follows is the key, up to its ``-----END`` (``redact.credentials``)."""
SLACK_HOOK = Rule("slack webhook", r"hooks\.slack\.com/(?:services|workflows|triggers)/[A-Za-z0-9+/]{16,}")
SCHEME = Rule(
    "authorization scheme",
    r"(?<![A-Za-z0-9])(?P<scheme>(?i:bearer)\s+(?=[A-Za-z0-9._~+/-]{16})|Basic\s+(?=[A-Za-z0-9+/]*[0-9+/=][A-Za-z0-9+/=]*))"
    r"[A-Za-z0-9._~+/-]{8,}=*",
)
"""``Bearer X`` and ``Basic X`` where no name of a header stands before them."""

_WORD = r"[^\s\"'`<>(){},;\[\]]"
"""A character of a password that stands in a sentence; it has letters and digits."""

PLACES = (
    Place(
        "curl -u user:password",
        "-",
        {"": ("-u ", "-user")},
        r"(?<!\S)(?P<head>(?:-u|--user|--proxy-user)[ =][\"']?[^\s:\"']+:)[^\s\"']+",
    ),
    Place(
        "mysql -ppassword, sshpass -p password",
        "-",
        {"": (" -p",)},
        r"(?<![\w-])(?P<head>(?:mysql|mariadb|mycli)[\w-]{0,20}(?:[ \t]{1,9}(?!-p)[^\s;|&]{1,255}){0,16}[ \t]{1,9}-p"
        r"|sshpass(?:[ \t]{1,9}-[a-zA-Z]){0,3}[ \t]{1,9}-p[ \t]{0,9})"
        r"(?:\"[^\"\n]+\"|'[^'\n]+'|(?![$<{-]|assword\b)[^\s\"';|&]+)",
    ),
    Place(
        "netrc",
        "p",
        {"pass": ("password ",)},
        r"(?<!\S)(?P<head>(?:machine\s{1,9}\S{1,255}(?:\s{1,9}(?:login|account)\s{1,9}\S{1,255}){0,2}"
        r"|default(?:\s{1,9}(?:login|account)\s{1,9}\S{1,255}){1,2})\s{1,9}password\s{1,9})"
        r"(?!(?:is|was|are|for|in|to|and|or|of|on|the|must|should|will|has|can|from|with)\b)[^\s<]\S*",
    ),
    Place(
        "password in SQL",
        "'",
        {"pass": ("PASSWORD ", "password "), "": ("IDENTIFIED ", "identified ")},
        r"(?P<head>\b(?i:identified\s{1,9}by|(?:with|encrypted|(?:role|user)\s{1,9}\S{1,64})\s{1,9}password)\s{1,9}')[^'\n]+",
    ),
    Place(
        "password in a sentence",
        " ",
        {
            "pass": ("assword", "asscode", "assphrase", "PASSWORD"),
            "pw": ("pwd ",),
            "key": ("ey is ", "ey for ", "ey was "),
            "token": ("oken for ", "oken is "),
            "secret": ("ecret for ", "ecret is ", "ecret was "),
        },
        r"(?P<head>\b(?i:"
        r"(?:pass(?:word|code|phrase|wd)|pwd|(?:api|secret|access|private)[ _-]?key|secret"
        r"|(?:api|access|auth|bearer|secret)[ _-]token)"
        r"(?:'s|(?:[ \t](?:for|of|to)(?:[ \t][^\s.:;,]{1,40}){1,5})?[ \t]{1,3}(?:is|was|will[ \t]be)\b:?)"
        r"|(?:and|with|use|using|the)[ \t]pass(?:word|phrase))[ \t]{1,3}[\"'`]?)"
        r"(?!(?i:sha|md5|base|utf|bcrypt|aes|rsa|hs\d|oauth|https?:|x509|ed25519|v\d|step|pbkdf|argon)[\w-]{0,20}"
        r"|\d+[-\w]{0,3}(?:char|bit|byte|digit|letter))"
        rf"(?={_WORD}{{0,64}}\d)(?={_WORD}{{0,64}}[A-Za-z]){_WORD}{{6,128}}(?<![.:!?])"
        r"(?=[\"'`.:!?,;)]{0,3}(?:\s|\Z))",
        reach=8,
    ),
    Place(
        "key or signature in a URL",
        "=",
        {"key": ("key=",), "": ("sig=", "ignature=")},
        r"(?P<head>(?:[?&]|&amp;)(?:key|sig|(?i:signature|x-[a-z]{2,6}-signature))=)"
        r"(?:(?=[\w.~%+/=-]{0,64}\d)[\w.~%+/=-]{6,}|[\w.~%+/=-]{20,})",
    ),
)

SIGNS = {"b": ("bearer", "basic "), "d": ("identified ",), "-": ("-u", " -p"), "=": ("sig=", "ignature="), "@": ("@",)}
"""One of these, or a fragment of a secret's name, stands in small letters in each text that holds a credential without
a run of ``SHORTEST``: in front of hosts, behind schemes, in ``PLACES``. None is longer than that. Each stands under a
character of its own, which is found in no time."""
