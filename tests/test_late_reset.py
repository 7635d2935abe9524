# SPDX-License-Identifier: Apache-2.0
"""reset_delay=1 in the compiled kernels: the reference's bits, in both modes and kernels, with every kind of parameter."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from built import check
from support import lif, terminal, write_nir

from snn_builder.options import Options


@pytest.mark.parametrize("reset", ["zero", "subtract"])
def test_kernels(tmp_path: Path, reset: str) -> None:
    """A recurrent LIF with a threshold per neuron, a CubaLIF, and an integrator that runs into saturation."""
    rng = np.random.RandomState(5)
    cuba = {
        "type": "CubaLIF", "tau_mem": np.full(7, 0.01), "tau_syn": np.full(7, 0.004), "r": np.full(7, 10.0), "w_in": np.full(7, 4.0),
        "v_leak": np.full(7, 0.1), "v_threshold": np.full(7, 0.7), "v_reset": np.zeros(7),
    }  # fmt: skip
    nodes = {
        "input": terminal("Input", 6),
        "fc1": {"type": "Affine", "weight": rng.uniform(-1, 1, (9, 6)), "bias": rng.uniform(-0.2, 0.2, 9)},
        "lif": lif(9, v_threshold=rng.uniform(0.3, 1, 9)),
        "back": {"type": "Linear", "weight": rng.uniform(-0.5, 0.5, (9, 9))},
        "fc2": {"type": "Linear", "weight": rng.uniform(-1, 1, (7, 9))},
        "cuba": cuba,
        "fc3": {"type": "Linear", "weight": rng.uniform(-3e4, 3e4, (4, 6))},
        "if": {"type": "IF", "r": np.ones(4), "v_threshold": np.full(4, 5e4)},
        "spikes": terminal("Output", 9),
        "more": terminal("Output", 7),
        "large": terminal("Output", 4),
    }
    edges = [
        ("input", "fc1"), ("fc1", "lif"), ("lif", "back"), ("back", "lif"), ("lif", "fc2"), ("fc2", "cuba"), ("input", "fc3"),
        ("fc3", "if"), ("lif", "spikes"), ("cuba", "more"), ("if", "large"),
    ]  # fmt: skip
    path = write_nir(tmp_path / "net.nir", nodes, edges)
    options = [
        Options(
            name=f"{mode}_{kernel}_{form}",
            quantize=mode == "int8",
            dt=0.001,
            reset=reset,
            reset_delay=1,
            kernel=kernel,
            form=form,
        )
        for mode in ("f32", "int8")
        for kernel, form in (("dense", "packed"), ("event", "packed"), ("event", "column"))
    ]
    data = (rng.random_sample((2, 40, 6)) < 0.5).astype(np.int8)
    for outputs in check(path, options, {"input": data}, tmp_path):
        assert all(0 < outputs[name].sum() < outputs[name].size for name in ("spikes", "more", "large"))
