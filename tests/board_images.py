# SPDX-License-Identifier: Apache-2.0
"""Images for the tests of boards and emulators, built from nothing but the data in board.py."""

from __future__ import annotations

import atexit
import functools
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import pytest
import ziglang

from snn_builder.boards import ZIG, Board, load
from snn_builder.errors import Unreadable

ROOT = Path(__file__).resolve().parent.parent
FIRMWARE = ROOT / "firmware"
BOARDS = ("xheep", "x86")
TOOLCHAINS = ("zig", "gcc")
WARNINGS = ["-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wshadow", "-Wmissing-prototypes", "-Werror"]
_ZIG = [sys.executable, "-m", "ziglang"]


def board(name: str) -> Board:
    return load(ROOT / "boards" / name)


def build(
    board: Board,
    program: str | Iterable[Path],
    folder: Path,
    toolchain: str = "zig",
    *,
    sources: Mapping[str, str] | None = None,
    cflags: Iterable[str] = (),
    defsyms: Mapping[str, int] | None = None,
    include: Iterable[Path] = (),
    needs_runtime: bool = False,
    by: Callable[[list[str]], int] | None = None,
) -> Path:
    """folder/firmware.elf from C text or files, with the board's own sources; `sources` replaces some of these by text.

    zig's runtime library takes seconds to build: only with `needs_runtime`. `by` links, instead of the linker alone.
    """
    try:
        tools = board.toolchain(toolchain)
    except Unreadable as error:
        pytest.skip(str(error))
    compiler = tools.compiler()
    assert compiler is not None
    folder.mkdir(parents=True, exist_ok=True)
    own = {name: (board.path / name).read_text() for name in board.sources}
    for name, text in {**own, **dict(sources or {})}.items():
        (folder / name).write_text(text)
    if isinstance(program, str):
        (folder / "program.c").write_text(program)
        program = [folder / "program.c"]
    files = [*(folder / name for name in board.sources), FIRMWARE / "mem.c", *program]
    driver = [*_ZIG, "cc"] if compiler == ZIG else [compiler]
    defines = [f"-DBOARD_UART_BAUD={board.uart_baud}", f"-I{FIRMWARE}", *(f"-I{path}" for path in include)]
    objects = []
    for file in files:
        flags = [*board.cflags, *board.firmware_cflags, *tools.cflags, *WARNINGS, *cflags]
        if file.suffix == ".S":
            flags = [*board.asflags, *tools.asflags]
        objects.append(_compile((*driver, *flags, *defines), file))
    symbols = {option.defsym: option.values[option.default] for option in board.options.values() if option.defsym}
    given = [f"--defsym={name}={value}" for name, value in {**symbols, **dict(defsyms or {})}.items()]
    if tools.link is None:
        linker, given = driver, [f"-Wl,{word}" for word in given]
    else:
        linker = [*_ZIG, *tools.link.split()]
    runtime = [str(compiler_rt(tools.compiler_rt))] if tools.compiler_rt and needs_runtime else []
    elf = folder / "firmware.elf"
    script = ["-T", str(board.path / (board.linker_script or ""))]
    words = [
        *board.linkflags,
        *tools.linkflags,
        *given,
        *script,
        *map(str, objects),
        *board.libs,
        *tools.libs,
        *runtime,
    ]
    command = [*linker, *words, "-o", str(elf)]
    if by is not None:
        assert by(command) == 0
    else:
        _run(command)
    return elf


@functools.cache
def compiler_rt(flags: tuple[str, ...]) -> Path:
    """The runtime library of zig."""
    source = Path(ziglang.__file__).parent / "lib" / "compiler_rt.zig"
    target = scratch() / f"{len(list(scratch().iterdir()))}.a"
    size = ["-O", "ReleaseSmall", "-fstrip", "-ffunction-sections", "-fdata-sections"]
    _run([*_ZIG, "build-lib", str(source), *flags, *size, f"-femit-bin={target}"])
    return target


@functools.cache
def scratch() -> Path:
    """A directory for what several tests share; it goes with the process."""
    folder = Path(tempfile.mkdtemp(prefix="snn-builder-tests-"))
    atexit.register(shutil.rmtree, folder)
    return folder


_objects: dict[tuple[tuple[str, ...], str, str], Path] = {}


def _compile(command: tuple[str, ...], file: Path) -> Path:
    key = command, file.name, file.read_text()
    if key not in _objects:
        target = scratch() / f"{len(list(scratch().iterdir()))}.o"
        _run([*command, "-c", str(file), "-o", str(target)])
        _objects[key] = target
    return _objects[key]


def copy_of(name: str, folder: Path) -> Path:
    """The board `name`, copied to folder/fourth."""
    shutil.copytree(ROOT / "boards" / name, folder / "fourth", ignore=shutil.ignore_patterns("__pycache__"))
    return folder / "fourth"


def _run(command: list[str]) -> None:
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}{done.stderr}"
    assert not done.stdout + done.stderr, done.stdout + done.stderr  # no warnings either
