# SPDX-License-Identifier: Apache-2.0
"""firmware/main.c with a network and a board of our own: what it prints, to the character, and how it ends."""

from __future__ import annotations

import shutil
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parent.parent
WARNINGS = ["-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wshadow", "-Wmissing-prototypes", "-Werror"]
ZIG = [sys.executable, "-m", "ziglang", "cc", "-g0"]
RV32 = [*ZIG, "-target", "riscv32-freestanding-none", "-mcpu=generic_rv32+m+c", "-ffreestanding"]

BOARD = """
#include <stdio.h>
#include <stdlib.h>
#include "board.h"
void board_init(void) { fputs("", stdout); }
void board_putc(char c) { putchar(c); }
int board_getc(void) { return -1; }
uint32_t board_cycles(void) { static uint32_t now = 0xfffffff0u; uint32_t seen = now; now += %du; return seen; }
_Noreturn void board_exit(int code) { exit(code); }
"""

HEADER = """
#include <stddef.h>
#include <stdint.h>
#define BAKED_INTERFACE 1
#define BAKED_SAMPLES {samples}
#define BAKED_STEPS {steps}
#define BAKED_INPUT_SIZE {size}
#define BAKED_INPUT_BITS {input_bits}
#define BAKED_OUTPUT_SIZE {size}
#define BAKED_OUTPUT_BITS {output_bits}
typedef struct {{ int32_t count; }} baked_state;
typedef {input_type} baked_input_t;
typedef {output_type} baked_output_t;
extern const uint8_t baked_input[];
extern const uint32_t baked_check[BAKED_SAMPLES];
void baked_init(baked_state *state);
void baked_step(baked_state *state, const baked_input_t *in, baked_output_t *out);
"""

# Every output is its input; the last one counts the steps since init when `counts`.
SOURCE = """
#include "baked.h"
void baked_init(baked_state *state) {{ state->count = 0; }}
void baked_step(baked_state *state, const baked_input_t *in, baked_output_t *out)
{{
    for (size_t i = 0; i < BAKED_OUTPUT_SIZE; i++) out[i] = (baked_output_t)in[i];
    state->count++;
    if ({counts}) out[BAKED_OUTPUT_SIZE - 1] = (baked_output_t)state->count;
}}
const uint8_t baked_input[] = {{ {input} }};
const uint32_t baked_check[BAKED_SAMPLES] = {{ {checks} }};
"""

C_TYPES = {"i1": "int8_t", "i4": "int32_t", "f4": "float"}


def fnv(values: np.ndarray, bits: int) -> int:
    check = 2166136261
    for byte in values.astype(np.uint8).tobytes() if bits == 1 else values.tobytes():
        check = ((check ^ byte) * 16777619) % 2**32
    return check


def hexadecimal(step: np.ndarray, bits: int) -> str:
    if bits == 1:
        return np.packbits(step.astype(np.uint8), bitorder="little").tobytes().hex()
    return "".join(f"{pattern:0{bits // 4}x}" for pattern in step.view(f"<u{bits // 8}").tolist())


class Harness:
    """main.c around the echo network for `inputs` (samples, steps, size); `outputs` is what it has to answer."""

    def __init__(
        self, inputs: np.ndarray, input_bits: int, outputs: np.ndarray, output_bits: int, counts: bool = False
    ):
        samples, steps, size = inputs.shape
        self.outputs, self.bits = outputs, output_bits
        self.checks = [fnv(sample, output_bits) for sample in outputs]
        packed = inputs.astype(np.int8) if input_bits == 8 else inputs
        if input_bits == 1:
            packed = np.packbits(inputs.astype(np.uint8), axis=2, bitorder="little")
        self.input = ", ".join(map(str, packed.tobytes()))
        self.counts = int(counts)
        self.header = HEADER.format(
            samples=samples, steps=steps, size=size, input_bits=input_bits, output_bits=output_bits,
            input_type=C_TYPES[inputs.dtype.str[1:]], output_type=C_TYPES[outputs.dtype.str[1:]],
        )  # fmt: skip

    def write(self, folder: Path, cycles: int = 7) -> None:
        checks = ", ".join(f"{check}u" for check in self.checks)
        (folder / "baked.h").write_text(self.header)
        (folder / "baked.c").write_text(SOURCE.format(counts=self.counts, input=self.input, checks=checks))
        (folder / "board.c").write_text(BOARD % cycles)

    def run(self, folder: Path, cycles: int = 7) -> subprocess.CompletedProcess[str]:
        self.write(folder, cycles)
        compiler = ["gcc"] if shutil.which("gcc") else ZIG
        sources = [ROOT / "firmware" / "main.c", folder / "baked.c", folder / "board.c"]
        include = ["-I", folder, "-I", ROOT / "firmware"]
        sanitizer = ["-fsanitize=undefined,address", "-fno-sanitize-recover"] if compiler == ["gcc"] else []
        flags = ["-O1", "-Wno-missing-prototypes", *sanitizer]
        subprocess.run([*compiler, *WARNINGS, *flags, *include, *sources, "-o", folder / "a.out"], check=True)
        return subprocess.run([folder / "a.out"], capture_output=True, text=True, check=False)

    def printed(self, classes: list[int], cycles: int, errors: int = 0) -> str:
        lines = [
            f"{index} {''.join(hexadecimal(step, self.bits) for step in sample)} {classes[index]}\n"
            for index, sample in enumerate(self.outputs)
        ]
        steps = self.outputs.shape[0] * self.outputs.shape[1]
        return "".join(lines) + f"SNN {'fail' if errors else 'ok'} errors={errors} steps={steps} cycles={cycles}\n"


