"""Whether interpreters of this environment activate by themselves, and what ``PYTHONPATH`` must hold if not."""

from __future__ import annotations

import os
import site
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.metadata import Distribution

PACKAGE_PARENT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SITECUSTOMIZE = os.path.join(PACKAGE_PARENT, "autotrace", "bootstrap", "sitecustomize")
PTH = "autotrace.pth"
DISTRIBUTION = "autotrace-rl"
"""What this package is called where packages are installed from: ``autotrace`` is another project there."""


def replaced() -> str | None:
    """Return a sentence where another package's module ``autotrace`` replaced this one; None where none did.

    The package index has other projects whose module has the same name, and the last one that is installed wins."""
    import autotrace

    if getattr(autotrace, "__distribution__", None) == DISTRIBUTION:
        return None
    others = ", ".join(f"{one.name} {one.version}" for one in others_of_our_name()) or "another package"
    return (
        f"{PACKAGE_PARENT}/autotrace/__init__.py is not that of {DISTRIBUTION}: {others} replaced it; uninstall that "
        f"package, then pip install --force-reinstall {DISTRIBUTION}"
    )


def others_of_our_name() -> Iterator[Distribution]:
    """The installed packages of other projects that have a module ``autotrace``, or whose name it is."""
    from importlib.metadata import distributions

    ours = {"autotrace/__init__.py", "autotrace.py"}
    for one in distributions():
        named = one.name == "autotrace" and not any(entry.name == "autotrace-run" for entry in one.entry_points)
        is_other = (one.name or "").lower().replace("_", "-") not in (DISTRIBUTION, "autotrace")
        if named or (is_other and not ours.isdisjoint(map(str, one.files or ()))):
            yield one


def carried(name: str, in_sources: str) -> str:
    """A folder that the package carries: as it is installed, else where a source tree has it, below its root."""
    installed = os.path.join(PACKAGE_PARENT, "autotrace", name)
    return installed if os.path.isdir(installed) else os.path.join(PACKAGE_PARENT, in_sources)


def pth_file() -> str | None:
    """Path of this interpreter's ``autotrace.pth``; None: not installed (a source tree on ``PYTHONPATH``)."""
    folders = [*site.getsitepackages(), *([site.getusersitepackages()] if site.ENABLE_USER_SITE else [])]
    return next((path for folder in folders if os.path.exists(path := os.path.join(folder, PTH))), None)


def with_package(environ: Mapping[str, str]) -> dict[str, str]:
    """``environ`` in which ``import autotrace`` works: unchanged where the package is installed."""
    own = dict(environ)
    if pth_file() is None:
        own["PYTHONPATH"] = _joined(environ.get("PYTHONPATH"), PACKAGE_PARENT)
    return own


def with_activation(environ: Mapping[str, str]) -> dict[str, str]:
    """``environ`` in which interpreters activate: where no ``.pth`` does it, the ``sitecustomize`` folder in front."""
    own = with_package(environ)
    if pth_file() is None:
        own["PYTHONPATH"] = _joined(SITECUSTOMIZE, own["PYTHONPATH"])
    return own


def _joined(*parts: str | None) -> str:
    """One search path, each entry once, where it comes first."""
    entries = [entry for part in parts if part for entry in part.split(os.pathsep)]
    return os.pathsep.join(dict.fromkeys(entries))
