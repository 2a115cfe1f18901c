"""Read the files of the page, and write the page as one file, for a colleague without the run: the modules joined to
one script, and the data within.

The data is compressed and in base64, so no text of a model is in the file as text. The file's own policy names the
script and the style by their digests and forbids every request.
"""

from __future__ import annotations

import base64
import functools
import gzip
import hashlib
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Any

import msgspec

from autotrace.tables.conditions import Condition
from autotrace.tables.reader import Reader
from autotrace.trajectory.jsonable import integer, jsonable
from autotrace.view import columns, detail, pictures, timelines, tokens, tools
from autotrace.view.open_runs import findings

STATIC = Path(__file__).parent / "static"
_IMPORT = re.compile(r"^import .*?;\n", re.M | re.S)
_MODULE = re.compile(r'from "\./(?P<name>[\w.]+)";')
_EXPORT = re.compile(r"^export ", re.M)


def text(name: str) -> str:
    """Return the content of a file of ``STATIC``."""
    return (STATIC / name).read_text(encoding="utf-8")


@functools.cache  # anybody may ask for the bundle
def bundle(entry: str) -> str:
    """Join the module ``entry`` and all imported modules into a single script. Top-level names must differ, which a
    test checks."""
    order: list[str] = []

    def visit(name: str) -> None:
        if name not in order:
            for match in _MODULE.finditer(text(name)):
                visit(match["name"])
            order.append(name)

    visit(entry)
    parts = (_EXPORT.sub("", _IMPORT.sub("", text(name))) for name in order)
    return "\n".join(parts).replace("</script", "<\\/script")


CALL_LIMIT = 2000
"""Characters of an argument or result; the server shows the whole text."""
GROUP_LIMIT = 16
"""Rollouts of a group up to which every pair is compared; in larger groups every rollout is compared with the best."""


def written(reader: Reader, wanted: Condition, rows: Sequence[Any]) -> Iterator[str]:
    """Yield the parts of the file, in order, with the trajectories ``rows``, which are the matches of ``wanted``."""
    script = bundle("main.js")
    libraries = [text(f"vendor/{path.name}") for path in sorted(STATIC.glob("vendor/*.js"))]
    style = text("vendor/uPlot.min.css") + text("page.css")
    policy = (
        f"default-src 'none'; script-src {' '.join(map(_digest, [*libraries, script]))}; style-src {_digest(style)}; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    head = text("index.html").partition("<!-- assets -->")[0]
    yield head.replace("<!-- policy -->", f'<meta http-equiv="Content-Security-Policy" content="{policy}">')
    yield f"<style>{style}</style>\n"
    yield text("index.html").partition("<!-- /assets -->")[2].partition("<!-- data -->")[0]
    for name, body in _data(reader, wanted, rows):
        yield f'<script type="text/plain" id="data {escape(name)}">{body}</script>\n'
    yield from (f"<script>{library}</script>\n" for library in libraries)
    yield f'<script type="module">{script}</script>\n</body>\n</html>\n'


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _data(reader: Reader, wanted: Condition, rows: Sequence[Any]) -> Iterator[tuple[str, str]]:
    info, names, living = reader.run.info, columns.names(reader), reader.run.living
    run, created, command = info.run_id, info.created, " ".join(info.command)
    about = {
        "run": run, "created": created, "command": command, "state": "exported", "trajectories": len(rows),
        "trace": rows[0].trace_id if len(rows) == 1 else "",
    }  # fmt: skip
    notes = [f"{len(rows):,} trajectories, exported to this file; the server shows the whole run and its texts' search"]
    state = {**about, "version": 1, "live": False, "open": 0, "losses": [], "warnings": [], "notes": notes}
    yield "runs", _json({"version": "", "runs": [about]})
    yield "state", _json({**state, "error": None})
    yield "names", _json(names)
    yield "columns", _encoded(columns.packed(reader, ["group", *names["numbers"], *names["texts"]], wanted))
    yield "findings", _json(findings(reader, rows))
    yield "tools", _json(tools.by_step(reader, wanted))
    by_group: dict[str, list[Any]] = defaultdict(list)
    by_step: dict[int, list[dict[str, Any]]] = defaultdict(list)
    copies = set[str]()
    for row in rows:
        by_group[row.group_id].append(row)
    for members in by_group.values():
        loaded = [one for _, one in reader.each(members) if one is not None]
        for one in loaded:
            shown = detail.detail(one, living)
            copies |= {
                of["copy"] for item in shown["conversation"] for of in item.get("pictures", ()) if type(of) is dict
            }
            yield f"trace {one.trace_id}", _json(shown)
            yield f"tokens {one.trace_id}", _encoded(tokens.packed(one, reader.run.decode, short=True))
            yield f"calls {one.trace_id}", _json({span.span_id: detail.call(span, CALL_LIMIT) for span in one.spans})
            step = integer(one.attributes.get("step"))
            if step is not None and not one.attributes.get("validate"):
                by_step[step].append(timelines.rollout(one, living))
        if len(loaded) > 1:
            body = _json(detail.beside(loaded, every=len(loaded) <= GROUP_LIMIT))
            yield f"group {min(one.trace_id for one in loaded)}", body
    for number, rollouts in by_step.items():
        yield f"step {number}", _json(timelines.of_rollouts(rollouts))
    for name in sorted(copies):
        yield f"picture {name}", _json(pictures.copied(name, reader.run.path))


def _json(value: Any) -> str:
    return _encoded(msgspec.json.encode(jsonable(value)))


def _encoded(body: bytes) -> str:
    return base64.b64encode(gzip.compress(body, 6, mtime=0)).decode()