def spikes(*shape: int) -> np.ndarray:
    return np.random.default_rng(1).integers(0, 2, shape).astype(np.int8)


def test_spikes_are_packed_per_step(tmp_path: Path) -> None:
    data = spikes(3, 4, 11)
    classes = [int(sample.sum(axis=0).argmax()) for sample in data]
    harness = Harness(data, 1, data, 1)
    result = harness.run(tmp_path)
    assert (result.stdout, result.returncode) == (harness.printed(classes, 12 * 7), 0)


@pytest.mark.parametrize("size", [1, 8, 9])
def test_widths_around_a_byte(tmp_path: Path, size: int) -> None:
    data = spikes(2, 2, size)
    harness = Harness(data, 1, data, 1)
    assert harness.run(tmp_path).stdout == harness.printed([int(s.sum(axis=0).argmax()) for s in data], 28)


def test_one_exact_line(tmp_path: Path) -> None:
    """Spelled out, so that the format does not hang on this file's own arithmetic."""
    data = np.array([[[1, 0, 0, 0, 0, 0, 0, 0, 1], [0, 1, 0, 0, 0, 0, 0, 0, 1]]], np.int8)
    result = Harness(data, 1, data, 1).run(tmp_path)
    assert result.stdout == "0 01010201 8\nSNN ok errors=0 steps=2 cycles=14\n"


def test_bytes_with_signs(tmp_path: Path) -> None:
    data = np.array([[[-128, 127, -1]], [[0, 5, 6]]], np.int8)
    result = Harness(data, 8, data, 8).run(tmp_path)
    assert result.stdout == "0 807fff 1\n1 000506 2\nSNN ok errors=0 steps=2 cycles=14\n"


def test_voltages_are_eight_digits_and_sums_do_not_overflow(tmp_path: Path) -> None:
    data = np.array([[[0, 127]] * 3], np.int8)
    harness = Harness(data, 8, np.array([[[0, 1], [0, 2], [0, 3]]], np.int32), 32, counts=True)
    assert harness.run(tmp_path).stdout == (
        "0 000000000000000100000000000000020000000000000003 1\nSNN ok errors=0 steps=3 cycles=21\n"
    )
    (tmp_path / "wide").mkdir()
    pattern = np.array([[[2**31 - 1, -(2**31)], [2**31 - 1, 7]]], np.int32)
    assert Harness(pattern, 32, pattern, 32).run(tmp_path / "wide").stdout == (
        "0 7fffffff800000007fffffff00000007 0\nSNN ok errors=0 steps=2 cycles=14\n"
    )


def test_every_nan_is_one_nan_and_zero_keeps_its_sign(tmp_path: Path) -> None:
    bits = np.array([[[0xFFC12345, 0x80000000, 0x3FC00000, 0x7F800000]]], np.uint32)
    answered = np.array([[[0x7FC00000, 0x80000000, 0x3FC00000, 0x7F800000]]], np.uint32)
    result = Harness(bits.view(np.float32), 32, answered.view(np.float32), 32).run(tmp_path)
    assert result.stdout == "0 7fc00000800000003fc000007f800000 0\nSNN ok errors=0 steps=1 cycles=7\n"


def test_the_first_nan_is_the_class_as_in_numpy(tmp_path: Path) -> None:
    nan = np.nan
    data = np.array([[[1, nan, nan, 2]], [[nan, 1, 2, nan]], [[-1, -2, -3, nan]]], np.float32)
    assert [int(sample.sum(axis=0).argmax()) for sample in data] == [1, 0, 3]
    assert [line.split()[2] for line in Harness(data, 32, data, 32).run(tmp_path).stdout.splitlines()[:3]] == list(
        "103"
    )


def test_float_sums_decide_in_double(tmp_path: Path) -> None:
    """In f32, 2^24 + 1 is 2^24, and the second output would win by less."""
    data = np.array([[[2.0**24, 2.0**24], [1.0, 1.0], [1.0, 1.5]]], np.float32)
    assert Harness(data, 32, data, 32).run(tmp_path).stdout.startswith("0 4b8000004b800000" + "3f800000" * 3)
    assert Harness(data, 32, data, 32).run(tmp_path).stdout.splitlines()[0].endswith("3fc00000 1")


def test_the_first_of_equal_sums_is_the_class(tmp_path: Path) -> None:
    data = np.array([[[0, 1, 1, 0]], [[0, 0, 0, 0]], [[0, 0, 0, 1]]], np.int8)
    assert [line.split()[2] for line in Harness(data, 1, data, 1).run(tmp_path).stdout.splitlines()[:3]] == [
        "1",
        "0",
        "3",
    ]


