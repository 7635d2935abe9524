# SPDX-License-Identifier: Apache-2.0
"""A `.nir` file through every stage to a shared library, run step by step from Python; for tests against the reference."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from compiled import EXACT, WARNINGS

from snn_builder.api import generate
from snn_builder.options import Options
from snn_builder.pipeline import compile_network
from snn_builder.reference import simulate

DTYPES = {"int8_t": np.int8, "int32_t": np.int32, "float": np.float32}


def check(
    file: Path, options: Sequence[Options], inputs: Mapping[str, np.ndarray], directory: Path
) -> list[dict[str, np.ndarray]]:
    """Builds the file with each of the options (of different names) and asserts that every output of the compiled kernels is
    the reference's, bit for bit. `inputs`: per Input, (samples, steps, *shape). Returns the outputs, one dict per options."""
    library = build(file, options, directory)
    results = []
    for chosen in options:
        expected = simulate(compile_network(file, chosen), dict(inputs))
        with _defined():
            found = run(library, directory, chosen.name, expected.inputs)
        assert found.keys() == expected.outputs.keys()
        for name, array in expected.outputs.items():
            flat = array.reshape(found[name].shape)
            assert found[name].dtype == flat.dtype, name
            different = np.argwhere(found[name].view(f"u{flat.itemsize}") != flat.view(f"u{flat.itemsize}"))
            assert not len(different), (
                f"{chosen.name}: {name}{different[0]} is {found[name][tuple(different[0])]}, not {flat[tuple(different[0])]}"
            )
        results.append(expected.outputs)
    return results


@contextlib.contextmanager
def _defined() -> Iterator[None]:
    """Asserts that the undefined-behaviour sanitizer says nothing."""
    with tempfile.TemporaryFile() as said:
        stderr = os.dup(2)
        os.dup2(said.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(stderr, 2)
            os.close(stderr)
        said.seek(0)
        assert said.read().decode() == ""


def build(file: Path, options: Sequence[Options], directory: Path) -> ctypes.CDLL:
    """All kernels in one library; compiled without a warning."""
    sources = []
    for chosen in options:
        generate(file, directory, chosen)
        sources += [f"{chosen.name}.c", f"{chosen.name}_weights.c"]
    command = [
        "gcc",
        "-shared",
        "-fPIC",
        "-O1",
        *WARNINGS,
        *EXACT,
        "-fsanitize=undefined",
        *sources,
        "-o",
        "network.so",
    ]
    subprocess.run(command, cwd=directory, check=True)
    return ctypes.CDLL(str(directory / "network.so"))


def run(library: ctypes.CDLL, directory: Path, name: str, inputs: np.ndarray) -> dict[str, np.ndarray]:
    """Per Output (samples, steps, elements). `inputs`: (samples, steps, all inputs in name order)."""
    report = json.loads((directory / f"{name}.json").read_text())
    state = np.full(report["state_bytes"] + 16, 0xA5, np.uint8)
    sizes = [int(np.prod(terminal["shape"])) for terminal in report["inputs"]]
    outputs = {
        terminal["node"]: np.zeros((*inputs.shape[:2], int(np.prod(terminal["shape"]))), DTYPES[terminal["type"]])
        for terminal in report["outputs"]
    }
    for sample in range(len(inputs)):
        getattr(library, f"{name}_init")(ctypes.c_void_p(state.ctypes.data))
        for step in range(inputs.shape[1]):
            given = [part.copy() for part in np.split(inputs[sample, step], np.cumsum(sizes)[:-1])]
            arrays = [state, *given, *(array[sample, step] for array in outputs.values())]
            getattr(library, f"{name}_step")(*(ctypes.c_void_p(array.ctypes.data) for array in arrays))
    assert np.all(state[-16:] == 0xA5), "wrote behind the state"
    return outputs
