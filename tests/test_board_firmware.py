# SPDX-License-Identifier: Apache-2.0
"""firmware/main.c around a network written by hand, on the bare-metal boards and natively: the same output."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from board_images import BOARDS, FIRMWARE, ROOT, TOOLCHAINS, WARNINGS, board, build, scratch
from support import chain, lif

from snn_builder import harness
from snn_builder.api import generate
from snn_builder.elf import footprint
from snn_builder.emulator import run
from snn_builder.image import read
from snn_builder.options import Options

# Twelve inputs, three neurons. `real_t` is float or int32_t; memcpy and 64-bit products are what compilers call for.
HEADER = """
#include <stdint.h>
#include <stddef.h>
#define BAKED_INTERFACE 1
#define BAKED_SAMPLES 2
#define BAKED_STEPS 5
#define BAKED_INPUT_SIZE 12
#define BAKED_OUTPUT_SIZE 3
#define BAKED_INPUT_BITS 1
#define BAKED_OUTPUT_BITS 32
typedef REAL real_t;
typedef struct { real_t v[3]; real_t last[12]; } baked_state;
typedef INPUT baked_input_t;
typedef real_t baked_output_t;
extern const uint8_t baked_input[];
extern const uint32_t baked_check[BAKED_SAMPLES];
void baked_init(baked_state *s);
void baked_step(baked_state *s, const baked_input_t *in, baked_output_t *out);
"""
SOURCE = """
#include "baked.h"
const uint8_t baked_input[] = {INPUTS};
const uint32_t baked_check[BAKED_SAMPLES] = {CHECKS};
static const int8_t w[3][12] = {{3, -5, 7, 9, -11, 2, 4, 6, -8, 1, 12, -7}, {-1, 2, -3, 4, -5, 6, -7, 8, -9, 10, -11, 12},
                                {100, -100, 50, -50, 25, -25, 12, -12, 6, -6, 3, -3}};
static const float scale[3] = {0.1f, 0.37f, -1.25f};

void baked_init(baked_state *s)
{
    *s = (baked_state){.v = {0}};
}

void baked_step(baked_state *s, const baked_input_t *in, baked_output_t *out)
{
    real_t now[12];
    for (size_t i = 0; i < 12; i++) now[i] = (real_t)in[i];
    for (size_t o = 0; o < 3; o++) {
        real_t sum = 0;
        for (size_t i = 0; i < 12; i++) sum += (real_t)w[o][i] * (now[i] - s->last[i]);
        s->v[o] = UPDATE;
        out[o] = s->v[o];
    }
    for (size_t i = 0; i < 12; i++) s->last[i] = now[i];
}
"""
FLOAT = {"REAL": "float", "INPUT": "float", "UPDATE": "0.9f * s->v[o] + scale[o] * sum"}
INTEGER = {
    "REAL": "int32_t",
    "INPUT": "int8_t",
    "UPDATE": "(int32_t)(((int64_t)3687 * s->v[o]) >> 12) + sum * 4096 + (scale[o] > 0 ? 1 : 0)",
}
NUMBERS = {"f32": FLOAT, "int8": INTEGER}
INPUTS = ", ".join(str((37 * i * i + 11 * i) % 256) for i in range(20))
COMMON = ["-O2", "-ffp-contract=off"]


def network(precision: str, checks: str) -> Path:
    folder = scratch() / f"{precision}-{re.sub('[^0-9]', '_', checks)}"
    folder.mkdir(exist_ok=True)
    for name, text in (("baked.h", HEADER), ("baked.c", SOURCE)):
        for word, number in {**NUMBERS[precision], "INPUTS": INPUTS, "CHECKS": checks}.items():
            text = re.sub(rf"\b{word}\b", number, text)
        (folder / name).write_text(text)
    return folder


def natively(folder: Path) -> str:
    """The same program without a board under it."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no host compiler: apt-get install gcc")
    sources = [FIRMWARE / "main.c", folder / "baked.c", ROOT / "boards" / "host" / "uart.c"]
    command = [
        compiler,
        *COMMON,
        *WARNINGS,
        f"-I{FIRMWARE}",
        f"-I{folder}",
        *map(str, sources),
        "-o",
        str(folder / "native"),
    ]
    subprocess.run(command, check=True)
    return subprocess.run([folder / "native"], capture_output=True, text=True).stdout


