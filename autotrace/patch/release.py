"""Whether the installed release of a library is one that a target is meant for."""

from __future__ import annotations

import sys


def outside(requirement: str) -> str | None:
    """Why the installed release does not satisfy ``requirement``; None when it does, or when that cannot be decided."""
    from importlib import metadata

    from packaging.requirements import Requirement
    from packaging.version import InvalidVersion, Version

    wanted = Requirement(requirement)
    try:
        installed = metadata.version(wanted.name)
    except metadata.PackageNotFoundError:
        module = sys.modules.get(wanted.name.replace("-", "_"))
        installed = str(getattr(module, "__version__", ""))
    try:
        if not installed or wanted.specifier.contains(Version(installed), prereleases=True):
            return None
    except InvalidVersion:
        return None
    return f"for {requirement}, installed is {installed}"
