# SPDX-License-Identifier: Apache-2.0
"""How large an image is and what takes the bytes, from its ELF file: the same measure for every toolchain.

Of a native program the C library and the loader's tables count as "other".
"""

from __future__ import annotations

import dataclasses
import io
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from elftools.common.exceptions import ELFError
from elftools.elf.constants import SH_FLAGS
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

from .errors import Unreadable

# In the order of the table. "other": start-up, the board's drivers, run-time library, padding.
HARNESS_FILES = ("main.c", "baked.c", "stream_main.c", "stream.c", "streamed.c")
HARNESS_PREFIXES = ("baked_", "stream_", "streamed_")
PARTS = ("weights", "tables", "kernel", "states", "harness", "other", "stack")


@dataclasses.dataclass(frozen=True)
class Sizes:
    """Bytes of an image by what they are: instructions, constants, initialised and cleared variables."""

    text: int
    rodata: int
    data: int
    bss: int

    @property
    def flash(self) -> int:
        """What has to be stored."""
        return self.text + self.rodata + self.data

    @property
    def ram(self) -> int:
        """What changes while it runs, without the stack."""
        return self.data + self.bss


@dataclasses.dataclass(frozen=True)
class Footprint:
    """`parts`: per part, (flash, ram) bytes; together they are all of the image, and of the stack what the linker reserves.
    `memory`: bytes of the board's RAM that hold all of it, where the image says so (X-HEEP), else None. `frames`: bytes of stack per
    function of the network, the deepest first, where the compiler told (`-fstack-size-section`, `-fstack-usage`), else empty; `stack`: what
    a call into the network takes by them, without what the compiler adds to C (memset, division), else None."""

    sizes: Sizes
    parts: dict[str, tuple[int, int]]
    memory: int | None
    frames: dict[str, int]
    stack: int | None

    @property
    def flash(self) -> int:
        """What has to be stored."""
        return sum(flash for flash, _ in self.parts.values())

    @property
    def ram(self) -> int:
        """What changes while it runs, with the stack."""
        return sum(ram for _, ram in self.parts.values())

    @property
    def percent(self) -> float | None:
        """Of the board's memory."""
        return None if self.memory is None else 100 * (self.flash + self.ram) / self.memory


def sections(path: str | os.PathLike[str]) -> Sizes:
    """The sizes of the ELF file `path`: its sections that take memory, by their flags. Raises `Unreadable`."""
    return footprint(path).sizes


def footprint(path: str | os.PathLike[str]) -> Footprint:
    """The bytes of an image by part. Which symbols are the network's, `<name>.json` beside the image says; without it they count as
    "other". Raises `Unreadable`."""
    try:
        with open(path, "rb") as stream:
            return _footprint(ELFFile(stream), Path(path).parent)
    except OSError as error:
        raise Unreadable(path, "", f"cannot be read ({error.strerror})", "build it first") from None
    except ELFError:
        raise Unreadable(path, "", "not an ELF file", "pass an image, firmware.elf") from None


def symbols(path: str | os.PathLike[str]) -> list[tuple[str, int, str]]:
    """(name, bytes, "text", "rodata", "data" or "bss") of every symbol of an ELF file that takes memory, the largest first; of several at
    one place the first."""
    with open(path, "rb") as stream:
        elf = ELFFile(stream)
        kinds = {index: _kind(section) for index, section in enumerate(elf.iter_sections())}
        found: dict[tuple[int, int], tuple[str, int, str]] = {}
        for symbol, _ in _symbols(elf):
            kind = kinds.get(symbol["st_shndx"])
            if kind is not None and symbol["st_size"] and not symbol.name.startswith(".L"):
                place = (symbol["st_shndx"], symbol["st_value"])
                found.setdefault(place, (symbol.name, symbol["st_size"], kind))
    return sorted(found.values(), key=lambda symbol: (-symbol[1], symbol[0]))


def _network_names(folder: Path) -> list[str]:
    """Of every network that was built there; the image holds one of them."""
    names = []
    for file in sorted(folder.glob("*.json")):
        try:
            report = json.loads(file.read_text())
        except (OSError, ValueError):
            continue
        if isinstance(report, dict) and str(report.get("generator", "")).startswith("snn-builder"):
            names.append(str(report["name"]))
    return names


