# SPDX-License-Identifier: Apache-2.0
"""Boards: directories with a `board.py`, read into a `Board`.

`board.py` is Python that assigns plain data to these names; names with a leading underscore are its own. Flags are
lists of words, file names are relative to the board's directory. Only `description` and `toolchains` must be there.

    description = "one line, shown by `scons -h`"
    sources = ["start.S", "uart.c"]     # board.h's functions and the start-up: C, or assembly through the preprocessor
    linker_script = "link.ld"           # passed as -T; with every *.ld and *.inc beside it a dependency of the image
    cflags = ["-O2"]                    # for every C file; warnings and -std=c11 come from the build
    firmware_cflags = ["-Os"]           # after cflags: for the harness and `sources`, not for the network
    asflags = []                        # for every assembly file
    linkflags = []                      # before the objects
    libs = ["-lgcc"]                    # after the objects
    kernel = "event"                    # the kernel this board runs best; kernel= overrides it
    form = "packed"                     # how its event kernel keeps weights: packed for 32-bit cores, column for SIMD
    uart_baud = 256000                  # C and assembly get -DBOARD_UART_BAUD=256000
    run = "native"                      # `run` executes the image; or "emulator": snn_builder emulate BOARD_DIR IMAGE
    emulator = {}                       # describes the machine to the emulator, which checks it

    toolchains = {                      # in order of preference: toolchain=auto takes the first that is there
        "gcc": {
            "cc": ["riscv32-unknown-elf-gcc", "riscv64-unknown-elf-gcc"],    # the first on PATH; C and assembly
            "ar": ["ar"],               # candidates likewise; without it: cc with -gcc replaced by -ar, or zig ar
            "cflags": ["-march=rv32imc_zicsr"], "asflags": ["-march=rv32imc_zicsr"], # these follow the board's own
            "linkflags": ["-march=rv32imc"], "libs": ["-lgcc"],
            "install": "apt-get install gcc-riscv64-unknown-elf",            # said when no cc is found
        },
        "zig": {
            "cc": ["zig"],              # means: PYTHON -m ziglang cc, of the ziglang wheel
            "link": "ld.lld -m elf32lriscv",    # a linker instead of cc; with zig: PYTHON -m ziglang ld.lld ...
            # builds zig's compiler-rt with these flags and links it after the objects
            "compiler_rt": ["-target", "riscv32-freestanding-none", "-mcpu=generic_rv32+m+c"],
            "install": "pip install ziglang",
        },
    }
    options = {                         # the board's own SCons options: scons board=xheep ram=128k
        "ram": {"default": "64k", "values": {"64k": 65536, "128k": 131072}, "help": "size of RAM",
                "defsym": "RAM_SIZE",   # the value as a linker symbol (before -T), and/or
                "define": "RAM_SIZE"},  # as a macro for C and assembly
    }

Linker options are written as the program that links takes them: -Wl, for cc, bare for `link`. --defsym, -T and -o come
from the build. It compiles the network, main.c, baked.c and `sources`, and for a board with -ffreestanding in `cflags`
firmware/mem.c; it links them in the order sources, mem, main, baked, the network's library, libs, compiler-rt. `scons
stream` has stream, stream_main and streamed in place of main and baked. `firmware/` and the board's directory are on the
include path.
"""

from __future__ import annotations

import dataclasses
import difflib
import importlib.util
import os
import re
import shutil
import types
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from .errors import Unreadable
from .options import FORMS, KERNELS

FILE = "board.py"
ZIG = "zig"
RUNS = ("native", "emulator")


@dataclasses.dataclass(frozen=True)
class Toolchain:
    """One way to compile for a board: see the module's text for the fields."""

    name: str
    cc: tuple[str, ...]
    install: str
    ar: tuple[str, ...] = ()
    cflags: tuple[str, ...] = ()
    asflags: tuple[str, ...] = ()
    linkflags: tuple[str, ...] = ()
    libs: tuple[str, ...] = ()
    link: str | None = None
    compiler_rt: tuple[str, ...] = ()

    def compiler(self, path: str | None = None) -> str | None:
        """The first of `cc` that is there (on `path`, by default PATH); None when the toolchain is missing."""
        return next((cc for cc in self.cc if _is_there(cc, path)), None)

    def archiver(self, compiler: str, path: str | None = None) -> str:
        """The ar that goes with `compiler`; "zig" means zig's."""
        if compiler == ZIG:
            return ZIG
        beside = re.sub(r"(gcc|clang)(?=(-[\d.]+)?$)", "ar", compiler)
        return next((ar for ar in self.ar or (beside,) if _is_there(ar, path)), "ar")


@dataclasses.dataclass(frozen=True)
class BoardOption:
    """A board's own SCons option: one of `values`, given to the linker as `defsym`, to the compiler as `define`."""

    name: str
    default: str
    values: Mapping[str, int]
    help: str
    defsym: str | None = None
    define: str | None = None