def test_the_state_starts_anew_for_every_sample(tmp_path: Path) -> None:
    outputs = np.array([[[0, 1], [0, 2]]] * 3, np.int32)
    harness = Harness(np.zeros((3, 2, 2), np.int8), 8, outputs, 32, counts=True)
    assert harness.run(tmp_path).stdout == harness.printed([1, 1, 1], 42)


def test_a_wrong_output_fails(tmp_path: Path) -> None:
    data = spikes(4, 3, 5)
    harness = Harness(data, 1, data, 1)
    harness.checks[1] ^= 1
    harness.checks[3] ^= 1 << 31
    result = harness.run(tmp_path)
    classes = [int(sample.sum(axis=0).argmax()) for sample in data]
    assert (result.stdout, result.returncode) == (harness.printed(classes, 84, errors=2), 1)


def test_a_spike_of_two_is_wrong_though_it_prints_as_one(tmp_path: Path) -> None:
    data = np.array([[[0, 0], [0, 0]]], np.int8)
    harness = Harness(data, 1, np.array([[[0, 1], [0, 1]]], np.int8), 1, counts=True)
    result = harness.run(tmp_path)
    assert (result.stdout, result.returncode) == ("0 0202 1\nSNN fail errors=1 steps=2 cycles=14\n", 1)


@pytest.mark.parametrize(
    ("each", "steps", "total"), [(4_000_000_000, 3, "12000000000"), (1_000_000_001, 2, "2000000002"), (1, 1, "1")]
)
def test_cycles_wrap_and_add_up_beyond_32_bits(tmp_path: Path, each: int, steps: int, total: str) -> None:
    data = spikes(1, steps, 3)
    assert Harness(data, 1, data, 1).run(tmp_path, cycles=each).stdout.endswith(f" cycles={total}\n")


def test_input_may_be_float_though_it_is_packed(tmp_path: Path) -> None:
    data = spikes(2, 3, 9).astype(np.float32)
    harness = Harness(data, 1, data, 32)
    classes = [int(sample.sum(axis=0).argmax()) for sample in data]
    assert harness.run(tmp_path).stdout == harness.printed(classes, 42)


def test_whole_floats_may_be_packed_as_bytes(tmp_path: Path) -> None:
    data = np.array([[[-2.0, 5.0]]], np.float32)
    assert Harness(data, 8, data, 32).run(tmp_path).stdout.startswith("0 c000000040a00000 1\n")


def test_float_input_is_little_endian_words(tmp_path: Path) -> None:
    data = np.array([[[1.5, -0.0]]], np.float32)
    assert data.tobytes() == struct.pack("<2f", 1.5, -0.0)
    assert Harness(data, 32, data, 32).run(tmp_path).stdout.startswith("0 3fc0000080000000 0\n")


def test_another_interface_is_refused(tmp_path: Path) -> None:
    data = spikes(1, 1, 1)
    harness = Harness(data, 1, data, 1)
    harness.header = harness.header.replace("BAKED_INTERFACE 1", "BAKED_INTERFACE 2")
    with pytest.raises(subprocess.CalledProcessError):
        harness.run(tmp_path)


@pytest.mark.parametrize("compiler", ["gcc", "gcc -m32", "zig", "rv32", "i386"])
@pytest.mark.parametrize("kind", ["i1 1", "i1 8", "i4 32", "f4 32"])
def test_strict_warnings_and_no_library(tmp_path: Path, compiler: str, kind: str) -> None:
    """Clean everywhere; integer networks call nothing but the board and the network, so nothing comes from libgcc."""
    dtype, bits = kind.split()
    data = np.zeros((1, 1, 3), f"<{dtype}")
    Harness(data, int(bits), data, int(bits)).write(tmp_path)
    commands = {
        "gcc": ["gcc"],
        "gcc -m32": ["gcc", "-m32", "-ffreestanding"],
        "zig": ZIG,
        "rv32": RV32,
        "i386": [*ZIG, "-target", "x86-freestanding-none", "-mcpu=pentium4", "-ffreestanding"],
    }
    if compiler.startswith("gcc") and not shutil.which("gcc"):
        pytest.skip("gcc is not installed")
    compile_ = [*commands[compiler], *WARNINGS, "-Os", "-I", tmp_path, "-I", ROOT / "firmware", "-c"]
    subprocess.run([*compile_, ROOT / "firmware" / "main.c", "-o", tmp_path / "main.o"], check=True)
    if compiler == "rv32" and dtype != "f4":
        from elftools.elf.elffile import ELFFile

        with open(tmp_path / "main.o", "rb") as stream:
            symbols = ELFFile(stream).get_section_by_name(".symtab").iter_symbols()
            undefined = {symbol.name for symbol in symbols if symbol["st_shndx"] == "SHN_UNDEF" and symbol.name}
        assert all(name.startswith(("board_", "baked_")) or name in ("memset", "memcpy") for name in undefined)
