"""Credentials in the forms that people write them, in every place of a value: none of them is on a disk.

They are put together here, so that no scanner takes this file for a leak; the digits differ from form to form, so that
the one that was found can be told.
"""

from __future__ import annotations

from contextlib import suppress

from . import report

BODY = "Zq7Rk2Vw9Xc4Bn6Mt1Lp8Js3Hd5Gf0Ya"


def _forms() -> dict[str, tuple[str, str]]:
    """Name -> (text around the secret with ``{}``, secret)."""
    unique = {name: f"{BODY[number:]}{BODY[:number]}{number:02}" for number, name in enumerate(NAMES)}
    token = {name: prefix + unique[name] for name, prefix in PREFIXES.items()}
    texts = {name: (f"use {{}} for {name}", secret) for name, secret in token.items()}
    return {
        **texts,
        "url password": ("redis://:{}@cache.example:6379/0", unique["url password"]),
        "url user": ("https://{}@git.example/repository", unique["url user"]),
        "url both": ("postgres://admin:{}@db.example/app", unique["url both"]),
        "basic": ("Authorization: Basic {}", unique["basic"]),
        "bearer": ("Authorization: Bearer {}", unique["bearer"]),
        "header": ("x-api-key: {}", unique["header"]),
        "export": ("export SERVICE_KEY={}", unique["export"]),
        "yaml": ("password: {}", unique["yaml"]),
        "option": ("deploy --password {} --verbose", unique["option"]),
        "json": ('{{"api_key": "{}"}}', unique["json"]),
        "pem": ("-----BEGIN PRIVATE " + "KEY-----\n{}\n-----END PRIVATE " + "KEY-----", unique["pem"]),
        "xml": ("<server><password>{}</password></server>", unique["xml"]),
        "block": ("server:\n  password: |\n    {}\n  user: admin", unique["block"]),
        "netrc": ("machine git.example login bob password {}", unique["netrc"]),
        "url key": ("https://maps.example/v1?key={}&q=here", unique["url key"]),
        "signature": ("https://blobs.example/c?sv=2020&sig={}", unique["signature"]),
        "mysql": ("mysqldump -u root -p{} app", unique["mysql"]),
        "sshpass": ("sshpass -p {} ssh admin@host.example", unique["sshpass"]),
        "jwt": ("session ey" + "JhbGciOiJIUzI1NiJ9.ey" + "JzdWIiOiIxIn0.{}", unique["jwt"]),
    }


PREFIXES = {
    "github": "gh" + "p_", "github user": "gh" + "u_", "gitlab": "gl" + "pat-", "slack": "xo" + "xb-123456789012-",
    "google": "AI" + "za",
    "groq": "gs" + "k_", "stripe": "sk_" + "live_", "npm": "np" + "m_", "openai": "sk-" + "proj-",
    "huggingface": "h" + "f_",
}  # fmt: skip
NAMES = (*PREFIXES, "url password", "url user", "url both", "basic", "bearer", "header", "export", "yaml", "option",
         "json", "pem", "xml", "block", "netrc", "url key", "signature", "mysql", "sshpass", "jwt",
         "pair", "entry", "pass", "pw", "nested")  # fmt: skip


class Denied(Exception):
    """A library's error, with what was sent in its message."""


def ask(prompt: object) -> object:
    """Takes anything."""
    return None


def answer(prompt: str) -> object:
    """Gives back what it was given."""
    return {"echo": prompt}


def connect(where: str) -> None:
    """Fails, and says with what."""
    raise Denied(f"rejected: {where}")


def main(variant: str) -> None:
    """``arguments``, ``results``, ``errors``, ``structures``."""
    secrets = {name: secret for name, (_, secret) in _forms().items()}
    for form, secret in _forms().values():
        text = form.format(secret)
        if variant == "arguments":
            ask(text)
        elif variant == "results":
            answer(text)
        elif variant == "errors":
            with suppress(Denied):
                connect(text)
    if variant == "structures":
        secrets = {name: f"{BODY[3:]}{number:03}" for number, name in enumerate(NAMES)}
        ask([("Authorization", f"Bearer {secrets['bearer']}"), ("x-api-key", secrets["header"])])
        ask([{"name": "api_key", "value": secrets["entry"]}])
        ask({"headers": [["Authorization", secrets["pair"]]]})
        ask({"pass": secrets["pass"], "pw": secrets["pw"]})
        ask({"a": [{"b": ({"password": secrets["nested"]},)}]})
        ask((1, f"password={secrets['yaml']}", 2.0))
        ask([1, {"api_key": secrets["json"]}, 2])
    report(secrets=secrets)
