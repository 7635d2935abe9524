# SPDX-License-Identifier: Apache-2.0
"""Lines to a board: a serial port, or a program whose UART is its stdin and stdout, such as an emulator."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Protocol

from ..errors import Refused, Unreadable

SLICE = 0.02  # seconds that a serial port waits at a time


class Port(Protocol):
    """A line to a board. `patience`: seconds that an answer may take before it is taken for lost, beside `per_byte` on the line. `unit`:
    what the board counts, "cycles" or "instructions"."""

    name: str
    patience: float
    per_byte: float
    unit: str

    def write(self, data: bytes) -> None:
        """Sends all of it."""

    def read(self, seconds: float) -> bytes:
        """What has arrived, or b"" when that is nothing within `seconds`. Raises `Refused` when nothing can come any more."""

    def close(self) -> None:
        """Ends what is at the other end, where that is ours."""


class SerialPort:
    """A device ("/dev/ttyUSB0"), or a URL as pyserial takes them ("socket://host:port")."""

    patience = 0.25
    unit = "cycles"

    def __init__(self, name: str, baud: int) -> None:
        try:
            import serial
        except ImportError:
            raise Unreadable("", "", f"--port {name} needs pyserial", "pip install pyserial") from None
        self.name = name
        self.per_byte = 10 / baud
        self._errors: Any = (serial.SerialException, OSError)
        try:
            self._line: Any = serial.serial_for_url(name, baudrate=baud, timeout=SLICE)
        except (*self._errors, ValueError) as error:
            number = getattr(error, "errno", None)
            reason = os.strerror(number) if number else str(error)
            raise Unreadable("", "", f"port {name} cannot be opened ({reason})", "check --port and --baud") from None

    def write(self, data: bytes) -> None:
        """As `Port`."""
        try:
            self._line.write(data)
        except self._errors as error:
            raise self._gone(error) from None

    def read(self, seconds: float) -> bytes:
        """As `Port`."""
        end = time.monotonic() + seconds
        try:
            while True:
                data: bytes = self._line.read(1)
                if data:
                    return data + bytes(self._line.read(self._line.in_waiting))
                if time.monotonic() >= end:
                    return b""
        except self._errors as error:
            raise self._gone(error) from None

    def close(self) -> None:
        """As `Port`."""
        self._line.close()

    def _gone(self, error: Exception) -> Refused:
        return Refused("", "", f"port {self.name} is gone ({error})", "check the cable")


class ProcessPort:
    """A program of this machine."""

    patience = 10.0  # a pipe loses nothing, and an emulator may take its time
    per_byte = 0.0

    def __init__(self, name: str, command: list[str], unit: str = "cycles") -> None:
        self.name, self.unit = name, unit
        try:
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
        except OSError as error:
            raise Unreadable(command[0], "", f"cannot be run ({error.strerror})", "build it first") from None

    def write(self, data: bytes) -> None:
        """As `Port`."""
        assert self._process.stdin is not None
        try:
            while data:
                data = data[self._process.stdin.write(data) or 0 :]
        except BrokenPipeError:
            raise self._ended() from None

    def read(self, seconds: float) -> bytes:
        """As `Port`."""
        assert self._process.stdout is not None
        if not select.select([self._process.stdout], [], [], seconds)[0]:
            return b""
        data: bytes = self._process.stdout.read(65536) or b""
        if not data:
            raise self._ended()
        return data

    def close(self) -> None:
        """As `Port`."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        for end in (self._process.stdin, self._process.stdout):
            if end is not None:
                end.close()

    def _ended(self) -> Refused:
        try:
            status = f"with exit status {self._process.wait(5)}"
        except subprocess.TimeoutExpired:
            status = "its output"
        return Refused("", "", f"the program at {self.name} has ended {status}", "run it by itself to see why")


def emulated(spec: str, words: dict[str, str], model: Path, precision: str, more: list[str]) -> ProcessPort:
    """The streaming firmware of a board, built in this checkout and run: natively, or in the emulator. `spec` is a board's name or the
    directory of one, `words` and `more` are options of the build. Raises `Unreadable` or `Refused`."""
    from ..boards import find, load

    root = Path(__file__).resolve().parents[2]
    name = f"emulator:{spec}"
    if not (root / "SConstruct").is_file():
        raise Unreadable("", "", f"--port {name} needs a checkout: boards are not installed", "run it in a checkout")
    apart = Path(spec).resolve() if os.sep in spec else None
    boards = find([root / "boards", *([apart] if apart else [])])
    chosen = apart.name if apart else spec
    if chosen not in boards:
        raise Unreadable("", "", f"--port {name}: no such board", "use emulator:" + ", emulator:".join(boards))
    board = load(boards[chosen])
    given = {"board": chosen, "model": str(model.resolve()), **words} | ({"board_path": str(apart)} if apart else {})
    if board.run == "emulator" and not board.emulator:
        raise Unreadable(board.path / "board.py", "", "this board has no emulator", "name the port of a real one")
    command = [sys.executable, "-m", "SCons", "-Q", "-C", str(root)]
    command += [*(f"{key}={value}" for key, value in given.items()), *more, "stream"]
    told = sys.stderr if sys.stderr.isatty() else subprocess.DEVNULL  # the first build takes a while
    process = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=told, check=False)
    if process.returncode:
        raise Refused(model, "", "the streaming firmware cannot be built", "see above")
    image = root / "build" / f"{chosen}-{precision}" / model.name.removesuffix(".nir") / "stream.elf"
    if board.run == "native":
        return ProcessPort(name, [str(image)])
    emulate = [sys.executable, "-m", "snn_builder", "emulate", "--limit", str(10**15), str(board.path), str(image)]
    return ProcessPort(name, emulate, "instructions")