@dataclasses.dataclass(frozen=True)
class Board:
    """A board directory that passed every check; `name` is the directory's own."""

    name: str
    path: Path
    description: str
    toolchains: Mapping[str, Toolchain]
    sources: tuple[str, ...] = ()
    linker_script: str | None = None
    cflags: tuple[str, ...] = ()
    firmware_cflags: tuple[str, ...] = ()
    asflags: tuple[str, ...] = ()
    linkflags: tuple[str, ...] = ()
    libs: tuple[str, ...] = ()
    options: Mapping[str, BoardOption] = dataclasses.field(default_factory=dict)
    kernel: str = "event"
    form: str = "packed"
    uart_baud: int | None = None
    run: str = "native"
    emulator: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def freestanding(self) -> bool:
        """Without a C library: the build adds firmware/mem.c."""
        return "-ffreestanding" in self.cflags

    def toolchain(self, wanted: str = "auto", path: str | None = None) -> Toolchain:
        """The toolchain `wanted`, or for "auto" the first that is there. Raises `Unreadable` when there is none."""
        if wanted != "auto" and wanted not in self.toolchains:
            raise Unreadable(
                "", "", f"board {self.name} has no toolchain {wanted}", "use " + either("auto", *self.toolchains)
            )
        choice = self.toolchains.values() if wanted == "auto" else [self.toolchains[wanted]]
        for toolchain in choice:
            if toolchain.compiler(path):
                return toolchain
        missing = either(*(cc for toolchain in choice for cc in toolchain.cc))
        raise Unreadable("", "", f"board {self.name} needs {missing}", either(*(t.install for t in choice)))


def find(directories: Iterable[Path]) -> dict[str, Path]:
    """Board directories by name, sorted: each of `directories` is one itself, or holds some.

    Raises `Unreadable` for a directory without boards, and when two boards have the same name.
    """
    found: dict[str, Path] = {}
    for directory in directories:
        here = (
            [directory] if (directory / FILE).is_file() else sorted(file.parent for file in directory.glob(f"*/{FILE}"))
        )
        if not here:
            raise Unreadable(
                directory, "", f"no {FILE} in this directory or in one below it", "name a board's directory"
            )
        for path in here:
            name = path.resolve().name
            if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*", name):
                raise Unreadable(
                    path, "", f"a directory called '{name}' cannot name a board", "use letters, digits, '_', '.', '-'"
                )
            if name in found and found[name].resolve() != path.resolve():
                raise Unreadable(
                    path, "", f"{found[name]} is also a board called '{name}'", "rename one of the directories"
                )
            found[name] = path
    return dict(sorted(found.items()))


def load(path: str | os.PathLike[str]) -> Board:
    """The board in the directory `path`. Raises `Unreadable`: file, key, what is wrong, what to write instead."""
    file = Path(path) / FILE
    try:
        source = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise Unreadable(file, "", f"cannot be read: {why}", "a board is a directory with a board.py") from error
    scope: dict[str, Any] = {}
    try:
        exec(compile(source, str(file), "exec"), scope)
    except Exception as error:
        line = error.lineno if isinstance(error, SyntaxError) else _line_of(error, str(file))
        what = error.msg if isinstance(error, SyntaxError) else f"{type(error).__name__}: {error}"
        raise Unreadable(file, f"line {line}", what, "board.py holds plain data") from error
    given = {
        k: v
        for k, v in scope.items()
        if not k.startswith("_") and not isinstance(v, types.ModuleType | types.FunctionType)
    }
    return _Checker(file).board(given)


def either(*words: str) -> str:
    """ "a", "a or b", "a, b or c"; each word once."""
    *rest, last = dict.fromkeys(words)
    return f"{', '.join(rest)} or {last}" if rest else last


def nearest(word: str, known: Iterable[str]) -> str:
    """What to say to somebody who typed `word`: the nearest of `known`, else all of them."""
    names = sorted(known)
    close = difflib.get_close_matches(word, names, 1)
    return f"did you mean {close[0]}?" if close else "use " + either(*names)


