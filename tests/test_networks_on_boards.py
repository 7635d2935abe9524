# SPDX-License-Identifier: Apache-2.0
"""Real and constructed networks as bare-metal firmware: what the boards print is the reference, bit for bit.

Each network runs in both modes, on one board with one toolchain, in turn; SNN_FULL=1 runs every combination, in both kernels.
"""

from __future__ import annotations

import itertools
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from board_images import BOARDS, FIRMWARE, TOOLCHAINS, board, build
from support import CONSTRUCTED, CONSTRUCTED_DT, CONSTRUCTED_NAMES, CORPUS, CORPUS_DT, reset_of

from snn_builder.api import generate
from snn_builder.emulator import run
from snn_builder.harness import bake, bits_of, decode
from snn_builder.options import Options

FULL = bool(os.environ.get("SNN_FULL"))
MACHINES = list(itertools.product(BOARDS, TOOLCHAINS))
NAMES = [*CONSTRUCTED_NAMES, *CORPUS_DT]
# Convolutions in software floating point take seconds per step.
STEPS = {"scnn_mnist": 1, "tinynet": 2, "mnist_mlp": 10, "oxford": 100}
CASES = [
    pytest.param(name, quantize, machine, kernel, id="-".join([name, "int8" if quantize else "f32", *machine, kernel]))
    for place, name in enumerate(NAMES)
    for quantize in (False, True)
    for number, machine in enumerate(MACHINES)
    for kernel in ("event", "dense")
    if FULL or (number == (place + 2 * quantize) % len(MACHINES) and kernel == "event")
]


@pytest.mark.parametrize(("name", "quantize", "machine", "kernel"), CASES)
def test_network(tmp_path: Path, name: str, quantize: bool, machine: tuple[str, str], kernel: str) -> None:
    folder = (CONSTRUCTED if name in CONSTRUCTED_NAMES else CORPUS) / name
    if not folder.exists():
        pytest.skip("the corpus of public .nir files is not beside this checkout")
    dt = CONSTRUCTED_DT if name in CONSTRUCTED_NAMES else CORPUS_DT[name]
    options = Options(quantize=quantize, dt=dt, reset=reset_of(name), kernel=kernel)
    data = np.load(folder / "input.npy")[: STEPS.get(name)]
    np.save(tmp_path / "input.npy", data)
    path = folder / f"{name}.nir"
    generate(path, tmp_path, options)
    bake(path, tmp_path, options, tmp_path / "input.npy")
    shutil.move(tmp_path / "baked_check.s", tmp_path / "baked_check.S")
    sources = [tmp_path / file for file in ("snn_network.c", "snn_network_weights.c", "baked.c", "baked_check.S")]
    target, toolchain = machine
    room = {"RAM_SIZE": 512 * 1024 if name not in ("scnn_mnist", "tinynet") or quantize else 1024 * 1024}
    image = build(
        board(target), [*sources, FIRMWARE / "main.c"], tmp_path / "build", toolchain,
        defsyms=room if target == "xheep" else None, include=[tmp_path], needs_runtime=True,
    )  # fmt: skip
    result = run(board(target), image, limit=1 << 40)
    reference = np.load(tmp_path / "reference.npz")
    expected = reference["outputs"]
    bits = 1 if bool(reference["spiking"]) else 8 if expected.dtype == np.int8 else 32
    printed = decode(result.output.decode(), expected, bits)
    np.testing.assert_array_equal(bits_of(printed.outputs), bits_of(expected))
    assert printed.errors == 0 and result.exit_code == 0
