# SPDX-License-Identifier: Apache-2.0
"""What differs between the processors: registers, the cycle counter, and traps, which Unicorn leaves to us."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

from unicorn import UC_ARCH_RISCV, UC_ARCH_X86, UC_MODE_32, UC_MODE_RISCV32
from unicorn.riscv_const import (
    UC_RISCV_REG_MCAUSE,
    UC_RISCV_REG_MEPC,
    UC_RISCV_REG_MSTATUS,
    UC_RISCV_REG_MTVAL,
    UC_RISCV_REG_MTVEC,
    UC_RISCV_REG_PC,
    UC_RISCV_REG_SP,
    UC_RISCV_REG_X0,
)
from unicorn.unicorn_py3.unicorn import Uc
from unicorn.x86_const import (
    UC_X86_REG_CR0,
    UC_X86_REG_CR4,
    UC_X86_REG_CS,
    UC_X86_REG_EAX,
    UC_X86_REG_EDX,
    UC_X86_REG_EFLAGS,
    UC_X86_REG_EIP,
    UC_X86_REG_ESP,
    UC_X86_REG_IDTR,
)

from .machine import Machine


class NoHandler(Exception):
    """A trap found no handler: what hardware does then has nothing to do with the program."""


class Processor:
    """One engine and what we have to know of its processor."""

    pc_register: int
    sp_register: int
    stop_instruction: str
    max_instruction: int

    def __init__(self, machine: Machine, engine: Any) -> None:
        self.machine = machine
        self.engine = engine

    @property
    def pc(self) -> int:
        """The program counter."""
        return int(self.engine.reg_read(self.pc_register))

    @pc.setter
    def pc(self, value: int) -> None:
        self.engine.reg_write(self.pc_register, value)

    @property
    def sp(self) -> int:
        """The stack pointer."""
        return int(self.engine.reg_read(self.sp_register))

    def reset(self) -> None:
        """Brings registers to the state in which the machine starts, where Unicorn has another one."""

    def special(self, code: bytes) -> Iterator[int]:
        """Offsets in `code` of instructions that `execute` does instead of Unicorn; it may give too many."""
        raise NotImplementedError

    def execute(self, address: int, now: int) -> bool:
        """Does the special instruction at `address`, when `now` instructions ran before it. False: it is illegal."""
        raise NotImplementedError

    def fault_address(self) -> int:
        """Where the instruction is that made Unicorn report an exception."""
        return self.pc

    def trap(self, number: int | None, pc: int) -> int:
        """Enters the handler of an exception (None: an invalid instruction) met at `pc`, and gives its address.

        Raises `NoHandler`.
        """
        raise NotImplementedError

    def describe(self, number: int | None) -> str:
        """An exception in words."""
        raise NotImplementedError

    def stopped(self) -> int | None:
        """The address of the wfi or hlt that has just stopped the processor, if one did."""
        raise NotImplementedError


class RiscV(Processor):
    """RV32, machine mode, exceptions to the base of mtvec."""

    pc_register = UC_RISCV_REG_PC
    sp_register = UC_RISCV_REG_SP
    stop_instruction = "wfi"
    max_instruction = 4

    ILLEGAL = 2
    BREAKPOINT = 3
    ECALL = 11
    _NAMES = ("misaligned jump", "bad jump", "illegal instruction", "ebreak", "misaligned load", "bad load",
              "misaligned store", "bad store", "ecall", "ecall", "ecall", "ecall")  # fmt: skip

    def reset(self) -> None:
        self.stored: dict[int, int] = {}
        self.engine.reg_write(UC_RISCV_REG_MTVEC, self.machine.vectors_reset)

    def special(self, code: bytes) -> Iterator[int]:
        for offset in range(0, len(code) - 3, 2):
            word = int.from_bytes(code[offset : offset + 4], "little")
            if word & 0x7F == 0x73 and word >> 12 & 3 and word >> 20 in self.machine.csrs:
                yield offset

    def execute(self, address: int, now: int) -> bool:
        word = int.from_bytes(self.engine.mem_read(address, 4), "little")
        csr, source, form, target = word >> 20, word >> 15 & 31, word >> 12 & 7, word >> 7 & 31
        what = self.machine.csrs[csr]
        if what == "illegal":
            return False
        values = {"cycles": now, "cycles_high": now >> 32}
        old = values.get(what, self.stored.get(csr, 0)) & 0xFFFFFFFF
        operand = source if form & 4 else int(self.engine.reg_read(UC_RISCV_REG_X0 + source))
        new = {1: operand, 2: old | operand, 3: old & ~operand}[form & 3]
        if form & 3 == 1 or source:  # otherwise it only reads
            self.stored[csr] = new & 0xFFFFFFFF
        if target:
            self.engine.reg_write(UC_RISCV_REG_X0 + target, old)
        self.pc = address + 4
        return True

    def fault_address(self) -> int:
        return (self.pc - 4) & 0xFFFFFFFF  # Unicorn has already stepped over it, by 4 whatever its size

    def _cause(self, number: int | None, pc: int) -> int:
        if number is None:
            parcel = int.from_bytes(self.engine.mem_read(pc, 2), "little")
            is_break = parcel == 0x9002 or (parcel == 0x0073 and bytes(self.engine.mem_read(pc + 2, 2)) == b"\x10\x00")
            return self.BREAKPOINT if is_break else self.ILLEGAL
        return self.ECALL if number in (8, 9, 10) else number

    def trap(self, number: int | None, pc: int) -> int:
        cause = self._cause(number, pc)
        handler = int(self.engine.reg_read(UC_RISCV_REG_MTVEC)) & -self.machine.vectors_align & ~3
        if handler == self.machine.vectors_reset & ~3:
            raise NoHandler("mtvec has not been set")
        value = 0
        if cause == self.ILLEGAL:
            parcel = bytes(self.engine.mem_read(pc, 2))
            value = int.from_bytes(parcel if parcel[0] & 3 != 3 else self.engine.mem_read(pc, 4), "little")
        elif cause == self.BREAKPOINT:
            value = pc
        status = int(self.engine.reg_read(UC_RISCV_REG_MSTATUS))
        status = status & ~0x1888 | 0x1800 | (status & 8) << 4  # from machine mode, interrupts off
        for register, word in (
            (UC_RISCV_REG_MEPC, pc),
            (UC_RISCV_REG_MCAUSE, cause),
            (UC_RISCV_REG_MTVAL, value),
            (UC_RISCV_REG_MSTATUS, status),
        ):
            self.engine.reg_write(register, word)
        return handler

    def describe(self, number: int | None) -> str:
        cause = self.ILLEGAL if number is None else number
        return self._NAMES[cause] if cause < len(self._NAMES) else f"trap {cause}"

    def stopped(self) -> int | None:
        address = self.pc - 4
        return address if address >= 0 and bytes(self.engine.mem_read(address, 4)) == b"\x73\x00\x50\x10" else None


class X86(Processor):
    """32-bit protected mode, as a multiboot loader leaves it."""

    pc_register = UC_X86_REG_EIP
    sp_register = UC_X86_REG_ESP
    stop_instruction = "hlt"
    max_instruction = 15

    INVALID = 6
    _NAMES: ClassVar = {0: "division error", 1: "debug", 3: "int3", 4: "overflow", 5: "bound", 6: "invalid instruction",
              7: "no floating-point unit", 8: "double fault", 12: "stack fault", 13: "general protection fault",
              16: "x87 error", 17: "misaligned access", 19: "SSE error"}  # fmt: skip

    def reset(self) -> None:
        self.engine.reg_write(UC_X86_REG_CR0, 0x15)  # protected mode, and EM: floating point faults
        self.engine.reg_write(UC_X86_REG_CR4, 0)  # no SSE
        self.engine.reg_write(UC_X86_REG_EAX, 0x2BADB002)  # what a multiboot loader says

    def special(self, code: bytes) -> Iterator[int]:
        offset = code.find(b"\x0f\x31")
        while offset >= 0:
            yield offset
            offset = code.find(b"\x0f\x31", offset + 1)

    def execute(self, address: int, now: int) -> bool:
        self.engine.reg_write(UC_X86_REG_EAX, now & 0xFFFFFFFF)
        self.engine.reg_write(UC_X86_REG_EDX, now >> 32)
        self.pc = address + 2
        return True

    def trap(self, number: int | None, pc: int) -> int:
        vector = self.INVALID if number is None else number
        _, base, limit, _ = self.engine.reg_read(UC_X86_REG_IDTR)
        if limit < 8 * vector + 7:
            raise NoHandler("lidt has not set a table with that vector")
        low, selector, kind, high = struct.unpack("<4H", self.engine.mem_read(base + 8 * vector, 8))
        code = self.engine.reg_read(UC_X86_REG_CS)
        if kind not in (0x8E00, 0x8F00) or selector != code:
            raise NoHandler("the table has no 32-bit gate to this code segment for that vector")
        flags = self.engine.reg_read(UC_X86_REG_EFLAGS)
        frame = [flags, code, pc] + ([0] if vector in (8, 10, 11, 12, 13, 14, 17, 21) else [])
        stack = self.sp - 4 * len(frame)
        self.engine.mem_write(stack, struct.pack(f"<{len(frame)}I", *reversed(frame)))
        self.engine.reg_write(UC_X86_REG_ESP, stack)
        if kind == 0x8E00:
            self.engine.reg_write(UC_X86_REG_EFLAGS, flags & ~0x200)
        return int(high << 16 | low)

    def describe(self, number: int | None) -> str:
        vector = self.INVALID if number is None else number
        return self._NAMES.get(vector, f"exception {vector}")

    def stopped(self) -> int | None:
        address = self.pc - 1
        return address if bytes(self.engine.mem_read(address, 1)) == b"\xf4" else None


PROCESSORS: dict[str, type[Processor]] = {"riscv32": RiscV, "x86": X86}
_MODES = {"riscv32": (UC_ARCH_RISCV, UC_MODE_RISCV32), "x86": (UC_ARCH_X86, UC_MODE_32)}


def new_engine(cpu: str) -> Any:
    """An engine of Unicorn, whose Python is not typed."""
    return Uc(*_MODES[cpu])


def decoder(cpu: str, load: Callable[[Any], None]) -> Callable[[int, int], int]:
    """How many instructions lie in a span of code: a function of address and size. `load` puts the code into an engine.

    Unicorn's own decoder answers, in a second engine that never runs: the block that it makes at an address tells how
    many instructions it has. A span is a chain of such blocks, without what the last one has too much.
    """
    engine = new_engine(cpu)
    load(engine)
    engine.ctl_exits_enabled(True)
    engine.ctl_set_exits([0xFFFFFFFF])  # otherwise it would expect the end at 0, where vectors may be

    def block(address: int) -> tuple[int, int]:
        _, instructions, size = engine.ctl_request_cache(address)[:3]
        return instructions, size

    def count(address: int, size: int) -> int:
        total = 0
        while size > 0:
            instructions, length = block(address)
            if length == 0:
                break
            if length > size:
                return total + instructions - count(address + size, length - size)
            total, address, size = total + instructions, address + length, size - length
        return total

    return count
