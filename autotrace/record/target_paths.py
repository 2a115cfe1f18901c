"""Hold the compiled paths of a target: where a call's id, tokens, attributes and facts are read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from autotrace.config.plan import Settings, Target
from autotrace.record import formulas
from autotrace.record.fields import Path, is_late

Paths = tuple[Path, ...]
"""Alternatives: the first path with a value counts."""
Named = tuple[tuple[str, Paths], ...]


@dataclass(frozen=True, slots=True)
class TargetPaths:
    """Hold the paths by their purpose."""

    rows: Paths
    """Lead to the rows of a batch, or to the rows that a call returns."""
    id: Paths
    has_late_id: bool
    """Tells whether the id is read from the result."""
    of: Paths
    of_key: Named
    batch: Mapping[str, Paths]
    attributes: Named
    late: Named
    """Lists the attributes that are read from the result."""
    facts: Named
    stated: Named
    """Lists the facts that need no result: a failed call states the facts, too."""
    final: Paths
    prompt: Paths
    late_prompt: Paths
    """Lead to a prompt that comes only with the result (an agent's output)."""
    response: Paths
    logprobs: Paths
    mask: Paths

    @classmethod
    def of_target(cls, target: Target, rows: tuple[str, ...], settings: Settings) -> TargetPaths:
        """Compile the paths of ``target``. ``rows``: the texts of the paths to the rows."""
        tokens = dict(formulas.compiled(target.tokens))
        prompt, pairs = tokens.get("prompt", ()), formulas.compiled(target.attributes)
        late = tuple(pair for pair in pairs if any(map(is_late, pair[1])))
        id = formulas.values_of(target.id)
        return cls(
            rows=formulas.values_of(rows),
            id=id,
            has_late_id=any(map(is_late, id)),
            of=formulas.values_of(target.of),
            of_key=formulas.compiled(target.of_key),
            batch=dict(formulas.compiled(target.batch)),
            attributes=tuple(pair for pair in pairs if pair not in late),
            late=late,
            facts=formulas.compiled(target.facts),
            stated=formulas.without_result(target.facts),
            final=formulas.values_of(target.final),
            prompt=tuple(path for path in prompt if not is_late(path)),
            late_prompt=tuple(path for path in prompt if is_late(path)),
            response=tokens.get("response", ()),
            logprobs=tokens.get("logprobs", ()) if settings.logprobs else (),
            mask=tokens.get("mask", ()),
        )

    def read_at_the_end(self) -> Iterator[Path]:
        """Yield the paths that are read when the call ends."""
        for _, paths in (*self.facts, *self.late, *self.of_key):
            yield from paths
        yield from (*self.response, *self.logprobs, *self.mask, *self.late_prompt)
        yield from self.id if self.has_late_id else ()

    def by_key(self) -> Iterator[tuple[str, Paths, bool]]:
        """Yield (key of the spec, paths, whether the paths are read when the call ends)."""
        yield from (("rows", self.rows, False), ("chains", self.rows, True), ("id", self.id, self.has_late_id))
        yield "of", self.of, False
        yield "tokens.prompt", self.late_prompt or self.prompt, bool(self.late_prompt)
        for key, paths in (("response", self.response), ("logprobs", self.logprobs), ("mask", self.mask)):
            yield f"tokens.{key}", paths, True
        yield from ((f"attributes.{name}", paths, False) for name, paths in self.attributes)
        yield from ((f"attributes.{name}", paths, True) for name, paths in self.late)
        yield from ((f"facts.{name}", paths, True) for name, paths in self.facts)
        yield from ((f"of.{name}", paths, True) for name, paths in self.of_key)
