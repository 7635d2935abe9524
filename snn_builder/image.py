# SPDX-License-Identifier: Apache-2.0
"""Firmware images: what an ELF file puts where, and the same as .bin, Verilog .hex and .map.

Made from the ELF file alone, so it is the same for every toolchain.
"""

from __future__ import annotations

import argparse
import bisect
import dataclasses
import functools
import io
import itertools
import os
from collections.abc import Mapping
from pathlib import Path

from elftools.common.exceptions import ELFError
from elftools.elf.constants import P_FLAGS, SH_FLAGS
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

from .errors import Refused, Unreadable
from .files import write

CPUS = {"EM_386": "x86", "EM_RISCV": "riscv32"}


@dataclasses.dataclass(frozen=True)
class Segment:
    """What a loader copies: `data` to address `load`. At `address` the program sees it, and zeros up to `size`."""

    address: int
    load: int
    size: int
    data: bytes
    writable: bool
    executable: bool

    def holds(self, address: int, size: int = 1) -> bool:
        """Whether `size` bytes at `address` are all in it."""
        return self.address <= address and address + size <= self.address + self.size


@dataclasses.dataclass(frozen=True)
class Section:
    """A section that takes memory; `stored` says that its content is in the file (.bss is not)."""

    name: str
    address: int
    size: int
    writable: bool
    executable: bool
    stored: bool


@dataclasses.dataclass(frozen=True)
class Symbol:
    """`kind` is "function", "object" or "" (a label, or a number from the linker script)."""

    name: str
    address: int
    size: int
    kind: str


@dataclasses.dataclass(frozen=True)
class Image:
    """A 32-bit little-endian executable; `cpu` is "riscv32" or "x86". Everything is sorted by address."""

    path: Path
    cpu: str
    entry: int
    segments: tuple[Segment, ...]
    sections: tuple[Section, ...]
    symbols: tuple[Symbol, ...]

    def symbol(self, name: str) -> int | None:
        """The value of a symbol, if there is one of that name."""
        return self._values.get(name)

    @functools.cached_property
    def _values(self) -> dict[str, int]:
        return {symbol.name: symbol.address for symbol in self.symbols}

    @functools.cached_property
    def _functions(self) -> list[Symbol]:
        labels = [s for s in self.symbols if s.kind == "function"]
        return labels or [s for s in self.symbols if s.kind == "" and self.in_code(s.address)]

    def place(self, address: int) -> str:
        """An address as people read it: "0x00000234 (main+0x1c)", without the name where no function is known."""
        functions = self._functions
        index = bisect.bisect_right(functions, address, key=lambda s: s.address) - 1
        if index >= 0 and self.in_code(address):
            function = functions[index]
            offset = address - function.address
            if not function.size or offset < function.size:
                return f"0x{address:08x} ({function.name}{f'+0x{offset:x}' if offset else ''})"
        return f"0x{address:08x}"

    def in_code(self, address: int, size: int = 1) -> bool:
        """Whether `size` bytes at `address` are in one executable segment."""
        return any(s.executable and s.holds(address, size) for s in self.segments)


def read(path: str | os.PathLike[str]) -> Image:
    """The image in an ELF file. Raises `Unreadable` for what is no 32-bit executable of a known processor."""
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise Unreadable(path, "", f"cannot be read: {error.strerror}", "build it first") from error
    try:
        elf = ELFFile(io.BytesIO(content))
        cpu = CPUS.get(elf["e_machine"])
        if elf.elfclass != 32 or not elf.little_endian or cpu is None or elf["e_type"] != "ET_EXEC":
            raise Unreadable(path, "", "is no 32-bit executable for x86 or RISC-V", "pass the linked image")
        return Image(Path(path), cpu, elf["e_entry"], *_parts(elf))
    except (ELFError, KeyError, ValueError) as error:
        raise Unreadable(path, "", f"is no ELF file: {error}", "pass the linked image") from error


