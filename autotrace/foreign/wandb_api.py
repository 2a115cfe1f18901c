"""Read a run's metrics and configuration through W&B's public API: ``wandb://ENTITY/PROJECT/RUN``.

The user's key (``WANDB_API_KEY``, otherwise netrc) goes to ``WANDB_BASE_URL`` (default: ``https://api.wandb.ai``) and
nowhere else: no redirect is followed. An answer is anybody's, and counts as a stranger's file.
"""

from __future__ import annotations

import base64
import json
import netrc
import os
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from autotrace.config import ids
from autotrace.foreign.collector import listed, mapped
from autotrace.foreign.opened import LONGEST, decoded
from autotrace.foreign.scalars import SETTING, Scalar, TrainerLog, collected, of_row
from autotrace.foreign.source import Foreign, ForeignRun
from autotrace.redact.masking import masked_uri
from autotrace.tables.errors import QueryError
from autotrace.trajectory.jsonable import integer, loaded

SCHEME, BASE = "wandb://", "https://api.wandb.ai"
PAGE, PAGES, TIMEOUT = 1000, 2000, 30.0
"""Rows of a request, maximum requests of a run, seconds of a request. A request covers ``PAGE`` steps, and more where
few steps have rows."""
QUERY = """query Run($entity: String!, $project: String!, $run: String!, $from: Int64!, $to: Int64!, $size: Int!) {
    project(name: $project, entityName: $entity) {
        run(name: $run) { config historyKeys history(minStep: $from, maxStep: $to, samples: $size) }
    }
}"""


class _Stays(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        """Refuse redirects."""


def run(address: str) -> Foreign:
    """Read the run at ``address``. Raises ``QueryError`` with a sentence."""
    names = address.removeprefix(SCHEME).split("/")
    if len(names) != 3 or not all(names):
        raise QueryError(f"{address} names no run; write {SCHEME}ENTITY/PROJECT/RUN")
    found = collected(_history(dict(zip(("entity", "project", "run"), names, strict=True)), address), address)
    called, logged = ids.run_id(names[2], "run"), found.get("", TrainerLog({}, {}))
    return Foreign(Path(address), called, ForeignRun("W&B's metrics", [], None, logged), [])


def _history(names: dict[str, str], address: str) -> Iterator[Scalar]:
    at, width = 0, PAGE
    for _ in range(PAGES):
        answer = _asked({**names, "from": at, "to": at + width, "size": PAGE}, address)
        told = mapped(answer, "data", "project", "run")
        if not told:
            raise QueryError(f"{address}: W&B knows no such run, or your key may not read the run")
        rows = listed(told.get("history"))
        if len(rows) >= PAGE < width:  # W&B leaves rows out of a longer answer
            width //= 2
            continue
        given = loaded(str(told.get("config"))) if not at else None
        for name, value in mapped(given).items():
            yield "", SETTING, name, mapped(value).get("value", value)
        for line in rows:
            row = mapped(loaded(line) if isinstance(line, str) else line)
            yield from of_row("", {name: value for name, value in row.items() if name[:1] != "_"}, row.get("_step"))
        at += width
        if (integer(mapped(told, "historyKeys").get("lastStep")) or 0) < at:
            return
        width *= 2 if len(rows) < PAGE // 4 else 1


def _of_netrc(host: str) -> str:
    try:
        return (netrc.netrc().authenticators(host) or [""] * 3)[2] or ""
    except FileNotFoundError:
        return ""


def _asked(variables: dict[str, Any], address: str) -> Any:
    base, key = os.environ.get("WANDB_BASE_URL", BASE).rstrip("/"), ""
    try:
        key = os.environ.get("WANDB_API_KEY") or _of_netrc(urlsplit(base).netloc)
        given = {"Authorization": f"Basic {base64.b64encode(f'api:{key}'.encode()).decode()}"} if key else {}
        body = json.dumps({"query": QUERY, "variables": variables}).encode()
        headers = {"Content-Type": "application/json", **given}
        request = urllib.request.Request(f"{base}/graphql", body, headers)
        with urllib.request.build_opener(_Stays).open(request, timeout=TIMEOUT) as answer:
            return decoded(answer.read(LONGEST))
    except (OSError, ValueError, RecursionError, netrc.NetrcParseError) as error:
        no_key = "" if key else "; WANDB_API_KEY, or netrc, gives your key"
        # the server's own words may quote the key
        reason = f"HTTP {error.code}" if isinstance(error, urllib.error.HTTPError) else error
        raise QueryError(f"{address} cannot be read from {masked_uri(base)}: {reason}{no_key}") from None
