# SPDX-License-Identifier: Apache-2.0
"""Budgets: an image that is too large is named, with by how much and what takes most."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from support import ROOT

from snn_builder import elf
from snn_builder.__main__ import main
from snn_builder.api import generate
from snn_builder.harness import bake
from snn_builder.options import Options

MODEL = ROOT / "models" / "digits"
ZIG = [
    sys.executable,
    "-m",
    "ziglang",
    "cc",
    "-target",
    "riscv32-freestanding-none",
    "-mcpu=generic_rv32+m+c",
    "-O1",
    "-g",
]

BOARD = """
#include "board.h"
int counter = 3;
static char uart[1000];
void board_init(void) { uart[counter] = 1; }
void board_putc(char c) { *(volatile char *)uart = c; }
int board_getc(void) { return uart[7]; }
uint32_t board_cycles(void) { return 0; }
_Noreturn void board_exit(int code) { for (;;) board_putc((char)code); }
void _start(void);
int main(void);
void _start(void) { main(); }
"""


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The shipped network and harness for RV32, with functions and data in sections of their own, of which the linker drops some."""
    folder = tmp_path_factory.mktemp("image")
    options = Options(quantize=True, name="digits", kernel="dense")
    generate(MODEL / "digits.nir", folder, options)
    bake(MODEL / "digits.nir", folder, options, MODEL / "input.npy")
    (folder / "board.c").write_text(BOARD)
    sources = [
        "digits.c",
        "digits_weights.c",
        "baked.c",
        "baked_check.s",
        "board.c",
        ROOT / "firmware" / "main.c",
        ROOT / "firmware" / "mem.c",
    ]
    flags = [
        "-nostdlib",
        "-ffunction-sections",
        "-fdata-sections",
        "-Wl,--gc-sections",
        f"-I{ROOT / 'firmware'}",
        "-I.",
    ]
    subprocess.run([*ZIG, *flags, *sources, "-o", "firmware.elf"], cwd=folder, check=True)
    return folder / "firmware.elf"


def test_symbols_of_an_image(image: Path) -> None:
    """Known sizes are found, the largest first, and together they are no more than the sections."""
    found, sizes = elf.symbols(image), elf.sections(image)
    assert found[0] == ("baked_input", 100 * 12 * 8, "rodata") and found[1] == ("digits_fc1_w", 48 * 64, "rodata")
    assert {
        ("uart", 1000, "bss"),
        ("counter", 4, "data"),
        ("state", 232, "bss"),
        ("baked_check", 400, "rodata"),
    } <= set(found)
    for kind in ("text", "rodata", "data", "bss"):
        assert sum(size for _, size, held in found if held == kind) <= getattr(sizes, kind)


def test_within_budget(image: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sizes = elf.footprint(image)
    words = ["size", str(image), "--budget-flash", str(sizes.flash), "--budget-ram", str(sizes.ram)]
    assert main(words) == 0 and capsys.readouterr().err == ""
    assert main(["size", str(image), "--budget-flash", "64k", "--budget-ram", "1M"]) == 0


def test_over_budget(image: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sizes = elf.footprint(image)
    assert main(["size", str(image), "--budget-flash", str(sizes.flash - 1), "--budget-ram", "1k"]) == 1
    printed = capsys.readouterr()
    assert str(image) in printed.out  # the table all the same
    flash, ram = printed.err.splitlines()
    assert flash.startswith(
        f"error: {image}: flash: {sizes.flash:,d} bytes, 1 more than the budget of {sizes.flash - 1:,d}: harness "
    )
    assert "weights 3,784" in flash and "(most of all baked_input 9,600, digits_fc1_w 3,072, " in flash
    assert ram.startswith(
        f"error: {image}: ram: {sizes.ram:,d} bytes, {sizes.ram - 1024:,d} more than the budget of 1,024: other 1,"
    )
    assert ", states 232" in ram and "(most of all uart 1,000, state 232, sums 80); " in ram
    assert ram.endswith("; make what is largest smaller, or raise the budget")


def test_a_helper_comes_on_top_of_what_calls_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In zig's section sizes above 127 take two bytes; what is not the network's does not count."""
    text = """
    __attribute__((noinline)) static int helper(int x) { volatile char a[400]; a[x] = 1; return a[0]; }
    void net_init(int x) { volatile char a[100]; a[x] = (char)helper(3); }
    void net_step(int x) { volatile char a[1000]; a[x] = (char)helper(4); }
    void _start(int x) { volatile char a[5000]; a[x] = 1; net_init(x); net_step(x); }
    """
    (tmp_path / "net.c").write_text(text)
    (tmp_path / "net.json").write_text('{"generator": "snn-builder 0", "name": "net"}')
    command = [*ZIG, "-fstack-size-section", "-nostdlib", "net.c", "-o", "net.elf"]
    subprocess.run(command, cwd=tmp_path, check=True)
    found = elf.footprint(tmp_path / "net.elf")
    assert list(found.frames) == ["net_step", "helper", "net_init"]
    assert all(size <= found.frames[name] < size + 64 for name, size in (("net_step", 1000), ("helper", 400)))
    assert found.stack == found.frames["net_step"] + found.frames["helper"]
    assert main(["size", str(tmp_path / "net.elf"), "--budget-stack", "1k"]) == 1
    assert f"net.elf: stack: {found.stack:,d} bytes, {found.stack - 1024} more than the" in capsys.readouterr().err


def test_every_image_is_looked_at(image: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small = tmp_path / "small.elf"
    subprocess.run(
        [*ZIG, "-nostdlib", "-x", "c", "-", "-o", small], input="void _start(void) {}", text=True, check=True
    )
    assert main(["size", str(small), str(image), str(image), "--budget-ram", "100"]) == 1
    assert capsys.readouterr().err.count("error: ") == 2
    stripped, text = tmp_path / "stripped.elf", "static volatile char buffer[500]; void _start(void) { buffer[1] = 2; }"
    subprocess.run([*ZIG, "-nostdlib", "-s", "-x", "c", "-", "-o", stripped], input=text, text=True, check=True)
    assert main(["size", str(stripped), "--budget-ram", "100"]) == 1
    assert "budget of 100: other 500; make" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["", "64K", "-1", "1.5k", "64 k"])
def test_no_budget(image: Path, capsys: pytest.CaptureFixture[str], text: str) -> None:
    assert main(["size", str(image), f"--budget-ram={text}"]) == 2
    assert f"argument --budget-ram: '{text}' is no number of bytes: 65536, 64k, 1M" in capsys.readouterr().err