def _footprint(elf: Any, folder: Path) -> Footprint:
    defined = {symbol.name for symbol, _ in _symbols(elf)}
    name = next((name for name in _network_names(folder) if f"{name}_step" in defined), None)
    sizes = dict.fromkeys(("text", "rodata", "data", "bss"), 0)
    parts = {part: [0, 0] for part in PARTS}
    kinds = {}
    for index, section in enumerate(elf.iter_sections()):
        kind = _kind(section)
        if kind is not None:
            kinds[index] = kind
            sizes[kind] += section["sh_size"]
            _count(parts["other"], kind, section["sh_size"])
    values: dict[str, int] = {}
    functions: dict[int, str] = {}
    seen = set()
    for symbol, source in _symbols(elf):
        values[symbol.name] = symbol["st_value"]
        kind, size = kinds.get(symbol["st_shndx"]), symbol["st_size"]
        place = (symbol["st_shndx"], symbol["st_value"])
        # functions may have several names, and clang puts a label of its own over variables that it lays together
        if kind is None or not size or place in seen or symbol.name.startswith(".L"):
            continue
        seen.add(place)
        part = _part(symbol.name, source, kind, name)
        if part == "kernel":
            functions[symbol["st_value"]] = symbol.name
        if part != "other":
            _count(parts[part], kind, size)
            _count(parts["other"], kind, -size)
    parts["stack"][1] = values.get("STACK_SIZE", 0)
    told = _stack_sizes(elf) or _stack_usage(folder / f"{name}.su", functions)
    frames = {functions[at]: told[at] for at in sorted(functions, key=lambda at: -told.get(at, 0)) if at in told}
    deepest = {
        True: 0,
        False: 0,
    }  # of the functions of the header, which call helpers, and of these, which call nothing
    for function, size in frames.items():
        public = function.startswith(f"{name}_")
        deepest[public] = max(deepest[public], size)
    return Footprint(
        Sizes(**sizes),
        {part: (flash, ram) for part, (flash, ram) in parts.items()},
        values.get("RAM_SIZE"),
        frames,
        sum(deepest.values()) if frames else None,
    )


def _stack_sizes(elf: Any) -> dict[int, int]:
    """By address of a function, what clang's section says: an address and a ULEB128 each."""
    section, found = elf.get_section_by_name(".stack_sizes"), {}
    stream = io.BytesIO(section.data() if section is not None else b"")
    while address := stream.read(elf.elfclass // 8):
        size = shift = 0
        while (byte := ord(stream.read(1) or b"\0")) & 0x80:
            size, shift = size | (byte & 0x7F) << shift, shift + 7
        found[int.from_bytes(address, "little" if elf.little_endian else "big")] = size | byte << shift
    return found


def _stack_usage(file: Path, functions: dict[int, str]) -> dict[int, int]:
    """The same from the file that GCC writes beside an object: `place:function<TAB>bytes<TAB>static`."""
    try:
        rows = [line.split("\t") for line in file.read_text().splitlines()]
    except (OSError, ValueError):
        return {}
    sizes = {row[0].rpartition(":")[2]: int(row[1]) for row in rows if len(row) == 3 and row[1].isdecimal()}
    return {address: sizes[name] for address, name in functions.items() if name in sizes}


def _kind(section: Any) -> str | None:
    flags = section["sh_flags"]
    if not flags & SH_FLAGS.SHF_ALLOC:
        return None
    if section["sh_type"] == "SHT_NOBITS":
        return "bss"
    if flags & SH_FLAGS.SHF_EXECINSTR:
        return "text"
    return "data" if flags & SH_FLAGS.SHF_WRITE else "rodata"


def _count(part: list[int], kind: str, size: int) -> None:
    part[0] += size if kind != "bss" else 0
    part[1] += size if kind in ("data", "bss") else 0


def _symbols(elf: Any) -> Iterator[tuple[Any, str]]:
    """Functions, variables and numbers of the linker script; of local ones with the name of their source file."""
    for table in elf.iter_sections():
        if isinstance(table, SymbolTableSection):
            source = ""
            for symbol in table.iter_symbols():
                kind = symbol["st_info"]["type"]
                if kind == "STT_FILE":
                    source = os.path.basename(symbol.name)
                elif kind in ("STT_FUNC", "STT_OBJECT", "STT_NOTYPE"):
                    yield symbol, source if symbol["st_info"]["bind"] == "STB_LOCAL" else ""


def _part(symbol: str, source: str, kind: str, name: str | None) -> str:
    if source in ("main.c", "stream_main.c") and symbol == "state":
        return "states"
    if source in HARNESS_FILES or symbol == "main" or symbol.startswith(HARNESS_PREFIXES):
        return "harness"
    if name is not None and (symbol.startswith(f"{name}_") or source == f"{name}.c"):
        if kind == "text":
            return "kernel"
        return "weights" if symbol.endswith(("_w", "_b")) else "tables"
    return "other"


def main(files: Sequence[str], as_json: bool) -> int:
    """Prints a table per image, or a JSON object of them by file name; returns the exit status."""
    images = {os.fspath(file): footprint(file) for file in files}
    if as_json:
        print(json.dumps({file: _row(image) for file, image in images.items()}, indent=1))
        return 0
    for file, image in images.items():
        print(f"{file}\n  {'':8} {'flash':>9} {'ram':>9}")
        for part, (flash, ram) in image.parts.items():
            print(f"  {part:8} {flash:9,d} {ram:9,d}")
        of_board = "" if image.percent is None else f"   {image.percent:.1f} % of {image.memory:,d}"
        print(f"  {'all':8} {image.flash:9,d} {image.ram:9,d}{of_board}")
        if image.frames:
            print("  on the stack: " + ", ".join(f"{name} {size:,d}" for name, size in image.frames.items()))
    return 0


def _row(image: Footprint) -> dict[str, Any]:
    return {
        **dataclasses.asdict(image.sizes),
        "flash": image.flash,
        "ram": image.ram,
        "memory": image.memory,
        "percent": image.percent,
        "stack": image.stack,
        "frames": image.frames,
        "parts": {part: {"flash": flash, "ram": ram} for part, (flash, ram) in image.parts.items()},
    }
