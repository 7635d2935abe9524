# SPDX-License-Identifier: Apache-2.0
"""Images as files: .bin, .hex and .map, what does not fit, and what is refused."""

from __future__ import annotations

import argparse
import dataclasses
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from board_images import FIRMWARE, board, build, scratch

from snn_builder.errors import Refused, Unreadable
from snn_builder.image import (
    Image,
    Section,
    Segment,
    add_arguments,
    binary,
    check,
    main,
    memory_map,
    read,
    refuse_if_too_large,
    verilog_hex,
)
from snn_builder.link import link

PROGRAM = """
#include "board.h"
int main(void);
extern const uint8_t weights[SIZE];
const uint8_t weights[SIZE] = {1, 2, 3};
volatile uint32_t variable = 0xcafe;
volatile uint8_t state[5000];
int main(void) { board_init(); for (unsigned i = 0; i < 100; i++) state[i] = weights[i * 37 % SIZE]; return (int)variable; }
"""


def image(size: int = 1000, toolchain: str = "zig", ram: int = 65536) -> Image:
    folder = scratch() / f"image-{size}-{toolchain}-{ram}"
    return read(build(board("xheep"), PROGRAM, folder, toolchain, cflags=[f"-DSIZE={size}"], defsyms={"RAM_SIZE": ram}))


@pytest.mark.parametrize("toolchain", ["zig", "gcc"])
def test_bin_and_hex(toolchain: str, tmp_path: Path) -> None:
    """As GNU objcopy writes them, where it is there; and both say the same."""
    elf = image(toolchain=toolchain)
    content = binary(elf)
    assert content[0x180:0x190] == elf.segments[0].data[0x180:0x190]
    variables = elf.segments[1]
    assert variables.load != variables.address
    assert content[variables.load :] == variables.data and b"\xfe\xca\0\0" in variables.data
    text = verilog_hex(elf)
    assert re.fullmatch(r"(@[0-9A-F]{8}\n([0-9A-F]{2}( [0-9A-F]{2}){0,15}\n)+)+", text)
    assert from_hex(text) == dict(enumerate(content))
    objcopy = shutil.which("riscv64-unknown-elf-objcopy")
    if objcopy is None:
        pytest.skip("riscv64-unknown-elf-objcopy is not installed: apt-get install binutils-riscv64-unknown-elf")
    for kind, name in (("binary", "bin"), ("verilog", "hex")):
        subprocess.run([objcopy, "-O", kind, elf.path, tmp_path / name], check=True)
    assert (tmp_path / "bin").read_bytes() == content
    known = from_hex((tmp_path / "hex").read_text())
    assert from_hex(text) == {**dict.fromkeys(range(len(content)), 0), **known}


def from_hex(text: str) -> dict[int, int]:
    """As $readmemh reads it."""
    memory: dict[int, int] = {}
    at = 0
    for word in text.split():
        if word.startswith("@"):
            at = int(word[1:], 16)
        else:
            memory[at] = int(word, 16)
            at += 1
    return memory


def test_map() -> None:
    elf = image()
    lines = memory_map(elf).splitlines()
    assert "0x00000000        384  .vectors  R-X" in lines
    assert f"0x{elf.symbol('weights'):08x}      1,000      weights" in lines
    assert f"0x{elf.symbol('state'):08x}      5,000      state" in lines
    assert (
        f"0x{elf.symbol('__data_load'):08x}          4  initial values of 0x{elf.symbol('__data_start'):08x}" in lines
    )
    bottom = elf.symbol("__stack_bottom")
    assert bottom is not None and lines[-1] == f"0x{bottom:08x} {65536 - bottom:10,d}  stack"


def test_command(tmp_path: Path) -> None:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    elf = image()
    words = [word for kind in ("bin", "hex", "map") for word in (f"--{kind}", str(tmp_path / kind))]
    assert main(parser.parse_args([str(elf.path), *words])) == 0
    assert (tmp_path / "bin").read_bytes() == binary(elf)
    assert (tmp_path / "hex").read_text() == verilog_hex(elf)
    assert (tmp_path / "map").read_text() == memory_map(elf)
    assert main(parser.parse_args([str(elf.path)])) == 0


def test_what_does_not_fit() -> None:
    """The linker stops; linked for more memory, the image says what it needs."""
    sizes = board("xheep").options["ram"].values
    with pytest.raises(AssertionError, match=r"(?s)no room for the stack.*pass a larger ram=|will not fit|overflowed"):
        image(70_000)
    large = image(70_000, ram=1 << 20)
    needed = 70_000 + 5000 + 2048 + 1400  # weights, state, stack, the rest
    with pytest.raises(Refused) as error:
        refuse_if_too_large(large, "ram", "64k", sizes)
    found = re.fullmatch(
        r"needs ([0-9,]+) bytes of memory, ([0-9,]+) more than ram=64k has: "
        r"constants 70,[0-9]{3}, variables 5,004, stack 2,048, code [0-9,]+ \(most of all weights, 70,000\); pass ram=96k",
        str(error.value).removeprefix(f"{large.path}: "),
    )
    assert found is not None, str(error.value)
    said, more = (int(word.replace(",", "")) for word in found.groups())
    assert abs(said - needed) < 1000 and more == said - 65536
    refuse_if_too_large(large, "ram", "96k", sizes)
    with pytest.raises(Refused, match=r"; take a smaller network: ram=512k is the most there is$"):
        refuse_if_too_large(
            dataclasses.replace(large, sections=(), segments=(*large.segments, HUGE), symbols=()), "ram", "64k", sizes
        )


