# SPDX-License-Identifier: Apache-2.0
"""Runs an image on a described machine, and is strict where Unicorn is lax."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable
from typing import Any

from unicorn import (
    UC_ERR_INSN_INVALID,
    UC_HOOK_CODE,
    UC_HOOK_INSN,
    UC_HOOK_INTR,
    UC_HOOK_MEM_INVALID,
    UC_HOOK_MEM_WRITE,
    UC_MEM_FETCH_PROT,
    UC_MEM_FETCH_UNMAPPED,
    UC_MEM_READ_UNMAPPED,
)
from unicorn.unicorn_py3.unicorn import UcError
from unicorn.x86_const import UC_X86_INS_IN, UC_X86_INS_OUT

from ..errors import Refused
from ..image import Image, check
from .counter import counter
from .devices import Bytes, Devices, Fault, Input
from .machine import Machine
from .processors import PROCESSORS, NoHandler, decoder, new_engine

PAGE = 0x1000
END = 0xFFFFFFFF  # an address where no program arrives
LIMIT = 10_000_000_000


@dataclasses.dataclass(frozen=True)
class Result:
    """How a program ended.

    `exit_code` is what it wrote, `output` what the UART sent, `instructions` how many were executed, `stack` how many
    bytes of stack it took (None without the symbols __stack_bottom and __stack_top), `hook` what counted them.
    """

    exit_code: int
    output: bytes
    instructions: int
    stack: int | None
    hook: str


class Emulator:
    """One machine with one image loaded. RAM holds noise (from `seed`) wherever the image puts nothing.

    `ram_size` is in bytes. `source` is what the UART receives; each character sent goes to `sink`, if given, at once.
    Raises `Refused` for an image that cannot be loaded.
    """

    def __init__(
        self,
        machine: Machine,
        image: Image,
        ram_size: int,
        *,
        source: Input | None = None,
        sink: Callable[[int], None] | None = None,
        limit: int = LIMIT,
        seed: int = 0,
        hook: str = "auto",
    ) -> None:
        self.machine = machine
        self.image = image
        self.ram_size = ram_size
        self.output = bytearray()
        self._sink = sink
        self._problem: tuple[int | None, str] | None = None
        self._bug: BaseException | None = None
        self._exception: int | None = None
        self._ended_at: int | None = None
        self._breakpoint: int | None = None
        self._stack = image.symbol("__stack_bottom"), image.symbol("__stack_top")
        self._stack_used = False
        self._check_image()

        self.engine = new_engine(image.cpu)
        self.processor = PROCESSORS[image.cpu](machine, self.engine)
        self.processor.reset()
        self._load(seed)
        self.counter = counter(self.engine, self._first_time, limit, hook)
        self._decode = decoder(image.cpu, self._load_code)
        self.devices = Devices(machine, source or Bytes(b""), self._sent, lambda: self.counter.count)
        self._hook()
        self._next = image.entry if machine.entry is None else machine.entry

    def run(self, until: int | None = None) -> Result | None:
        """Runs to the end of the program; or to the address `until`, when it gives None and can be called again.

        Raises `Refused` with the place in the program when it does what hardware would not take, or does not end.
        """
        handle = self._set_breakpoint(until)
        try:
            while True:
                self._exception = None
                error = self._go()
                if self._bug is not None:
                    raise self._bug
                if self._problem is not None:
                    raise self._refused(*self._problem)
                pc = self.processor.pc
                if self.devices.exit_code is not None:
                    return self._result(pc if self._ended_at is None else self._ended_at)
                if self._breakpoint == pc:
                    self._breakpoint, self._next = None, pc
                    self.counter.resume(self.counter.before(pc))
                    return None
                if self.counter.exhausted:
                    raise self._refused(pc, f"did not end within {self.counter.count:,d} instructions")
                if self._exception is not None or (error is not None and error.errno == UC_ERR_INSN_INVALID):
                    self._trap(self._exception)
                elif error is not None:
                    raise self._refused(pc, f"stopped: {error}")
                else:
                    self._stopped()
        finally:
            if handle is not None:
                self.engine.hook_del(handle)

    # -- Before the start ----------------------------------------------------------------------------------------------

    def _check_image(self) -> None:
        if self.image.cpu != self.machine.cpu:
            problem = f"is for {self.image.cpu}, and the board's machine is {self.machine.cpu}"
            raise Refused(self.image.path, "", problem, "pass an image that was built for this board")
        check(self.image)
        end = self.machine.ram_base + self.ram_size
        for segment in self.image.segments:
            for start, size in ((segment.address, segment.size), (segment.load, len(segment.data))):
                if size and not self.machine.ram_base <= start <= start + size <= end:
                    ram = f"0x{self.machine.ram_base:08x} to 0x{end - 1:08x}"
                    problem = f"the segment at 0x{start:08x} is not in RAM, {ram}"
                    raise Refused(self.image.path, "", problem, "link it for this much RAM, or pass more")
        for name, value in zip(("__stack_bottom", "__stack_top"), self._stack, strict=True):
            if value is not None and not self.machine.ram_base <= value <= end:
                raise Refused(self.image.path, name, f"is 0x{value:08x}, not in RAM", "link it for this much RAM")

    def _load(self, seed: int) -> None:
        noise = random.Random(seed).randbytes(1 << 16)
        self._noise = (noise * (self.ram_size // len(noise) + 1))[: self.ram_size]
        self.engine.mem_map(self.machine.ram_base, self.ram_size)
        self.engine.mem_write(self.machine.ram_base, self._noise)
        for segment in self.image.segments:
            self.engine.mem_write(segment.load, segment.data)

    def _load_code(self, engine: Any) -> None:
        engine.mem_map(self.machine.ram_base, self.ram_size)
        for segment in self.image.segments:
            if segment.executable:
                engine.mem_write(segment.address, segment.data)

    def _hook(self) -> None:
        engine = self.engine
        engine.hook_add(UC_HOOK_MEM_INVALID, self._bad_access)
        engine.hook_add(UC_HOOK_INTR, self._on_exception)
        for segment in self.image.segments:
            if segment.executable:
                end = segment.address + segment.size - 1
                engine.hook_add(UC_HOOK_MEM_WRITE, self._code_written, begin=segment.address, end=end)
        for section in self.image.sections:
            if section.executable:
                code = bytes(engine.mem_read(section.address, section.size))
                for offset in self.processor.special(code):
                    at = section.address + offset
                    engine.hook_add(UC_HOOK_CODE, self._special, begin=at, end=at)
        if self.image.cpu == "x86":
            engine.hook_add(UC_HOOK_INSN, self._in, aux1=UC_X86_INS_IN)
            engine.hook_add(UC_HOOK_INSN, self._out, aux1=UC_X86_INS_OUT)
        else:
            for page in sorted({address & -PAGE for address in self.machine.registers}):
                engine.mmio_map(page, PAGE, self._load_register, page, self._store_register, page)

    # -- While it runs: called by the engine ---------------------------------------------------------------------------

    def _first_time(self, address: int, size: int) -> int:
        """The length of a block that runs for the first time, or of a part of one."""
        if size and not self.image.in_code(address, size):
            self._stop(address, "executed what is not code")
            return 0
        bottom, top = self._stack
        if bottom is not None and top is not None:
            inside = bottom <= self.processor.sp <= top
            if self._stack_used and not inside:
                self._stop(address, f"moved the stack pointer to 0x{self.processor.sp:08x}, out of the stack")
            self._stack_used = self._stack_used or inside
        return self._decode(address, size)

    def _special(self, engine: Any, address: int, size: int, _: object) -> None:
        now = self.counter.before(address)
        if self._breakpoint == address:
            return
        if self.processor.execute(address, now):
            self.counter.resume(now + 1)
        else:
            self._exception = self._ILLEGAL
            engine.emu_stop()

    def _bad_access(self, engine: Any, access: int, address: int, size: int, value: int, _: object) -> bool:
        if access in (UC_MEM_FETCH_UNMAPPED, UC_MEM_FETCH_PROT):
            self._problem = self.counter.address, f"jumped to 0x{address:08x}, outside of RAM"
        else:
            did = "read" if access == UC_MEM_READ_UNMAPPED else "wrote"
            self._problem = None, f"{did} {size} bytes at 0x{address:08x}, outside of RAM and devices"
        return False

    def _code_written(self, engine: Any, access: int, address: int, size: int, value: int, _: object) -> None:
        self._stop(None, f"wrote {size} bytes to code, at {self.image.place(address)}")

    def _on_exception(self, engine: Any, number: int, _: object) -> None:
        self._exception = number
        engine.emu_stop()

    # At `in` and `out` the program counter is right, after the stop it is wrong; with memory it is the other way round.

    def _in(self, engine: Any, port: int, size: int, _: object) -> int:
        return self._device(lambda: self.devices.read(port), self.processor.pc)

    def _out(self, engine: Any, port: int, size: int, value: int, _: object) -> None:
        self._device(lambda: self.devices.write(port, value), self.processor.pc)

    def _load_register(self, engine: Any, offset: int, size: int, page: int) -> int:
        return self._device(lambda: self.devices.read(page + offset))

    def _store_register(self, engine: Any, offset: int, size: int, value: int, page: int) -> None:
        self._device(lambda: self.devices.write(page + offset, value))

    def _device(self, use: Callable[[], int | None], place: int | None = None) -> int:
        try:
            value = use()
        except Fault as fault:
            self._stop(place, str(fault))
        except BaseException as bug:  # the engine would swallow it
            self._bug = bug
            self.engine.emu_stop()
        else:
            if self.devices.exit_code is not None:
                self._ended_at = place
                self.engine.emu_stop()
            return value or 0
        return 0

    def _sent(self, character: int) -> None:
        self.output.append(character)
        if self._sink is not None:
            self._sink(character)

    def _stop(self, place: int | None, problem: str) -> None:
        if self._problem is None:
            self._problem = place, problem
        self.engine.emu_stop()

    # -- When it has stopped -------------------------------------------------------------------------------------------

    _ILLEGAL = -1  # an instruction that Unicorn takes and the machine does not

    def _go(self) -> UcError | None:
        try:
            self.engine.emu_start(self._next, END)
        except UcError as error:
            return error
        return None

    def _trap(self, number: int | None) -> None:
        if number is None or number == self._ILLEGAL:
            pc, number = self.processor.pc, None
        else:
            pc = self.processor.fault_address()
        self.counter.resume(self.counter.before(pc))
        what = self.processor.describe(number)
        try:
            self._next = self.processor.trap(number, pc)
        except NoHandler as reason:
            raise self._refused(pc, f"{what}, and no handler: {reason}") from None
        except UcError:
            raise self._refused(pc, f"{what}, and no stack for its handler") from None
        if not self.image.in_code(self._next):
            raise self._refused(pc, f"{what}, and its handler at 0x{self._next:08x} is not code")

    def _stopped(self) -> None:
        address = self.processor.stopped()
        if address is None:
            raise self._refused(self.processor.pc, "stopped without an exit")
        what = self.processor.stop_instruction
        raise self._refused(address, f"{what} without an exit: nothing would wake the processor")

    def _refused(self, place: int | None, problem: str) -> Refused:
        where = self.image.place(self.processor.pc if place is None else place)
        sent = bytes(self.output).decode("ascii", "replace").strip().splitlines()
        said = f"the last line sent was '{sent[-1][:80]}'" if sent else "nothing had been sent"
        return Refused(self.image.path, where, problem, said)

    def _result(self, pc: int) -> Result:
        assert self.devices.exit_code is not None
        instructions = self.counter.before(pc) + 1  # the store or `out` that ended it
        used = self._stack_bytes()
        return Result(self.devices.exit_code, bytes(self.output), instructions, used, self.counter.kind)

    def _stack_bytes(self) -> int | None:
        bottom, top = self._stack
        if bottom is None or top is None:
            return None
        for start in range(bottom, top, PAGE):
            size = min(PAGE, top - start)
            memory = bytes(self.engine.mem_read(start, size))
            offset = start - self.machine.ram_base
            noise = self._noise[offset : offset + size]
            if memory != noise:
                changed = next(i for i in range(size) if memory[i] != noise[i])
                return top - start - changed
        return 0

    def _set_breakpoint(self, address: int | None) -> Any:
        self._breakpoint = address
        if address is None:
            return None
        self.engine.ctl_flush_tb()  # what is translated already would not see the hook
        return self.engine.hook_add(UC_HOOK_CODE, self._at_breakpoint, begin=address, end=address)

    def _at_breakpoint(self, engine: Any, address: int, size: int, _: object) -> None:
        engine.emu_stop()
