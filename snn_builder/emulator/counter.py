# SPDX-License-Identifier: Apache-2.0
"""Exact instruction counts from Unicorn's block hook: in C where there is a compiler, else in Python, the same numbers.

A block is counted when it begins. What ends in the middle of one (a trap, the exit, a look at the cycle counter) asks
`before(pc)`, which takes back the part that has not run.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from unicorn import UC_HOOK_BLOCK
from unicorn.unicorn_const import UC_ERR_OK

SOURCE = Path(__file__).with_name("block_hook.c")
HOOKS = ("auto", "c", "python")


class Counter:
    """Counts in Python. `length(address, size)` is how many instructions a block has; it is asked once for each."""

    kind = "python"

    def __init__(self, engine: Any, length: Callable[[int, int], int], limit: int) -> None:
        self.count = 0
        self.address = 0
        self.size = 0
        self._limit = limit
        self._length = length
        self._lengths: dict[tuple[int, int], int] = {}
        self._install(engine)

    def _install(self, engine: Any) -> None:
        engine.hook_add(UC_HOOK_BLOCK, self._block)

    def _block(self, engine: Any, address: int, size: int, _: object) -> None:
        self.address, self.size = address, size
        self.count += self.look_up(address, size)
        if self.count > self._limit:
            engine.emu_stop()

    def look_up(self, address: int, size: int) -> int:
        """The number of instructions of a block."""
        length = self._lengths.get((address, size))
        if length is None:
            length = self._lengths[address, size] = self._length(address, size)
        return length

    def before(self, pc: int) -> int:
        """How many instructions ran before the one at `pc`, which lies in the block that runs or at its end."""
        return self.count - self.look_up(self.address, self.size) + self.look_up(self.address, pc - self.address)

    def resume(self, count: int) -> None:
        """`count` instructions ran so far, and the next one begins a block."""
        self.count = count

    @property
    def exhausted(self) -> bool:
        """Whether the limit is passed."""
        return self.count > self._limit


class _State(ctypes.Structure):
    """`struct counter` of block_hook.c, up to its table."""

    _fields_ = (
        ("count", ctypes.c_uint64),
        ("limit", ctypes.c_uint64),
        ("address", ctypes.c_uint64),
        ("size", ctypes.c_uint64),
        ("look_up", ctypes.c_void_p),
        ("stop", ctypes.c_void_p),
    )


_LOOK_UP = ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint64)


class FastCounter(Counter):
    """Counts in C."""

    kind = "c"

    def __init__(self, engine: Any, length: Callable[[int, int], int], limit: int, library: ctypes.CDLL) -> None:
        library.counter_bytes.restype = ctypes.c_uint64
        self._memory = ctypes.create_string_buffer(library.counter_bytes())
        self._state = _State.from_buffer(self._memory)
        self._library = library
        super().__init__(engine, length, limit)

    def _install(self, engine: Any) -> None:
        from unicorn.unicorn_py3.unicorn import uclib

        self._callback = _LOOK_UP(self.look_up)  # must live as long as the engine calls it
        self._state.limit = self._limit
        self._state.look_up = _address(self._callback)
        self._state.stop = _address(uclib.uc_emu_stop)
        handle = ctypes.c_size_t()
        begin, end = ctypes.c_uint64(1), ctypes.c_uint64(0)  # begin > end: everywhere
        hook, state = _address(self._library.counter_hook), ctypes.c_void_p(ctypes.addressof(self._memory))
        status = uclib.uc_hook_add(
            engine._uch, ctypes.byref(handle), UC_HOOK_BLOCK, ctypes.c_void_p(hook), state, begin, end
        )
        if status != UC_ERR_OK:
            raise OSError(f"Unicorn refused the hook ({status})")

    @property
    def count(self) -> int:
        """Instructions so far, including all of the block that runs."""
        return int(self._state.count)

    @count.setter
    def count(self, value: int) -> None:
        self._state.count = value

    @property
    def address(self) -> int:
        """Where the block that runs begins."""
        return int(self._state.address)

    @address.setter
    def address(self, value: int) -> None:
        self._state.address = value

    @property
    def size(self) -> int:
        """Bytes of the block that runs."""
        return int(self._state.size)

    @size.setter
    def size(self, value: int) -> None:
        self._state.size = value


def counter(engine: Any, length: Callable[[int, int], int], limit: int, hook: str = "auto") -> Counter:
    """A counter installed in `engine`; `hook` is "c", "python", or "auto": C where it can be compiled and loaded."""
    if hook != "python":
        try:
            return FastCounter(engine, length, limit, _library())
        except (OSError, AttributeError, ImportError):
            if hook == "c":
                raise
    return Counter(engine, length, limit)


def _address(function: Any) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0


def _library() -> ctypes.CDLL:
    """block_hook.c, compiled on first use into this user's cache. Raises OSError where that cannot be done."""
    source = SOURCE.read_bytes()
    key = hashlib.sha256(source + f"{platform.machine()} {sys.platform}".encode()).hexdigest()[:16]
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "snn-builder"
    file = folder / f"block_hook-{key}.so"
    if not file.exists():
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as temporary:
            _compile(Path(temporary) / file.name)
            os.replace(Path(temporary) / file.name, file)
    return ctypes.CDLL(str(file))


def _compile(target: Path) -> None:
    found = next((path for name in ("cc", "gcc", "clang") if (path := shutil.which(name))), None)
    compiler = [found] if found else [sys.executable, "-m", "ziglang", "cc"]
    command = [*compiler, "-O2", "-g0", "-shared", "-fPIC", "-nostdlib", "-o", str(target), str(SOURCE)]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode != 0:
        raise OSError(f"{' '.join(command)}: {done.stderr.strip()}")