class _Checker:
    """Turns the names of one board.py into dataclasses; every refusal names the file and the key."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def refuse(self, key: str, problem: str, remedy: str) -> Unreadable:
        return Unreadable(self.file, key, problem, remedy)

    def board(self, given: dict[str, Any]) -> Board:
        fields = {f.name for f in dataclasses.fields(Board)} - {"name", "path"}
        self.keys("", given, fields, {"description", "toolchains"})
        values = {key: self.value(key, value) for key, value in given.items() if key not in ("toolchains", "options")}
        toolchains = {name: self.toolchain(name, data) for name, data in self.table("toolchains", given["toolchains"])}
        if not toolchains:
            raise self.refuse("toolchains", "is empty", "describe at least one")
        options = {name: self.option(name, data) for name, data in self.table("options", given.get("options", {}))}
        for key, allowed in (("kernel", KERNELS), ("form", FORMS), ("run", RUNS)):
            if values.get(key, allowed[0]) not in allowed:
                raise self.refuse(key, f"'{values[key]}' is unknown", "use " + either(*allowed))
        for key in ("sources", "linker_script"):
            for name in [values[key]] if isinstance(values.get(key), str) else values.get(key) or ():
                if not (self.file.parent / name).is_file():
                    raise self.refuse(
                        key, f"{name} is not in the board's directory", "add it, or take it out of the list"
                    )
        for name in values.get("sources", ()):
            if not name.endswith((".c", ".S")):
                raise self.refuse(
                    "sources", f"{name} is neither .c nor .S", "write C, or assembly for the preprocessor"
                )
            if sum(Path(name).stem == Path(other).stem for other in values["sources"]) > 1:
                raise self.refuse("sources", f"two files would compile to {Path(name).stem}.o", "rename one")
        path = self.file.parent
        return Board(name=path.resolve().name, path=path, toolchains=toolchains, options=options, **values)

    def toolchain(self, name: str, data: Any) -> Toolchain:
        key = f"toolchains['{name}']"
        given = self.dictionary(key, data)
        self.keys(key, given, {f.name for f in dataclasses.fields(Toolchain)} - {"name"}, {"cc", "install"})
        if name == "auto":
            raise self.refuse(key, "auto is the name of the choice between the others", "call it something else")
        values = {k: self.value(k, v, f"{key}['{k}']") for k, v in given.items()}
        if not values["cc"]:
            raise self.refuse(f"{key}['cc']", "is empty", "list the compiler's names")
        if "compiler_rt" in values and values["cc"] != (ZIG,):
            raise self.refuse(f"{key}['compiler_rt']", "needs cc = ['zig']", "name a library in libs instead")
        return Toolchain(name=name, **values)

    def option(self, name: str, data: Any) -> BoardOption:
        key = f"options['{name}']"
        given = self.dictionary(key, data)
        known = {f.name for f in dataclasses.fields(BoardOption)} - {"name"}
        self.keys(key, given, known, {"default", "values", "help"})
        choices = self.dictionary(f"{key}['values']", given["values"])
        for word, number in choices.items():
            if not isinstance(number, int) or isinstance(number, bool):
                raise self.refuse(
                    f"{key}['values']", f"'{word}' is {number!r}, not a whole number", "write the number for the linker"
                )
        if given["default"] not in choices:
            raise self.refuse(
                f"{key}['default']", f"{given['default']!r} is not one of the values", "use " + either(*choices)
            )
        values = {k: self.text(f"{key}['{k}']", v) for k, v in given.items() if k != "values"}
        return BoardOption(name=name, values=types.MappingProxyType(choices), **values)

    def keys(self, place: str, given: dict[str, Any], known: set[str], needed: set[str]) -> None:
        for key in given:
            if key not in known:
                raise self.refuse(place, f"unknown key '{key}'", nearest(key, known))
        for key in sorted(needed - given.keys()):
            raise self.refuse(place, f"'{key}' is missing", "set it as the other boards do")

    def value(self, name: str, value: Any, key: str | None = None) -> Any:
        key = key or name
        if name in ("description", "install", "kernel", "form", "run"):
            return self.text(key, value)
        if name in ("linker_script", "link"):
            return None if value is None else self.text(key, value)
        if name == "uart_baud":
            if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value <= 0):
                raise self.refuse(key, f"is {value!r}, not a positive whole number", "write it in bits per second")
            return value
        if name == "emulator":
            return types.MappingProxyType(self.dictionary(key, value))
        if not isinstance(value, list | tuple) or not all(isinstance(word, str) for word in value):
            raise self.refuse(key, f"is {value!r}, not a list of strings", 'write ["one", "two"]')
        return tuple(value)

    def text(self, key: str, value: Any) -> str:
        if not isinstance(value, str) or not value or "\n" in value:
            raise self.refuse(key, f"is {value!r}, not one line of text", "write a string")
        return value

    def dictionary(self, key: str, value: Any) -> dict[str, Any]:
        if not isinstance(value, dict) or not all(isinstance(name, str) for name in value):
            raise self.refuse(key, f"is {value!r}, not a dictionary with names", 'write {"name": ...}')
        return value

    def table(self, key: str, value: Any) -> Iterable[tuple[str, Any]]:
        for name, data in self.dictionary(key, value).items():
            if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
                raise self.refuse(
                    key, f"'{name}' cannot be typed as an option", "use lower-case letters, digits and underscores"
                )
            yield name, data


def _is_there(program: str, path: str | None) -> bool:
    return (
        importlib.util.find_spec("ziglang") is not None
        if program == ZIG
        else shutil.which(program, path=path) is not None
    )


def _line_of(error: BaseException, file: str) -> int:
    lines = []
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == file:
            lines.append(trace.tb_lineno)
        trace = trace.tb_next
    return lines[-1] if lines else 0
