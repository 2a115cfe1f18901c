"""Unpacked wheels of the releases in the list, to be run from ``PYTHONPATH``: nothing is installed.

    python -m tests.packs.unpacked [--cache FOLDER] [DISTRIBUTION[==VERSION] ...]

Each goes to ``FOLDER/unpacked/VERSION``. veRL's eight wheels are 10 MB together.
"""

from __future__ import annotations

import argparse
import os
import sys
import zipfile
from pathlib import Path

from .releases import TOO_OLD, wanted, wheel_of


def unpacked(distribution: str, version: str, cache: Path) -> Path:
    """The folder with the files of that release."""
    folder = cache / "unpacked" / version
    if not folder.exists():
        scratch = folder.with_suffix(".part")
        with zipfile.ZipFile(wheel_of(distribution, version, cache)) as wheel:
            wheel.extractall(scratch)
        scratch.rename(folder)
    return folder


def main(arguments: list[str]) -> int:
    """Unpack the releases named; print their folders."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("releases", nargs="*", metavar="DISTRIBUTION[==VERSION]", default=["verl"])
    parser.add_argument("--cache", type=Path, default=Path(os.environ.get("PACKS_CACHE", ".packs-cache")))
    options = parser.parse_args(arguments)
    options.cache.mkdir(parents=True, exist_ok=True)
    for distribution, version in wanted(options.releases):
        if version not in TOO_OLD.get(distribution, ()):
            print(unpacked(distribution, version, options.cache))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
