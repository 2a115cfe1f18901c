"""Count the calls of each tool by step, as the tools page shows them."""

from __future__ import annotations

from typing import Any

from autotrace.tables.columns import ID
from autotrace.tables.conditions import EVERY, Condition
from autotrace.tables.reader import Reader
from autotrace.tables.schema import TABLES

MOST = 50
"""Maximum number of tools."""
_FIGURES = ("calls", "failed", "open", "p50", "p99")
_PLACES = ("slowest", "failing")
_SQL = """
    WITH RECURSIVE calls AS (SELECT {id}, span_id, parent_id, role, title, status, duration_s FROM {spans}),
    chosen AS (SELECT {id}, step FROM {trajectories}
        WHERE is_trajectory AND NOT coalesce(validate, false) AND ({where})
   ),
    failed AS (
        SELECT {id}, span_id, parent_id FROM calls WHERE role = 'tool' AND status NOT IN ('OK', 'OPEN')
        UNION SELECT {id}, calls.span_id, calls.parent_id FROM failed JOIN calls USING ({id})
        WHERE calls.span_id = failed.parent_id
    ),
    one AS (SELECT *, EXISTS (FROM failed AS f WHERE f.run_id = calls.run_id AND f.trace_id = calls.trace_id
        AND f.span_id = calls.span_id) AS has_failed FROM calls WHERE role = 'tool' AND title IS NOT NULL)
    SELECT title, step, grouping(step) = 1, count(*), count(*) FILTER (has_failed), count(*) FILTER (status = 'OPEN'),
        quantile_cont(duration_s, 0.5), quantile_cont(duration_s, 0.99), arg_max([trace_id, span_id], duration_s),
        arg_max([trace_id, span_id], duration_s) FILTER (has_failed)
    FROM one JOIN chosen USING ({id})
    GROUP BY GROUPING SETS ((title), (title, step)) ORDER BY title, step
"""
"""Only the agent's own tool calls have a title. A call also failed if a call below it, of the tool itself, failed."""


def by_step(reader: Reader, wanted: Condition = EVERY) -> list[dict[str, Any]]:
    """Return the tools with most calls in the training: ``name``, ``calls``, ``failed``, ``open``, ``p50`` and ``p99``
    (seconds), the call that took longest and such a call that failed (ids of trace and span), and the same figures by
    step as lists beside ``steps``. A call failed if the call, or a tool that the call made, did not end well. Open
    calls count in neither of the percentiles."""
    needs = {
        "spans": (*ID, "span_id", "parent_id", "role", "title", "status", "duration_s"),
        "trajectories": (*ID, "step", "validate", *wanted.columns),
    }
    for _ in needs:  # the second view may open another database
        names = {name: reader.views.provide(TABLES[name], columns, None) for name, columns in needs.items()}
    sql = _SQL.format(id=", ".join(ID), where=wanted.sql, **names)
    found: dict[str, dict[str, Any]] = {}
    for name, step, is_total, *figures in reader.views.asked(sql, wanted.values):
        one = found.setdefault(name, {"name": name, "steps": [], "by_step": {figure: [] for figure in _FIGURES}})
        if is_total:
            one.update(zip((*_FIGURES, *_PLACES), figures, strict=True))
        elif step is not None:
            one["steps"].append(step)
            for figure, value in zip(_FIGURES, figures, strict=False):
                one["by_step"][figure].append(value)
    return sorted(found.values(), key=lambda one: (-one["calls"], one["name"]))[:MOST]
