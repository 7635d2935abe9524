# SPDX-License-Identifier: Apache-2.0
"""Whole networks as firmware of the host: what leaves the kernel is what the data sets say, bit for bit."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest
from compiled import EXACT, WARNINGS
from support import CONSTRUCTED, CONSTRUCTED_DT, CONSTRUCTED_NAMES, CORPUS, CORPUS_DT, ROOT, needs_corpus, reset_of

from snn_builder.api import generate
from snn_builder.harness import bake, run
from snn_builder.options import Options

# Real files without data: the dt to pass.
WITHOUT_INPUT = {
    "braille_scalar_params": 1.0,
    "braille_subgraph": None,
    "scnn_mnist_no_input_shape": None,
    "two_lif_neurons": 1e-3,
    "feedback_graph": 1e-3,
}
MODES = pytest.mark.parametrize("quantize", [False, True], ids=["f32", "int8"])


def outputs(file: Path, options: Options, directory: Path, data: Path | None) -> np.ndarray:
    """What the firmware printed, after it agreed with the reference; memory errors and undefined behaviour stop it."""
    generate(file, directory, options)
    bake(file, directory, options, data)
    name = options.name
    sources = [
        directory / f"{name}.c",
        directory / f"{name}_weights.c",
        directory / "baked.c",
        directory / "baked_check.s",
    ]
    sources += [ROOT / "firmware" / "main.c", ROOT / "boards" / "host" / "uart.c"]
    sanitized = ["-fsanitize=address,undefined", "-fno-sanitize-recover"]
    folders = ["-I", directory, "-I", ROOT / "firmware"]
    subprocess.run(
        ["gcc", "-O1", *WARNINGS, *EXACT, *sanitized, *folders, *sources, "-o", directory / "fw"], check=True
    )
    said: list[str] = []
    assert run(directory, [str(directory / "fw")], say=said.append) == 0, said
    printed: np.ndarray = np.load(directory / "outputs.npy")
    return printed


def compare(folder: Path, options: Options, directory: Path) -> None:
    printed = outputs(folder / f"{folder.name}.nir", options, directory, folder / "input.npy")
    expected = folder / ("expected_int8.npy" if options.quantize else "expected.npy")
    if expected.exists():  # one corpus file says only when it spikes; test_reference.py has that
        array = np.load(expected)
        assert np.array_equal(printed.reshape(len(array), -1), array.reshape(len(array), -1))


@MODES
@pytest.mark.parametrize("name", CONSTRUCTED_NAMES)
def test_constructed(name: str, quantize: bool, tmp_path: Path) -> None:
    compare(CONSTRUCTED / name, Options(quantize=quantize, dt=CONSTRUCTED_DT, reset=reset_of(name)), tmp_path)


@needs_corpus
@MODES
@pytest.mark.parametrize("name", CORPUS_DT)
def test_corpus(name: str, quantize: bool, tmp_path: Path) -> None:
    compare(CORPUS / name, Options(quantize=quantize, dt=CORPUS_DT[name]), tmp_path)


@needs_corpus
@MODES
@pytest.mark.parametrize("name", WITHOUT_INPUT)
def test_corpus_on_random_spikes(name: str, quantize: bool, tmp_path: Path) -> None:
    file = CORPUS / name / f"{name}.nir"
    outputs(file, Options(quantize=quantize, dt=WITHOUT_INPUT[name]), tmp_path, None)