def _parts(elf: ELFFile) -> tuple[tuple[Segment, ...], tuple[Section, ...], tuple[Symbol, ...]]:
    segments = [
        Segment(
            address=segment["p_vaddr"],
            load=segment["p_paddr"],
            size=segment["p_memsz"],
            data=segment.data(),
            writable=bool(segment["p_flags"] & P_FLAGS.PF_W),
            executable=bool(segment["p_flags"] & P_FLAGS.PF_X),
        )
        for segment in elf.iter_segments("PT_LOAD")
        if segment["p_memsz"]
    ]
    sections = [
        Section(
            name=section.name,
            address=section["sh_addr"],
            size=section["sh_size"],
            writable=bool(section["sh_flags"] & SH_FLAGS.SHF_WRITE),
            executable=bool(section["sh_flags"] & SH_FLAGS.SHF_EXECINSTR),
            stored=section["sh_type"] != "SHT_NOBITS",
        )
        for section in elf.iter_sections()
        if section["sh_flags"] & SH_FLAGS.SHF_ALLOC and section["sh_size"]
    ]
    kinds = {"STT_FUNC": "function", "STT_OBJECT": "object", "STT_NOTYPE": ""}
    symbols = [
        Symbol(symbol.name, symbol["st_value"], symbol["st_size"], kinds[symbol["st_info"]["type"]])
        for table in elf.iter_sections()
        if isinstance(table, SymbolTableSection)
        for symbol in table.iter_symbols()
        if symbol.name
        and symbol["st_info"]["type"] in kinds
        and symbol["st_shndx"] != "SHN_UNDEF"
        # names that assemblers make: mapping symbols ($x, .L0)
        and not symbol.name.startswith(("$", ".L"))
    ]
    return (
        tuple(sorted(segments, key=lambda s: s.address)),
        tuple(sorted(sections, key=lambda s: s.address)),
        tuple(sorted(symbols, key=lambda s: (s.address, s.name))),
    )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `python -m snn_builder image`."""
    parser.add_argument("elf", metavar="ELF", help="the image")
    for name, text in (
        ("bin", "memory as it is before the start"),
        ("hex", "for $readmemh"),
        ("map", "what lies where"),
    ):
        parser.add_argument(f"--{name}", metavar="FILE", help=f"write this file: {text}")


def main(chosen: argparse.Namespace) -> int:
    """`python -m snn_builder image`: checks an image and writes it in other forms."""
    image = read(chosen.elf)
    check(image)
    for target, form in ((chosen.bin, binary), (chosen.hex, verilog_hex), (chosen.map, memory_map)):
        if target is not None:
            write(target, form(image))
    return 0


def check(image: Image) -> None:
    """Raises `Refused` for a segment that is writable and executable, for segments that overlap and for a section that
    takes memory outside of the segments.
    """
    for segment in image.segments:
        if segment.writable and segment.executable:
            problem = f"the segment at 0x{segment.address:08x} is writable and executable"
            raise Refused(image.path, "", problem, "give code and data their own PHDRS in the linker script")
    spans = (
        [(s.address, s.size) for s in image.segments],
        sorted((s.load, len(s.data)) for s in image.segments if s.data),
    )
    for span in spans:
        for (start, size), (following, _) in itertools.pairwise(span):
            if start + size > following:
                problem = f"segments overlap at 0x{following:08x}"
                raise Refused(image.path, "", problem, "look at the addresses in the linker script")
    for section in image.sections:
        if not any(segment.holds(section.address, section.size) for segment in image.segments):
            raise Refused(image.path, section.name, "lies in no segment", "place it in the linker script")


def binary(image: Image) -> bytes:
    """The .bin: what lies in memory before the start, from the lowest load address on; gaps are zeros."""
    loaded = _loaded(image)
    if not loaded:
        return b""
    base = loaded[0][0]
    content = bytearray(max(address + len(data) for address, data in loaded) - base)
    for address, data in loaded:
        content[address - base : address - base + len(data)] = data
    return bytes(content)


def verilog_hex(image: Image) -> str:
    """The .hex as $readmemh reads it into an array of bytes: "@address" in hex, then bytes, 16 to a line."""
    lines: list[str] = []
    for address, data in _loaded(image):
        lines.append(f"@{address:08X}")
        lines += [data[i : i + 16].hex(" ").upper() for i in range(0, len(data), 16)]
    return "".join(f"{line}\n" for line in lines)


def _loaded(image: Image) -> list[tuple[int, bytes]]:
    return sorted((s.load, s.data) for s in image.segments if s.data)


def memory_map(image: Image) -> str:
    """The .map: every section and symbol with address and size, as text."""
    lines = ["   address       size  name"]
    for section in image.sections:
        rights = f"R{'W' if section.writable else '-'}{'X' if section.executable else '-'}"
        lines.append(f"0x{section.address:08x} {section.size:10,d}  {section.name}  {rights}")
        inside = [s for s in image.symbols if section.address <= s.address < section.address + section.size]
        lines += [f"0x{s.address:08x} {s.size:10,d}      {s.name}" for s in inside if s.kind]
    for segment in image.segments:
        if segment.data and segment.load != segment.address:
            lines.append(f"0x{segment.load:08x} {len(segment.data):10,d}  initial values of 0x{segment.address:08x}")
    bottom, top = image.symbol("__stack_bottom"), image.symbol("__stack_top")
    if bottom is not None and top is not None:
        lines.append(f"0x{bottom:08x} {top - bottom:10,d}  stack")
    return "".join(f"{line}\n" for line in lines)


def refuse_if_too_large(image: Image, option: str, chosen: str, sizes: Mapping[str, int]) -> None:
    """Raises `Refused` when an image does not fit in `sizes[chosen]` bytes, with what takes them and which value of the
    board's option would do. It must have been linked for more memory, or the linker would have stopped.
    """
    base = min(segment.address for segment in image.segments)
    stack = image.symbol("STACK_SIZE") or 0
    end = max(segment.address + segment.size for segment in image.segments)
    needed = (image.symbol("__stack_bottom") or end) - base + stack
    room = sizes[chosen]
    if needed <= room:
        return
    parts = {
        "constants": sum(s.size for s in image.sections if not s.writable and not s.executable),
        "code": sum(s.size for s in image.sections if s.executable),
        "variables": sum(s.size for s in image.sections if s.writable),
        "stack": stack,
    }
    objects = [s for s in image.symbols if s.kind == "object"]
    largest = max(objects, key=lambda s: s.size, default=None)
    text = ", ".join(f"{name} {size:,d}" for name, size in sorted(parts.items(), key=lambda part: -part[1]) if size)
    problem = f"needs {needed:,d} bytes of memory, {needed - room:,d} more than {option}={chosen} has: {text}"
    if largest is not None:
        problem += f" (most of all {largest.name}, {largest.size:,d})"
    enough = [name for name, size in sorted(sizes.items(), key=lambda item: item[1]) if size >= needed]
    most = max(sizes, key=lambda name: sizes[name])
    remedy = f"pass {option}={enough[0]}" if enough else f"take a smaller network: {option}={most} is the most there is"
    raise Refused(image.path, "", problem, remedy)
