"""Secrets, counted: canaries, of which none gets through, and innocent values, of which at most ``MOST`` are masked.

A line of ``secrets/canaries.jsonl`` is JSON, a text or a value, with each secret between ``[[`` and ``]]``. A line of
``secrets/innocent.jsonl`` is JSON that has to stay as it is."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from autotrace.config.plan import Settings
from autotrace.redact.redactor import Redactor

FOLDER = Path(__file__).with_name("secrets")
SECRET = re.compile(r"\[\[(.*?)\]\]")
MOST = 2


def lines(name: str) -> list[str]:
    return (FOLDER / name).read_text(encoding="utf-8").splitlines()


def masked(value: Any) -> Any:
    return Redactor(Settings()).without_secrets(value)


def test_no_canary_gets_through() -> None:
    given = lines("canaries.jsonl")
    through = []
    for line in given:
        left = json.dumps(masked(json.loads(SECRET.sub(r"\1", line))), ensure_ascii=False)
        through += [line for secret in SECRET.findall(line) if secret in left]
    assert len(given) >= 390 and not through, through


def test_innocent_values_stay() -> None:
    given = [json.loads(line) for line in lines("innocent.jsonl")]
    changed = [(value, after) for value in given if (after := masked(value)) != value]
    assert len(given) >= 660 and len(changed) <= MOST, changed
