# SPDX-License-Identifier: Apache-2.0
"""Limits to the size of an image, and what takes most where one is broken. Flash and RAM are what `size` prints under these names."""

from __future__ import annotations

import argparse
import os
import re
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from elftools.elf.constants import SH_FLAGS
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

from .elf import Sizes, sections
from .errors import Refused

SHOWN = 4  # of the largest parts
REMEDY = "make what is largest smaller, or raise the budget"


class Part(NamedTuple):
    """Bytes of an image that belong together; `stored`: they are in flash, `writable`: in RAM (initialised variables are both)."""

    name: str
    size: int
    stored: bool
    writable: bool


def amount(text: str) -> int:
    """A number of bytes from the command line: 65536, 64k, 1M."""
    match = re.fullmatch(r"(\d+)([kM]?)", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"'{text}' is no number of bytes: 65536, 64k, 1M")
    return int(match[1]) << {"": 0, "k": 10, "M": 20}[match[2]]


def check(files: Sequence[str | os.PathLike[str]], ram: int | None, flash: int | None) -> list[Refused]:
    """One error per image and budget that it breaks. Raises `Unreadable`."""
    found = []
    for file in files:
        sizes = sections(file)
        for kind, budget in (("flash", flash), ("ram", ram)):
            used = sizes.flash if kind == "flash" else sizes.ram
            if budget is not None and used > budget:
                problem = f"{kind}: {used:,d} bytes, {used - budget:,d} more than the budget of {budget:,d}"
                found.append(Refused(file, "", f"{problem}; largest: {_largest(file, kind, sizes)}", REMEDY))
    return found


def _largest(file: str | os.PathLike[str], kind: str, sizes: Sizes) -> str:
    totals: dict[str, int] = defaultdict(int)
    for part in parts(file):
        if part.stored if kind == "flash" else part.writable:
            totals[part.name] += part.size
    rest = (sizes.flash if kind == "flash" else sizes.ram) - sum(totals.values())
    if rest > 0:
        totals["what has no symbol"] = rest
    ordered = sorted(totals.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{name} {size:,d}" for name, size in ordered[:SHOWN])


def parts(file: str | os.PathLike[str]) -> list[Part]:
    """What the symbols of an ELF file stand for: a network's weights and kernel, baked data, variables by name, other code. A network is
    known by its functions, NAME_init and NAME_step."""
    with open(file, "rb") as stream:
        elf = ELFFile(stream)
        held = list(elf.iter_sections())
        symbols = {
            (symbol["st_value"], symbol["st_shndx"]): (symbol.name, symbol["st_size"])
            for table in held
            if isinstance(table, SymbolTableSection)
            for symbol in table.iter_symbols()
            if symbol["st_info"]["type"] in ("STT_FUNC", "STT_OBJECT", "STT_NOTYPE")
            and symbol["st_size"]
            and isinstance(symbol["st_shndx"], int)
            and not symbol.name.startswith(".L")  # what a compiler makes of several variables
        }  # by address: two names of one thing are one thing
        networks = _networks({name for name, _ in symbols.values()})
        found = []
        for (_, index), (name, size) in symbols.items():
            section = held[index]
            if not section["sh_flags"] & SH_FLAGS.SHF_ALLOC:
                continue
            writable = bool(section["sh_flags"] & SH_FLAGS.SHF_WRITE)
            code = bool(section["sh_flags"] & SH_FLAGS.SHF_EXECINSTR)
            stored = section["sh_type"] != "SHT_NOBITS"
            found.append(Part(_kind(name, networks, writable, code), size, stored, writable))
    return found


def _networks(names: set[str]) -> list[str]:
    """The longest last: one name may begin like another."""
    stems = {name.removesuffix("_step") for name in names if name.endswith("_step")} - {"baked"}
    return sorted((stem for stem in stems if f"{stem}_init" in names), key=len)


def _kind(name: str, networks: Sequence[str], writable: bool, code: bool) -> str:
    network = next((network for network in reversed(networks) if name.startswith(f"{network}_")), None)
    if writable:
        return f"variable {name}"
    if network is not None:
        return f"kernel of {network}" if code else f"weights and tables of {network}"
    if name.startswith("baked_") and not code:
        return "baked data"
    return "other code" if code else "other constants"
