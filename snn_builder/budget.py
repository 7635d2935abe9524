# SPDX-License-Identifier: Apache-2.0
"""Limits to the size of an image, and what takes most where one is broken. Flash and RAM are what `size` prints under these names."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Sequence

from .errors import Refused

SHOWN = 3  # of the largest parts, and of the largest symbols
HELD = {"flash": ("text", "rodata", "data"), "ram": ("data", "bss")}
UNTOLD = "compile with -fstack-size-section (zig, clang) or -fstack-usage (GCC, NAME.su beside the image)"
REMEDY = "make what is largest smaller, or raise the budget"


def amount(text: str) -> int:
    """A number of bytes from the command line: 65536, 64k, 1M."""
    match = re.fullmatch(r"(\d+)([kM]?)", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"'{text}' is no number of bytes: 65536, 64k, 1M")
    return int(match[1]) << {"": 0, "k": 10, "M": 20}[match[2]]


def check(
    files: Sequence[str | os.PathLike[str]], ram: int | None, flash: int | None, stack: int | None = None
) -> list[Refused]:
    """One error per image and budget that it breaks. `stack`: of a call of the network. Raises `Unreadable`."""
    from .elf import footprint, symbols  # here: SCons has to know what an amount is, and loads nothing heavy

    found = []
    for file in files:
        image = footprint(file)
        for column, (kind, budget) in enumerate((("flash", flash), ("ram", ram))):
            used = image.flash if kind == "flash" else image.ram
            if budget is None or used <= budget:
                continue
            parts = sorted(((name, sizes[column]) for name, sizes in image.parts.items()), key=lambda part: -part[1])
            problem = (
                f"{kind}: {used:,d} bytes, {used - budget:,d} more than the budget of {budget:,d}: {_listed(parts)}"
            )
            single = [(name, size) for name, size, held in symbols(file) if held in HELD[kind]]
            if single:
                problem += f" (most of all {_listed(single)})"
            found.append(Refused(file, "", problem, REMEDY))
        if stack is not None and image.stack is None:
            found.append(Refused(file, "", "stack: the compiler did not say what the network takes", UNTOLD))
        elif stack is not None and image.stack is not None and image.stack > stack:
            problem = f"stack: {image.stack:,d} bytes, {image.stack - stack:,d} more than the budget of {stack:,d}"
            found.append(Refused(file, "", f"{problem}: {_listed(list(image.frames.items()))}", REMEDY))
    return found


def _listed(sizes: Sequence[tuple[str, int]]) -> str:
    return ", ".join(f"{name} {size:,d}" for name, size in sizes[:SHOWN] if size)