def firmware(name: str, toolchain: str, precision: str, checks: str, folder: Path) -> Path:
    baked = network(precision, checks)
    program = [FIRMWARE / "main.c", baked / "baked.c"]
    return build(board(name), program, folder, toolchain, include=[baked], needs_runtime=precision == "f32")


def without_cycles(text: str) -> str:
    return re.sub(r"cycles=\d+", "cycles=", text)


def checks_of(text: str) -> str:
    """What the checks of these outputs are: FNV-1a over the bytes."""
    checks = []
    for line in text.splitlines()[:-1]:
        (digits,) = (word for word in line.split() if len(word) > 8)
        check = 2166136261
        for i in range(0, len(digits), 8):
            for byte in int(digits[i : i + 8], 16).to_bytes(4, "little"):
                check = (check ^ byte) * 16777619 % 2**32
        checks.append(str(check))
    return ", ".join(f"{check}u" for check in checks)


@pytest.mark.parametrize("precision", NUMBERS)
@pytest.mark.parametrize("toolchain", TOOLCHAINS)
@pytest.mark.parametrize("name", BOARDS)
def test_main_prints_the_same_everywhere(name: str, toolchain: str, precision: str, tmp_path: Path) -> None:
    expected = natively(network(precision, "1, 2"))
    assert re.search(r"\nSNN fail errors=2 steps=10 cycles=\d+\n$", expected)
    wrong = run(board(name), firmware(name, toolchain, precision, "1, 2", tmp_path / "wrong"))
    assert without_cycles(wrong.output.decode()) == without_cycles(expected)
    assert wrong.exit_code == 1
    elf = firmware(name, toolchain, precision, checks_of(expected), tmp_path / "right")
    right = run(board(name), elf)
    assert re.search(r"\nSNN ok errors=0 steps=10 cycles=\d+\n$", right.output.decode())
    assert right.exit_code == 0
    if name == "x86":
        in_qemu(elf, right.output.decode())


def in_qemu(elf: Path, expected: str) -> None:
    qemu = shutil.which("qemu-system-i386")
    if qemu is not None:  # test_board_startup.py says when it is missing
        command = [qemu, "-kernel", str(elf), "-display", "none", "-serial", "stdio", "-no-reboot"]
        command += ["-device", "isa-debug-exit,iobase=0xf4,iosize=0x04"]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
        assert without_cycles(done.stdout) == without_cycles(expected)
        assert done.returncode == 1


@pytest.mark.parametrize("toolchain", TOOLCHAINS)
def test_xheep_takes_little_for_itself(toolchain: str, tmp_path: Path) -> None:
    """Start-up, UART and harness: at most 2 KiB of code, with the vectors."""
    image = read(firmware("xheep", toolchain, "int8", "1, 2", tmp_path))
    code = sum(section.size for section in image.sections if section.executable)
    network = sum(s.size for s in image.symbols if s.name in ("baked_init", "baked_step"))
    assert network > 100
    assert code - network <= 2048


@pytest.mark.parametrize("name", BOARDS)
def test_the_stack_of_a_run(name: str, tmp_path: Path) -> None:
    """`run` says what the emulator found painted over, of what the linker reserves; it is no less than what zig says of `step`."""
    options = Options(name="net", quantize=True)
    net = chain(tmp_path / "net.nir", np.full((30, 40), 0.3), lif(30))
    generate(net, tmp_path, options)
    harness.bake(net, tmp_path, options)
    checks = tmp_path / "baked_check.S"
    (tmp_path / "baked_check.s").rename(checks)
    sources = [tmp_path / "net.c", tmp_path / "net_weights.c", tmp_path / "baked.c", checks, FIRMWARE / "main.c"]
    elf = build(board(name), sources, tmp_path, include=[tmp_path])
    said: list[str] = []
    command = [sys.executable, "-m", "snn_builder", "emulate", str(ROOT / "boards" / name), str(elf)]
    assert harness.run(tmp_path, command, True, said.append) == 0, said
    used, reserved = run(board(name), elf).stack, {"xheep": 2048, "x86": 65536}[name]
    assert used is not None and f"stack: {used} bytes of {reserved}" in said
    result = json.loads((tmp_path / "result.json").read_text())
    assert (result["stack"], result["stack_reserved"]) == (used, reserved)
    found = footprint(elf)
    assert {"net_init", "net_step"} <= found.frames.keys() and found.stack is not None
    assert 30 < found.frames["net_step"] <= found.stack < used
