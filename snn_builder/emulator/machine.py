# SPDX-License-Identifier: Apache-2.0
"""The machine that a board's `emulator = {...}` in board.py describes.

emulator = {
    "cpu": "riscv32",                     # or "x86"
    "ram": {"base": 0, "size": "ram"},    # bytes, or the name of one of the board's options
    "entry": 0x180,                       # where the boot ROM jumps to; without it, the entry point of the ELF file
    "vectors": {"reset": 0x20010000, "align": 256},     # riscv32: mtvec after reset, and which multiples it takes
    "csrs": {0xB00: "cycles", 0x320: "stored", 0xC00: "illegal"},       # riscv32: CSRs that differ from a plain core
    "registers": {
        # "at": address (x86: port). Written and read like memory, from "reset" on (0), where nothing else is said:
        #   "write": "send", "exit_code", "exit" (ends the program when bit 0 is set, with the exit code written before,
        #            or else with the value itself)
        #   "read":  "receive"
        #   "bits":  {"tx_full" | "tx_empty" | "tx_idle" | "rx_empty" | "rx_ready": number of the bit}
        #   "plain_while": [register, mask]: like memory while that register has one of these bits
        "uart.status": {"at": 0x30080010, "reset": 0x10, "bits": {"tx_full": 0, "tx_idle": 3}},
    },
    # fifo: characters the transmitter takes; enabled_by: register and bits that have to be set before;
    # last_bit: instructions from idle to the end of the last bit
    "uart": {"fifo": 32, "enabled_by": ["uart.ctrl", 1], "last_bit": 390},
}
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..boards import Board, either, nearest
from ..errors import Unreadable

CPUS = ("riscv32", "x86")
CSRS = ("cycles", "cycles_high", "stored", "illegal")
WRITES = ("send", "exit_code", "exit")
READS = ("receive",)
BITS = ("tx_full", "tx_empty", "tx_idle", "rx_empty", "rx_ready")


@dataclasses.dataclass(frozen=True)
class Register:
    """One device register: see the module's text."""

    name: str
    at: int
    reset: int = 0
    write: str | None = None
    read: str | None = None
    bits: Mapping[str, int] = dataclasses.field(default_factory=dict)
    plain_while: tuple[str, int] | None = None


@dataclasses.dataclass(frozen=True)
class Uart:
    """How the transmitter behaves: see the module's text."""

    fifo: int = 1
    enabled_by: tuple[str, int] | None = None
    last_bit: int = 0


@dataclasses.dataclass(frozen=True)
class Machine:
    """A checked description. `ram_size` is in bytes, or the name of a board's option."""

    file: Path
    cpu: str
    ram_base: int
    ram_size: int | str
    registers: Mapping[int, Register]
    uart: Uart
    entry: int | None = None
    vectors_reset: int = 0
    vectors_align: int = 4
    csrs: Mapping[int, str] = dataclasses.field(default_factory=dict)


def describe(board: Board) -> Machine:
    """The machine of a board. Raises `Unreadable`: file, key, what is wrong, what to write instead."""
    return _Reader(board.path / "board.py", board).machine(board.emulator)


