# SPDX-License-Identifier: Apache-2.0
"""Emulators of boards: Unicorn's processors, our devices, instruction counts that are exact."""

from __future__ import annotations

import argparse
import json
import os
import sys

from ..boards import Board, either, load
from ..errors import Unreadable
from ..files import write
from ..image import Image, read
from .core import LIMIT, PAGE, Emulator, Result
from .counter import HOOKS
from .devices import Bytes, Stdin
from .machine import describe

__all__ = ["Emulator", "Result", "add_arguments", "emulator", "main", "run"]


def emulator(
    board: Board | str | os.PathLike[str],
    elf: str | os.PathLike[str],
    *,
    ram: str | None = None,
    input: bytes = b"",
    limit: int = LIMIT,
    seed: int = 0,
    hook: str = "auto",
) -> Emulator:
    """A board's machine with an image loaded, to be run step by step; the arguments are those of `run`."""
    known = board if isinstance(board, Board) else load(board)
    return _emulator(known, elf, ram, limit=limit, seed=seed, hook=hook, source=Bytes(input))


def run(
    board: Board | str | os.PathLike[str],
    elf: str | os.PathLike[str],
    *,
    ram: str | None = None,
    input: bytes = b"",
    limit: int = LIMIT,
    seed: int = 0,
    hook: str = "auto",
) -> Result:
    """Runs an image on the machine of a board, to its end.

    `ram`: the size of RAM, as a value of the board's option ("128k") or in bytes; by default what the image was linked
    for, as the linker symbol of that option says. `input`: what the UART receives. `limit`: how many instructions it
    may take. `seed`: of the noise in RAM. `hook`: what counts, "c", "python" or "auto". Raises `Refused` (place in the
    program, what it did that hardware would not take) and `Unreadable`.
    """
    result = emulator(board, elf, ram=ram, input=input, limit=limit, seed=seed, hook=hook).run()
    assert result is not None
    return result


def _emulator(board: Board, elf: str | os.PathLike[str], ram: str | None, **settings: object) -> Emulator:
    machine = describe(board)
    image = read(elf)
    return Emulator(machine, image, _ram_size(board, machine.ram_size, ram, image), **settings)  # type: ignore[arg-type]


def _ram_size(board: Board, described: int | str, chosen: str | None, image: Image) -> int:
    option = board.options[described] if isinstance(described, str) else None
    values = option.values if option is not None else {}
    if chosen is not None and chosen in values:
        size = values[chosen]
    elif chosen is not None:
        try:
            size = int(chosen, 0)
        except ValueError:
            remedy = "use " + either(*values, "a number of bytes")
            raise Unreadable("", "", f"--ram {chosen} is no size", remedy) from None
    elif option is None:
        size = int(described)
    else:
        linked = image.symbol(option.defsym) if option.defsym else None
        size = values[option.default] if linked is None else linked
    if size <= 0 or size % PAGE:
        raise Unreadable("", "", f"a RAM of {size} bytes is no multiple of {PAGE}", "pass another size with --ram")
    return size


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `python -m snn_builder emulate`."""
    parser.add_argument("board", metavar="BOARD_DIR", help="directory with board.py")
    parser.add_argument("elf", metavar="ELF", help="the image")
    parser.add_argument("--ram", metavar="N", help="size of RAM, where it is not what the image was linked for")
    parser.add_argument("--limit", type=int, default=LIMIT, metavar="N", help="instructions it may take (%(default)s)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the noise in RAM (0)")
    parser.add_argument("--hook", choices=HOOKS, default="auto", help="what counts: C where there is a compiler")
    parser.add_argument("--stats", metavar="JSON", help="write instructions, exit code and stack here, not to stderr")


def main(chosen: argparse.Namespace) -> int:
    """`python -m snn_builder emulate`: UART to stdout, stdin to UART; returns the program's exit code.

    As a process has only 8 bits of it, another code that is not 0 becomes 1.
    """
    out = sys.stdout.buffer

    source = Stdin(waiting=out.flush)

    def sink(character: int) -> None:
        source.sent()
        out.write(bytes([character]))
        if character == 10:
            out.flush()

    settings = {"limit": chosen.limit, "seed": chosen.seed, "hook": chosen.hook, "source": source, "sink": sink}
    machine = _emulator(load(chosen.board), chosen.elf, chosen.ram, **settings)
    try:
        result = machine.run()
    finally:
        out.flush()
    assert result is not None
    if chosen.stats:
        names = ("exit_code", "instructions", "stack", "hook")
        write(chosen.stats, json.dumps({name: getattr(result, name) for name in names}, indent=1) + "\n")
    else:
        stack = "" if result.stack is None else f", {result.stack:,d} bytes of stack"
        print(f"{result.instructions:,d} instructions{stack}, exit code {result.exit_code}", file=sys.stderr)
    return result.exit_code & 0xFF or int(result.exit_code != 0)
