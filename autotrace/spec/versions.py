"""Version ranges: ``verl>=0.5,<0.8`` is a distribution and a PEP 440 range."""

from __future__ import annotations

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

LONGEST = 500
"""Characters of a range: to read one takes time with the square of them."""


def fault(text: str) -> str | None:
    """What is wrong with the range ``text``; None when some release can be in it."""
    if len(text) > LONGEST:
        return f"a version range has at most {LONGEST} characters, this one has {len(text):,}"
    shown = f'"{text}"'
    try:
        wanted = Requirement(text)
    except InvalidRequirement:
        if text[:1] in "<>=!~":
            return f'{shown} names no distribution: write for example "verl{text}"'
        return f'{shown} is not a version range: write for example "verl>=0.5,<0.8"'
    if wanted.marker or wanted.url or wanted.extras:
        return f'{shown}: only a distribution and a range, for example "{wanted.name}>=0.5"'
    if not wanted.specifier:
        return f'{shown} has no range: write for example "{wanted.name}>=0.5", or leave `versions` out'
    if _empty(wanted.specifier):
        return f"{shown} excludes every release: no version is in all of these ranges"
    return None


def distribution(text: str) -> str:
    """The distribution a valid range is about."""
    return Requirement(text).name


def within(text: str, version: str) -> bool:
    """Whether ``version`` is in the range. A version that cannot be parsed counts as in range."""
    try:
        return Requirement(text).specifier.contains(Version(version), prereleases=True)
    except InvalidVersion:
        return True


def _empty(specifier: SpecifierSet) -> bool:
    """Whether no release can satisfy all parts: tries the bounds and their neighbours."""
    candidates = {"0", "99999"}
    for part in specifier:
        if part.operator == "===":
            return False
        bound = Version(part.version.removesuffix(".*"))
        words = [str(word) for word in bound.release]
        raised = [*words[:-1], str(bound.release[-1] + 1)]
        candidates |= {part.version.removesuffix(".*"), ".".join([*words, "0", "1"]), ".".join(raised)}
        candidates |= {f"{bound.base_version}{suffix}" for suffix in (".post1", "rc1", ".dev0", ".post99999")}
        if bound.release[-1]:
            candidates.add(".".join([*words[:-1], str(bound.release[-1] - 1), "99999"]))
    return not any(specifier.contains(Version(candidate), prereleases=True) for candidate in candidates)
