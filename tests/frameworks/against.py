# SPDX-License-Identifier: Apache-2.0
"""A framework's own run of a network, held against the reference's run of what it exported. Spikes are (samples, steps, *shape).

Where the framework does the same float operations on the same numbers, the spikes are the same. Sums are in another order, which
changes nothing if every weight is a small multiple of a power of two (`STEP`): each partial sum is then exact. Decays come back
from the file's float32 time constants exactly if they are 0.5 or more.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nir
import numpy as np
import torch

from snn_builder.options import Options
from snn_builder.pipeline import compile_network
from snn_builder.program import Program
from snn_builder.reference import Simulation, simulate

torch.set_num_threads(1)  # the networks are small, and sums in parallel have no fixed order

STEP = 1 / 16  # weights that are multiples of it have exact sums
FINE = 2.0**-20  # as good as any trained weight


def filled(net: torch.nn.Module, size: float, step: float, seed: int = 0) -> torch.nn.Module:
    """Every weight and bias, of recurrent layers too, drawn from -size to size in multiples of `step`."""
    rng = np.random.default_rng(seed)
    with torch.no_grad():
        for parameter in net.parameters():
            values = rng.integers(round(-size / step), round(size / step), parameter.shape, endpoint=True) * step
            parameter.copy_(torch.from_numpy(values))
    return net


def spikes(*shape: int, rate: float = 0.3, seed: int = 1) -> np.ndarray:
    """Random spikes, float32."""
    return (np.random.default_rng(seed).random(shape) < rate).astype(np.float32)


def exported(graph: nir.NIRGraph, path: Path, **writing: Any) -> Path:
    nir.write(path, graph, **writing)
    return path


def ours(path: Path, data: np.ndarray, **options: Any) -> tuple[np.ndarray, Program, Simulation]:
    """The reference's output, with what it was built from and its trace."""
    program = compile_network(path, Options(**options))
    result = simulate(program, {"input": data}, trace=True)
    return result.outputs["output"], program, result


def f1(one: np.ndarray, other: np.ndarray) -> float:
    """Of the spikes of two runs: 1 when they are the same."""
    return float(2 * np.sum(one * other) / (one.sum() + other.sum()))


def assert_same(one: np.ndarray, other: np.ndarray) -> None:
    assert_telling(other)
    assert one.shape == other.shape and np.array_equal(one, other), f"F1 {f1(one, other)}"


def assert_near(one: np.ndarray, other: np.ndarray) -> None:
    """For other roundings: a potential within some 1e-6 of its threshold may fall on either side, and what it causes differs too. Of
    the few hundred spikes here none does on the machines tried; 1 % is room for one that does, while a wrong dt, gain or reset costs
    far more."""
    assert_telling(other)
    assert one.shape == other.shape
    assert abs(one.sum() - other.sum()) <= 0.01 * other.sum() and f1(one, other) >= 0.99, f"F1 {f1(one, other)}"


def assert_differ(one: np.ndarray, other: np.ndarray) -> None:
    assert_telling(other)
    assert f1(one, other) < 0.95


def assert_telling(output: np.ndarray) -> None:
    """A run that can tell right from wrong: neither silent nor always on."""
    assert set(np.unique(output)) == {0, 1} and 0.02 < output.mean() < 0.7, output.mean()