@pytest.mark.parametrize("toolchain", ["zig", "gcc"])
def test_linking_says_what_would_do(toolchain: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """One sentence for what does not fit; the linker's own words for everything else."""
    xheep = board("xheep")

    def attempt(text: str, size: int) -> Path:
        return build(
            xheep, text, tmp_path, toolchain, cflags=[f"-DSIZE={size}"], by=lambda command: link(xheep, command)
        )

    assert attempt(PROGRAM, 1000).is_file()
    assert capfd.readouterr() == ("", "")
    (tmp_path / "firmware.elf").unlink()
    with pytest.raises(Refused) as error:
        attempt(PROGRAM, 70_000)
    assert re.fullmatch(
        r".*/firmware.elf: needs [0-9,]+ bytes of memory, .* \(most of all weights, 70,000\); pass ram=96k",
        str(error.value),
    )
    assert not (tmp_path / "firmware.elf").exists() and capfd.readouterr() == ("", "")
    with pytest.raises(AssertionError):
        attempt(
            PROGRAM.replace("board_init();", "board_init(); missing();").replace(
                "int main", "void missing(void);\nint main", 1
            ),
            1000,
        )
    assert "missing" in capfd.readouterr().err


HUGE = Segment(0x100000, 0x100000, 1 << 20, b"", True, False)


def test_exactly_full() -> None:
    """The linker and the sentence agree to the byte."""
    sizes = board("xheep").options["ram"].values
    about = 1000 + 65536 - 2048 - (image(1000).symbol("__stack_bottom") or 0)
    fits = []
    for size in range(about - 12, about + 61, 12):
        try:
            refuse_if_too_large(image(size, ram=1 << 20), "ram", "64k", sizes)
        except Refused:
            fits.append(False)
            with pytest.raises(AssertionError, match="no room for the stack"):
                image(size)
        else:
            fits.append(True)
            assert image(size).symbol("__stack_top") == 65536
    assert fits[0] and not fits[-1] and fits == sorted(fits, reverse=True)


def test_layouts_that_are_refused() -> None:
    elf = image()
    code, data = elf.segments
    check(elf)
    for segments, sections, problem in (
        ((dataclasses.replace(code, writable=True), data), (), "the segment at 0x00000000 is writable and executable"),
        ((code, dataclasses.replace(data, address=code.size - 4)), (), f"segments overlap at 0x{code.size - 4:08x}"),
        ((code, dataclasses.replace(data, load=code.size - 4)), (), f"segments overlap at 0x{code.size - 4:08x}"),
        ((code, data), (Section(".lost", 0x9000, 4, True, False, True),), ".lost: lies in no segment"),
    ):
        with pytest.raises(Refused, match=re.escape(problem)):
            check(dataclasses.replace(elf, segments=segments, sections=sections))


def test_what_is_no_image(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no image")
    with pytest.raises(Unreadable, match="text: is no ELF file"):
        read(tmp_path / "text")
    (tmp_path / "cut").write_bytes(image().path.read_bytes()[:60])
    with pytest.raises(Unreadable, match="cut: is no ELF file"):
        read(tmp_path / "cut")
    image()
    obj = next(scratch().glob("*.o"))
    with pytest.raises(Unreadable, match="is no 32-bit executable for x86 or RISC-V; pass the linked image"):
        read(obj)


MEM_TEST = """
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
void *own_memcpy(void *restrict to, const void *restrict from, size_t size);
void *own_memmove(void *to, const void *from, size_t size);
void *own_memset(void *to, int value, size_t size);
int own_memcmp(const void *a, const void *b, size_t size);
static int sign(int x) { return (x > 0) - (x < 0); }
int main(void)
{
    unsigned char a[64], b[64];
    for (int round = 0; round < 200000; round++) {
        for (int i = 0; i < 64; i++) a[i] = b[i] = (unsigned char)rand();
        const int from = rand() % 32, to = rand() % 32, size = rand() % 33, apart = 32 + to;
        const int value = rand();
        const int room = apart + size <= 64 ? size : 64 - apart;
        const int one = from + size <= 32 ? room : (room < 32 - from ? room : 32 - from);
        if (memcpy(a + apart, a + from, (size_t)one) != a + apart) return 1;
        if (own_memcpy(b + apart, b + from, (size_t)one) != b + apart) return 2;
        memmove(a + to, a + from, (size_t)size);
        if (own_memmove(b + to, b + from, (size_t)size) != b + to || memcmp(a, b, 64) != 0) return 3;
        memset(a + to, value, (size_t)size);
        if (own_memset(b + to, value, (size_t)size) != b + to || memcmp(a, b, 64) != 0) return 4;
        b[from] ^= (unsigned char)(round & 1);
        if (sign(memcmp(a + 3, b + 3, (size_t)size)) != sign(own_memcmp(a + 3, b + 3, (size_t)size))) return 5;
    }
    return 0;
}
"""


def test_mem_functions(tmp_path: Path) -> None:
    """firmware/mem.c against the C library."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no host compiler: apt-get install gcc")
    (tmp_path / "test.c").write_text(MEM_TEST)
    names = [f"-Dmem{name}=own_mem{name}" for name in ("cpy", "move", "set", "cmp")]
    subprocess.run(
        [compiler, "-O2", "-ffreestanding", *names, "-c", FIRMWARE / "mem.c", "-o", tmp_path / "mem.o"], check=True
    )
    subprocess.run([compiler, "-O2", tmp_path / "test.c", tmp_path / "mem.o", "-o", tmp_path / "test"], check=True)
    assert subprocess.run([tmp_path / "test"]).returncode == 0
