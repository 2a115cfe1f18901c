"""Describe this installation: its origin, how to extend the installation, and how interpreters activate."""

from __future__ import annotations

import contextlib
import os
import site
import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.metadata import Distribution

PACKAGE_PARENT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SITECUSTOMIZE = os.path.join(PACKAGE_PARENT, "autotrace", "bootstrap", "sitecustomize")
PTH = "autotrace.pth"
DISTRIBUTION = "autotrace-rl"
"""Name of this package on package indexes, where ``autotrace`` is another project."""


def replaced() -> str | None:
    """Return a sentence if another package's module ``autotrace`` replaced this package; None otherwise.

    The package index has other projects with a module of the same name, and the last installed project wins.
    """
    import autotrace

    if getattr(autotrace, "__distribution__", None) == DISTRIBUTION:
        return None
    others = ", ".join(f"{one.name} {one.version}" for one in others_of_our_name()) or "another package"
    return (
        f"{PACKAGE_PARENT}/autotrace/__init__.py is not that of {DISTRIBUTION}: {others} replaced it; uninstall that "
        f"package, then {again()}"
    )


def again(interpreter: str = "") -> str:
    """Return the command that installs this package again, or for another ``interpreter``; a phrase if nobody knows the
    package's origin."""
    import shlex

    if (place := origin()) is None:
        return f"install autotrace for {interpreter}, from its wheel" if interpreter else "install its wheel again"
    words = f"{shlex.quote(interpreter)} -m pip install" if interpreter else f"{installer()} --force-reinstall"
    return f"{words} {shlex.quote(place)}"


def origin() -> str | None:
    """Return the wheel, folder or repository that this installation came from, as pip takes the name (PEP 610).

    None if no record names the origin, or the file is gone.
    """
    import json
    from importlib.metadata import PackageNotFoundError, distribution
    from urllib.parse import unquote, urlsplit

    try:
        told = json.loads(distribution(DISTRIBUTION).read_text("direct_url.json") or "{}")
        url, vcs = str(told.get("url", "")), told.get("vcs_info")
        scheme = f"{vcs['vcs']}+" if vcs else ""
    except (PackageNotFoundError, OSError, ValueError, AttributeError, LookupError, TypeError):
        return None
    if not url.startswith("file:"):
        return f"{DISTRIBUTION} @ {scheme}{url}" if url else None
    path = unquote(urlsplit(url).path)
    return path if os.path.exists(path) else None


def install(extra: str) -> str:
    """Return the command that installs the requirements of ``extra``.

    The command never contains a distribution name that anybody could register on an index. The command names either the
    place of this installation, or the libraries themselves.
    """
    import shlex

    if (place := origin()) is not None:
        name, at, url = place.partition(" @ ")
        return f"{installer()} {shlex.quote(f'{name}[{extra}]{at}{url}')}"
    return f"{installer()} {' '.join(map(shlex.quote, requirements(extra)))}"


def installer() -> str:
    """Return the words that install into this environment: ``pip install`` if a shell finds the right pip by this name,
    and uv's for an environment without pip."""
    import shlex
    import shutil
    from importlib.util import find_spec

    found = shutil.which("pip")
    if found is not None and os.path.dirname(found) == os.path.dirname(sys.executable):
        return "pip install"
    if find_spec("pip") is not None:
        return f"{shlex.quote(sys.executable)} -m pip install"
    return f"uv pip install --python {shlex.quote(sys.executable)}" if shutil.which("uv") else "pip install"


def has_page() -> bool:
    """Return whether this installation can serve the page: ``autotrace view``."""
    from importlib.util import find_spec

    with contextlib.suppress(Exception):  # a finder of the host may raise anything, and a module may have no spec
        return find_spec("uvicorn") is not None and find_spec("starlette") is not None
    return False


def look_at(folder: str, trace: str = "") -> str:
    """Return the command that shows ``trace`` of a run folder: the page, if this installation can serve the page."""
    if has_page():
        return f"autotrace view {folder}{f' --trace {trace}' if trace else ''}"
    return f"autotrace show {trace} {folder}" if trace else f"autotrace diagnose {folder}"


def requirements(extra: str) -> list[str]:
    """Return the requirements of ``extra``, as pip takes requirements; only ``extra`` in a source tree without
    metadata."""
    import re
    from importlib.metadata import PackageNotFoundError, requires

    try:
        lines = [line.partition(";") for line in requires(DISTRIBUTION) or []]
    except PackageNotFoundError:
        return [extra]
    return [line.strip() for line, _, marker in lines if re.search(rf"extra == ['\"]{extra}['\"]", marker)]


def others_of_our_name() -> Iterator[Distribution]:
    """Find installed packages of other projects that are named ``autotrace`` or have a module ``autotrace``."""
    from importlib.metadata import distributions

    ours = {"autotrace/__init__.py", "autotrace.py"}
    for one in distributions():
        named = one.name == "autotrace" and not any(entry.name == "autotrace-run" for entry in one.entry_points)
        is_other = (one.name or "").lower().replace("_", "-") not in (DISTRIBUTION, "autotrace")
        if named or (is_other and not ours.isdisjoint(map(str, one.files or ()))):
            yield one


def carried(name: str, in_sources: str) -> str:
    """Return a folder that the package carries: the installed folder, else the folder below a source tree's root."""
    installed = os.path.join(PACKAGE_PARENT, "autotrace", name)
    return installed if os.path.isdir(installed) else os.path.join(PACKAGE_PARENT, in_sources)


def pth_file() -> str | None:
    """Find this interpreter's ``autotrace.pth``; None if not installed (a source tree on ``PYTHONPATH``)."""
    folders = [*site.getsitepackages(), *([site.getusersitepackages()] if site.ENABLE_USER_SITE else [])]
    return next((path for folder in folders if os.path.exists(path := os.path.join(folder, PTH))), None)


def with_package(environ: Mapping[str, str]) -> dict[str, str]:
    """Return ``environ`` with a working ``import autotrace``; unchanged where the package is installed."""
    own = dict(environ)
    if pth_file() is None:
        own["PYTHONPATH"] = _joined(environ.get("PYTHONPATH"), PACKAGE_PARENT)
    return own


def with_activation(environ: Mapping[str, str]) -> dict[str, str]:
    """Return ``environ`` in which interpreters activate; without a ``.pth``, ``sitecustomize`` comes first."""
    own = with_package(environ)
    if pth_file() is None:
        own["PYTHONPATH"] = _joined(SITECUSTOMIZE, own["PYTHONPATH"])
    return own


def _joined(*parts: str | None) -> str:
    """Join search paths into a single search path; an entry stays at its first position."""
    entries = [entry for part in parts if part for entry in part.split(os.pathsep)]
    return os.pathsep.join(dict.fromkeys(entries))
