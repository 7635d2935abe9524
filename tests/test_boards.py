# SPDX-License-Identifier: Apache-2.0
"""board.py: what is read, and the line for each thing that is wrong."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import pytest

from snn_builder.boards import Board, find, load
from snn_builder.errors import Unreadable

ROOT = Path(__file__).resolve().parent.parent
GOOD: dict[str, Any] = {
    "description": "a board",
    "toolchains": {
        "gcc": {"cc": ["none-such-gcc", "my-gcc"], "cflags": ["-march=x"], "install": "apt-get install my-gcc"},
        "zig": {"cc": ["no-zig-either"], "install": "pip install zig"},
    },
}


def board(folder: Path, name: str = "mine", **changed: Any) -> Path:
    """A board directory with GOOD and what is changed in it; None takes a key out."""
    path = folder / name
    path.mkdir(parents=True)
    data = {key: value for key, value in {**GOOD, **changed}.items() if value is not None}
    (path / "board.py").write_text("".join(f"{key} = {value!r}\n" for key, value in data.items()))
    return path


def refusal(path: Path) -> str:
    with pytest.raises(Unreadable) as caught:
        load(path)
    assert caught.value.status == 2
    message = str(caught.value)
    assert message.startswith(f"{path}/board.py: ") and "\n" not in message
    return message.removeprefix(f"{path}/board.py: ")


@pytest.mark.parametrize("name", sorted(path.parent.name for path in (ROOT / "boards").glob("*/board.py")))
def test_the_boards_of_this_checkout(name: str) -> None:
    found = load(ROOT / "boards" / name)
    assert isinstance(found, Board) and found.name == name
    assert "-ffp-contract=off" in found.cflags, "the numeric contract needs it"
    assert "-DSNN_FP_CONTRACT_OFF" in found.cflags


def test_a_full_board(tmp_path: Path) -> None:
    ram = {"default": "small", "values": {"small": 1, "large": 2}, "help": "RAM", "defsym": "RAM", "define": "RAM_SIZE"}
    path = board(
        tmp_path,
        sources=["uart.c", "start.S"],
        linker_script="l.ld",
        uart_baud=9600,
        run="emulator",
        options={"ram": ram},
    )
    for name in ("uart.c", "start.S", "l.ld"):
        (path / name).touch()
    found = load(path)
    assert (found.sources, found.linker_script, found.uart_baud) == (("uart.c", "start.S"), "l.ld", 9600)
    assert (found.kernel, found.run, found.path) == ("event", "emulator", path)
    assert found.options["ram"].values["large"] == 2 and found.options["ram"].defsym == "RAM"
    assert found.toolchains["gcc"].cflags == ("-march=x",)


def test_names_of_its_own_and_modules_are_left_alone(tmp_path: Path) -> None:
    path = board(tmp_path)
    with (path / "board.py").open("a") as stream:
        stream.write("import os\n_flags = ['-O2']\ncflags = _flags + ['-g0']\ndef helper(): pass\n")
    assert load(path).cflags == ("-O2", "-g0")


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"cflag": ["-O2"]}, "unknown key 'cflag'; did you mean cflags?"),
        ({"description": None}, "'description' is missing; set it as the other boards do"),
        ({"toolchains": None}, "'toolchains' is missing; set it as the other boards do"),
        ({"description": 3}, "description: is 3, not one line of text; write a string"),
        ({"description": "a\nb"}, "description: is 'a\\nb', not one line of text; write a string"),
        ({"cflags": "-O2"}, "cflags: is '-O2', not a list of strings; write [\"one\", \"two\"]"),
        ({"libs": ["-lgcc", 3]}, "libs: is ['-lgcc', 3], not a list of strings; write [\"one\", \"two\"]"),
        ({"kernel": "sparse"}, "kernel: 'sparse' is unknown; use dense or event"),
        ({"run": "qemu"}, "run: 'qemu' is unknown; use native or emulator"),
        ({"uart_baud": 0}, "uart_baud: is 0, not a positive whole number; write it in bits per second"),
        ({"uart_baud": True}, "uart_baud: is True, not a positive whole number; write it in bits per second"),
        ({"sources": ["uart.c"]}, "sources: uart.c is not in the board's directory; add it, or take it out of the list"),
        ({"linker_script": "x.ld"}, "linker_script: x.ld is not in the board's directory; add it, or take it out of the list"),
        ({"sources": ["board.py"]}, "sources: board.py is neither .c nor .S; write C, or assembly for the preprocessor"),
        ({"emulator": []}, "emulator: is [], not a dictionary with names; write {\"name\": ...}"),
        ({"toolchains": {}}, "toolchains: is empty; describe at least one"),
        ({"toolchains": {"GCC": {}}}, "toolchains: 'GCC' cannot be typed as an option; use lower-case letters, digits and underscores"),
        ({"toolchains": {"gcc": 1}}, "toolchains['gcc']: is 1, not a dictionary with names; write {\"name\": ...}"),
        ({"toolchains": {"gcc": {"cc": ["gcc"]}}}, "toolchains['gcc']: 'install' is missing; set it as the other boards do"),
        ({"toolchains": {"gcc": {"cc": ["gcc"], "instal": "x"}}}, "toolchains['gcc']: unknown key 'instal'; did you mean install?"),
        ({"toolchains": {"gcc": {"cc": "gcc", "install": "x"}}}, "toolchains['gcc']['cc']: is 'gcc', not a list of strings; write [\"one\", \"two\"]"),
        ({"toolchains": {"gcc": {"cc": [], "install": "x"}}}, "toolchains['gcc']['cc']: is empty; list the compiler's names"),
        ({"toolchains": {"auto": {"cc": ["gcc"], "install": "x"}}}, "toolchains['auto']: auto is the name of the choice between the others; call it something else"),
        ({"toolchains": {"gcc": {"cc": ["gcc"], "install": "x", "compiler_rt": ["-target", "y"]}}}, "toolchains['gcc']['compiler_rt']: needs cc = ['zig']; name a library in libs instead"),
        ({"options": {"ram": {"default": "2", "values": {"1": 1}, "help": "RAM"}}}, "options['ram']['default']: '2' is not one of the values; use 1"),
        ({"options": {"ram": {"default": "1", "values": {"1": "64k"}, "help": "RAM"}}}, "options['ram']['values']: '1' is '64k', not a whole number; write the number for the linker"),
        ({"options": {"ram": {"default": "1", "values": {"1": 1}}}}, "options['ram']: 'help' is missing; set it as the other boards do"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_board(tmp_path: Path, changed: dict[str, Any], message: str) -> None:
    assert refusal(board(tmp_path, **changed)) == message


def test_two_sources_of_one_object(tmp_path: Path) -> None:
    path = board(tmp_path, sources=["uart.c", "uart.S"])
    (path / "uart.c").touch()
    (path / "uart.S").touch()
    assert refusal(path) == "sources: two files would compile to uart.o; rename one"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cflags = [\n", "line 1: '[' was never closed; board.py holds plain data"),
        ("a = 1\nb = c\n", "line 2: NameError: name 'c' is not defined; board.py holds plain data"),
    ],
)
def test_a_board_that_is_no_python(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "board.py").write_text(text)
    assert refusal(tmp_path) == message


def test_a_directory_without_a_board(tmp_path: Path) -> None:
    assert refusal(tmp_path) == "cannot be read: No such file or directory; a board is a directory with a board.py"


def test_boards_are_found_by_directory(tmp_path: Path) -> None:
    for name in ("b", "a"):
        board(tmp_path / "some", name)
    board(tmp_path, "one")
    assert list(find([tmp_path / "some", tmp_path / "one"])) == ["a", "b", "one"]


def test_boards_that_cannot_be_told_apart(tmp_path: Path) -> None:
    first, second = board(tmp_path / "x", "same"), board(tmp_path / "y", "same")
    with pytest.raises(Unreadable) as caught:
        find([tmp_path / "x", tmp_path / "y"])
    assert str(caught.value) == f"{second}: {first} is also a board called 'same'; rename one of the directories"
    assert find([tmp_path / "x", first]) == {"same": first}


def test_directories_that_hold_no_board(tmp_path: Path) -> None:
    with pytest.raises(Unreadable) as caught:
        find([tmp_path])
    assert (
        str(caught.value) == f"{tmp_path}: no board.py in this directory or in one below it; name a board's directory"
    )
    odd = board(tmp_path, "my board")
    with pytest.raises(Unreadable) as caught:
        find([tmp_path])
    assert str(caught.value) == (
        f"{odd}: a directory called 'my board' cannot name a board; use letters, digits, '_', '.', '-'"
    )


def executable(folder: Path, *names: str) -> str:
    folder.mkdir()
    for name in names:
        (folder / name).touch()
        (folder / name).chmod((folder / name).stat().st_mode | stat.S_IXUSR)
    return str(folder)


def test_the_first_toolchain_that_is_there(tmp_path: Path) -> None:
    found = load(board(tmp_path))
    path = executable(tmp_path / "bin", "my-gcc", "my-ar")
    chosen = found.toolchain("auto", path)
    assert (chosen.name, chosen.compiler(path)) == ("gcc", "my-gcc")
    assert chosen.archiver("my-gcc", path) == "my-ar"
    both = executable(tmp_path / "both", "no-zig-either", "none-such-gcc")
    assert found.toolchain("auto", both).compiler(both) == "none-such-gcc"
    assert found.toolchain("zig", both).name == "zig"


@pytest.mark.parametrize(
    ("compiler", "there", "archiver"),
    [
        ("riscv64-unknown-elf-gcc", "riscv64-unknown-elf-ar", "riscv64-unknown-elf-ar"),
        ("gcc-12", "ar-12", "ar-12"),
        ("gcc", "other", "ar"),
        ("zig", "ar", "zig"),
    ],
)
def test_the_archiver_belongs_to_the_compiler(tmp_path: Path, compiler: str, there: str, archiver: str) -> None:
    path = executable(tmp_path / "bin", there)
    assert load(board(tmp_path)).toolchains["gcc"].archiver(compiler, path) == archiver


def test_a_missing_toolchain_says_what_to_install(tmp_path: Path) -> None:
    found = load(board(tmp_path))
    for wanted, message in (
        ("auto", "board mine needs none-such-gcc, my-gcc or no-zig-either; apt-get install my-gcc or pip install zig"),
        ("zig", "board mine needs no-zig-either; pip install zig"),
        ("clang", "board mine has no toolchain clang; use auto, gcc or zig"),
    ):
        with pytest.raises(Unreadable) as caught:
            found.toolchain(wanted, str(tmp_path))
        assert str(caught.value) == message
