# SPDX-License-Identifier: Apache-2.0
"""Device registers: a UART whose transmitter has to be waited for, and the end of the program."""

from __future__ import annotations

import io
import os
import select
import sys
from collections.abc import Callable
from typing import BinaryIO, Protocol

from .machine import Machine, Register

# On hardware a character takes thousands of cycles. Here it leaves with every second look at the status: enough to fill
# the FIFO of a program that prints much, so that waiting is exercised, and little enough to be fast.
LOOKS_PER_CHARACTER = 2
LOOKS_OF_A_SENDER = 8  # between two characters, at most
LOOKS_AT_NOTHING = 200_000  # a second or two
REST = 0.001  # seconds


class Fault(Exception):
    """The program used a device as hardware would not take it."""


class Input(Protocol):
    """What arrives at the UART."""

    def ready(self) -> bool:
        """Whether `read` would give a character now."""

    def read(self) -> int:
        """The next character."""


class Devices:
    """The registers of a machine. `now` tells the number of instructions executed, about."""

    def __init__(self, machine: Machine, source: Input, sink: Callable[[int], None], now: Callable[[], int]) -> None:
        self.machine = machine
        self.source = source
        self.sink = sink
        self.now = now
        self.values = {register.name: register.reset for register in machine.registers.values()}
        self.exit_code: int | None = None
        self._written_code: int | None = None
        self._in_fifo = 0
        self._looks = 0
        self._idle_since: int | None = None

    def read(self, address: int) -> int:
        """What a load from a register, or `in` from a port, gives. Raises `Fault`."""
        register = self._register(address, "read from")
        if self._plain(register):
            return self.values[register.name]
        if register.read == "receive":
            if not self.source.ready():
                raise Fault(f"read {register.name} when nothing had been received")
            return self.source.read()
        return self._status(register) if register.bits else self.values[register.name]

    def write(self, address: int, value: int) -> None:
        """A store to a register, or `out` to a port. Sets `exit_code` at the end of the program. Raises `Fault`."""
        register = self._register(address, "wrote to")
        if self._plain(register) or register.write is None:
            self.values[register.name] = value
        elif register.write == "send":
            self._send(register, value & 0xFF)
        elif register.write == "exit_code":
            self._written_code = value
        else:
            self._exit(register, value)

    def _register(self, address: int, did: str) -> Register:
        register = self.machine.registers.get(address)
        if register is None:
            raise Fault(f"{did} 0x{address:08x}, where this machine has no register")
        return register

    def _plain(self, register: Register) -> bool:
        return register.plain_while is not None and self._has(register.plain_while)

    def _has(self, mask: tuple[str, int]) -> bool:
        return bool(self.values[mask[0]] & mask[1])

    def _status(self, register: Register) -> int:
        self._looks += 1
        if self._in_fifo and self._looks % LOOKS_PER_CHARACTER == 0:
            self._in_fifo -= 1
        if not self._in_fifo and self._idle_since is None:
            self._idle_since = self.now()
        value = register.reset
        for bit, number in register.bits.items():
            if bit == "tx_full":
                state = self._in_fifo >= self.machine.uart.fifo
            elif bit == "tx_empty":
                state = self._in_fifo <= 1  # the last one is already on the line
            elif bit == "tx_idle":
                state = self._in_fifo == 0
            else:
                state = self.source.ready() == (bit == "rx_ready")
            value |= state << number
        return value

    def _send(self, register: Register, character: int) -> None:
        uart = self.machine.uart
        if uart.enabled_by and not self._has(uart.enabled_by):
            raise Fault(f"wrote to {register.name} before {uart.enabled_by[0]} enabled the UART")
        if self._in_fifo >= uart.fifo:
            raise Fault(f"wrote to {register.name} while the transmitter was full: the character would be lost")
        self._in_fifo += 1
        self._idle_since = None
        self.sink(character)

    def _exit(self, register: Register, value: int) -> None:
        has_code = any(r.write == "exit_code" for r in self.machine.registers.values())
        if has_code and not value & 1:
            return
        if has_code and self._written_code is None:
            raise Fault(f"wrote to {register.name} before the exit code")
        if self._in_fifo:
            raise Fault("ended while the UART was still sending")
        if self._idle_since is not None and self.now() - self._idle_since < self.machine.uart.last_bit:
            raise Fault("ended before the last bit had left the UART")
        code = self._written_code if self._written_code is not None else value
        self.exit_code = code - (1 << 32) if code >> 31 else code


class Bytes:
    """Input that is known from the start."""

    def __init__(self, content: bytes) -> None:
        self._stream = io.BytesIO(content)

    def ready(self) -> bool:
        """Whether something is left."""
        return self._stream.tell() < len(self._stream.getbuffer())

    def read(self) -> int:
        """The next byte."""
        return self._stream.read(1)[0]


class Stdin:
    """Our own input, looked at only when the program asks. A program that looks again and again without sending anything waits: then
    `waiting` is called, which flushes what it has sent, and the processor rests for a moment at each look."""

    def __init__(self, stream: BinaryIO | None = None, waiting: Callable[[], None] = lambda: None) -> None:
        self._descriptor: int | None = (sys.stdin.buffer if stream is None else stream).fileno()
        self._waiting = waiting
        self._arrived = bytearray()
        self._looks = 0

    def ready(self) -> bool:
        """Whether a byte has arrived. Raises `Fault` when a program waits on where none can come any more."""
        if self._arrived:
            return True
        self._looks += 1
        waits = self._looks > LOOKS_OF_A_SENDER
        if waits:
            self._waiting()
        if self._descriptor is None:
            if self._looks > LOOKS_AT_NOTHING:
                raise Fault("waits at the UART, and its input has ended")
        elif select.select([self._descriptor], [], [], REST if waits else 0)[0]:
            self._arrived += os.read(self._descriptor, 4096)
            if not self._arrived:
                self._descriptor = None
        return bool(self._arrived)

    def read(self) -> int:
        """The next byte; `ready` was true."""
        self._looks = 0
        return self._arrived.pop(0)

    def sent(self) -> None:
        """The program has sent a character."""
        self._looks = 0
