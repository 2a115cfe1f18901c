"""Where this installation came from, how to add to it, and whether interpreters activate by themselves (if not, what
``PYTHONPATH`` must hold)."""

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
        f"package, then {again()}"
    )


def again(interpreter: str = "") -> str:
    """Return the command that installs this package anew, or for another ``interpreter``; a phrase where nobody knows
    where the package came from."""
    import shlex

    if (place := origin()) is None:
        return f"install autotrace for {interpreter}, from its wheel" if interpreter else "install its wheel again"
    pip = f"{shlex.quote(interpreter)} -m pip install" if interpreter else "pip install --force-reinstall"
    return f"{pip} {shlex.quote(place)}"


def origin() -> str | None:
    """Return the wheel, the folder or the repository that this installation came from, as pip takes it (PEP 610); None
    where no record says so, or the file is gone."""
    import json
    from importlib.metadata import PackageNotFoundError, distribution
    from urllib.parse import unquote, urlsplit

    try:
        told = json.loads(distribution(DISTRIBUTION).read_text("direct_url.json") or "{}")
        url, vcs = str(told.get("url", "")), told.get("vcs_info")
    except (PackageNotFoundError, OSError, ValueError, AttributeError):
        return None
    if not url.startswith("file:"):
        return f"{DISTRIBUTION} @ {vcs['vcs']}+{url}" if vcs else f"{DISTRIBUTION} @ {url}" if url else None
    path = unquote(urlsplit(url).path)
    return path if os.path.exists(path) else None


def install(extra: str) -> str:
    """Return the command that installs what ``extra`` needs. Names no distribution that an index could have from
    anybody: either the place of this installation, or the libraries themselves."""
    import shlex

    if (place := origin()) is not None:
        name, at, url = place.partition(" @ ")
        return f"pip install {shlex.quote(f'{name}[{extra}]{at}{url}')}"
    return f"pip install {' '.join(map(shlex.quote, requirements(extra)))}"


def look_at(folder: str, trace: str = "") -> str:
    """Return the command that shows ``trace`` of a run folder: the page, if this installation can serve it."""
    from importlib.util import find_spec

    if find_spec("uvicorn") and find_spec("starlette"):
        return f"autotrace view {folder}{f' --trace {trace}' if trace else ''}"
    return f"autotrace show {trace} {folder}" if trace else f"autotrace diagnose {folder}"


def requirements(extra: str) -> list[str]:
    """Return the requirements of ``extra``, as pip takes them; of a source tree without metadata the name alone."""
    import re
    from importlib.metadata import PackageNotFoundError, requires

    try:
        lines = [line.partition(";") for line in requires(DISTRIBUTION) or []]
    except PackageNotFoundError:
        return [extra]
    return [line.strip() for line, _, marker in lines if re.search(rf"extra == ['\"]{extra}['\"]", marker)]


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