class _Reader:
    def __init__(self, file: Path, board: Board) -> None:
        self.file = file
        self.board = board

    def refuse(self, key: str, problem: str, remedy: str) -> Unreadable:
        return Unreadable(self.file, f"emulator{key}", problem, remedy)

    def machine(self, given: Mapping[str, Any]) -> Machine:
        if not given:
            raise self.refuse("", "is missing", "describe the machine as the other boards do")
        known = ("cpu", "ram", "entry", "vectors", "csrs", "registers", "uart")
        self.keys("", given, known, ("cpu", "ram", "registers"))
        cpu = self.choice("['cpu']", given["cpu"], CPUS)
        ram = self.table("['ram']", given["ram"], ("base", "size"), ("base", "size"))
        size = ram["size"]
        if isinstance(size, str):
            self.choice("['ram']['size']", size, tuple(self.board.options) or ("a number of bytes",))
        else:
            self.number("['ram']['size']", size)
        vectors = self.table("['vectors']", given.get("vectors", {}), ("reset", "align"))
        registers = self.registers(given["registers"])
        names = {register.name for register in registers.values()}
        return Machine(
            file=self.file,
            cpu=cpu,
            ram_base=self.number("['ram']['base']", ram["base"]),
            ram_size=size,
            registers=registers,
            uart=self.uart(given.get("uart", {}), names),
            entry=None if given.get("entry") is None else self.number("['entry']", given["entry"]),
            vectors_reset=self.number("['vectors']['reset']", vectors.get("reset", 0)),
            vectors_align=self.number("['vectors']['align']", vectors.get("align", 4)),
            csrs={
                self.number("['csrs']", number): self.choice(f"['csrs'][0x{number:x}]", what, CSRS)
                for number, what in self.table("['csrs']", given.get("csrs", {})).items()
            },
        )

    def registers(self, given: Any) -> dict[int, Register]:
        found: dict[int, Register] = {}
        names = self.table("['registers']", given)
        for name, data in names.items():
            key = f"['registers']['{name}']"
            known = ("at", "reset", "write", "read", "bits", "plain_while")
            fields = self.table(key, data, known, ("at",))
            at = self.number(f"{key}['at']", fields["at"])
            if at in found:
                raise self.refuse(key, f"is at 0x{at:x} like {found[at].name}", "correct one of the addresses")
            bits = self.table(f"{key}['bits']", fields.get("bits", {}), BITS)
            found[at] = Register(
                name=name,
                at=at,
                reset=self.number(f"{key}['reset']", fields.get("reset", 0)),
                write=self.choice(f"{key}['write']", fields["write"], WRITES) if "write" in fields else None,
                read=self.choice(f"{key}['read']", fields["read"], READS) if "read" in fields else None,
                bits={bit: self.number(f"{key}['bits']['{bit}']", n) for bit, n in bits.items()},
                plain_while=self.mask(f"{key}['plain_while']", fields.get("plain_while"), set(names)),
            )
        if not any(register.write == "exit" for register in found.values()):
            raise self.refuse("['registers']", 'has no register with "write": "exit"', "say how a program ends")
        return found

    def uart(self, given: Any, names: set[str]) -> Uart:
        fields = self.table("['uart']", given, ("fifo", "enabled_by", "last_bit"))
        return Uart(
            fifo=self.number("['uart']['fifo']", fields.get("fifo", 1)),
            enabled_by=self.mask("['uart']['enabled_by']", fields.get("enabled_by"), names),
            last_bit=self.number("['uart']['last_bit']", fields.get("last_bit", 0)),
        )

    def mask(self, key: str, value: Any, names: set[str]) -> tuple[str, int] | None:
        if value is None:
            return None
        if not isinstance(value, list | tuple) or len(value) != 2:
            raise self.refuse(key, f"is {value!r}, not a register and a mask", 'write ["uart.ctrl", 1]')
        return self.choice(key, value[0], tuple(sorted(names))), self.number(key, value[1])

    def table(self, key: str, value: Any, known: tuple[str, ...] = (), needed: tuple[str, ...] = ()) -> dict[Any, Any]:
        if not isinstance(value, dict):
            raise self.refuse(key, f"is {value!r}, not a dictionary", 'write {"name": ...}')
        if known:
            self.keys(key, value, known, needed)
        return value

    def keys(self, place: str, given: Mapping[str, Any], known: tuple[str, ...], needed: tuple[str, ...]) -> None:
        for key in given:
            if key not in known:
                raise self.refuse(place, f"unknown key '{key}'", nearest(str(key), known))
        for key in needed:
            if key not in given:
                raise self.refuse(place, f"'{key}' is missing", "set it as the other boards do")

    def choice(self, key: str, value: Any, allowed: tuple[str, ...]) -> str:
        if not isinstance(value, str) or value not in allowed:
            raise self.refuse(key, f"{value!r} is unknown", "use " + either(*allowed))
        return value

    def number(self, key: str, value: Any) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 32:
            raise self.refuse(key, f"is {value!r}, not a number of 32 bits", "write a whole number")
        return value
