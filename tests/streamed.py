# SPDX-License-Identifier: Apache-2.0
"""Programs of firmware/stream_main.c, and a line that treats bytes badly; for the tests of streaming."""

from __future__ import annotations

import random
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from board_images import FIRMWARE, ROOT, WARNINGS, board, build

from snn_builder.api import generate
from snn_builder.glue import write_streamed
from snn_builder.options import Options
from snn_builder.stream.ports import Port

SOURCES = [FIRMWARE / "stream_main.c", FIRMWARE / "stream.c"]
TWICE = 0.05
HOST = ROOT / "boards" / "host" / "uart.c"


def network_sources(file: Path, options: Options, folder: Path) -> list[Path]:
    """The C of a network and its glue, in `folder`."""
    generate(file, folder, options)
    write_streamed(str(file), str(folder), options)
    return [folder / f"{options.name}.c", folder / f"{options.name}_weights.c", folder / "streamed.c"]


def native(folder: Path, sources: Sequence[Path], *flags: str) -> Path:
    """A program of this machine; compiled without a warning."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no host compiler: apt-get install gcc")
    target = folder / "native"
    command = [compiler, "-O1", *WARNINGS, "-ffp-contract=off", "-DSNN_FP_CONTRACT_OFF", *flags]
    command += [f"-I{FIRMWARE}", f"-I{folder}", *map(str, [*SOURCES, *sources, HOST]), "-o", str(target)]
    subprocess.run(command, check=True)
    return target


def image(name: str, toolchain: str, folder: Path, sources: Sequence[Path]) -> Path:
    """The image of a bare-metal board."""
    return build(board(name), [*SOURCES, *sources], folder, toolchain, include=[folder])


class Faulty:
    """A line that loses, doubles and flips bytes and adds noise, in both directions, each with probability `rate` a byte; and now and
    then sends all twice, so that answers come which nobody waits for any more."""

    def __init__(self, port: Port, seed: int, rate: float) -> None:
        self.port, self.rate = port, rate
        self.name, self.patience, self.per_byte, self.unit = port.name, port.patience, port.per_byte, port.unit
        self.random = random.Random(seed)
        self.faults = {"lost": 0, "doubled": 0, "flipped": 0, "noise": 0}

    def spoilt(self, data: bytes) -> bytes:
        out = bytearray()
        for byte in data:
            what = self.random.random() / self.rate
            if what >= 4:
                out.append(byte)
                continue
            kind = ("lost", "doubled", "flipped", "noise")[int(what)]
            self.faults[kind] += 1
            if kind == "doubled":
                out += bytes([byte, byte])
            elif kind == "flipped":
                out.append(byte ^ 1 << self.random.randrange(8))
            elif kind == "noise":
                out += bytes([byte]) + self.random.randbytes(self.random.randrange(1, 40))
        return bytes(out)

    def write(self, data: bytes) -> None:
        for _ in range(2 if self.random.random() < TWICE else 1):
            self.port.write(self.spoilt(data))

    def read(self, seconds: float) -> bytes:
        return self.spoilt(self.port.read(seconds))

    def close(self) -> None:
        self.port.close()
