# SPDX-License-Identifier: Apache-2.0
"""What a generated file depends on, in the syntax of make: for GNU make, ninja and CMake's DEPFILE."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent
APART = {"scons", "_share"}  # folders of the package that generate nothing


def depfile_text(targets: Iterable[str | os.PathLike[str]], sources: Iterable[str | os.PathLike[str]]) -> str:
    """A rule that says that every target depends on every source; and one without a recipe per source, so that make does not stop
    where a source has gone."""
    needed = [_escaped(source) for source in sources]
    lines = [" ".join(map(_escaped, targets)) + ":", *needed]
    return " \\\n ".join(lines) + "\n\n" + "".join(f"{source}:\n" for source in needed)


def compiler_files() -> list[Path]:
    """Every file of this package that can decide about what is generated."""
    return sorted(
        path
        for path in PACKAGE.rglob("*")
        if path.suffix in (".py", ".mlir") and path.relative_to(PACKAGE).parts[0] not in APART
    )


def _escaped(path: str | os.PathLike[str]) -> str:
    text = os.fspath(path)
    for character, written in (("$", "$$"), ("#", "\\#"), (" ", "\\ ")):
        text = text.replace(character, written)
    return text
