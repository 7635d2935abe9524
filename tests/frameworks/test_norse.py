# SPDX-License-Identifier: Apache-2.0
"""Norse's spikes are those of the file it exports, with what must be said or set by hand because the exporter leaves it out.

Norse computes v + dt/tau*((v_leak - v) + x), we decay*v + gain*x: only near-ties are open. An IAF adds, as we do.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

for name in ("torch", "norse", "nirtorch"):
    pytest.importorskip(name, reason=f"{name} is not installed: pip install -r requirements-frameworks.txt")

import nir
import norse.torch as norse
import torch
from against import FINE, STEP, assert_differ, assert_near, assert_same, exported, filled, ours, spikes
from norse.torch.functional.reset import reset_subtract

from snn_builder.errors import Refused

DT = 1e-3  # the cells' default
INPUTS, HIDDEN, OUTPUTS = 8, 12, 5


def box(*shape: int, dt: float = DT, **changed: Any) -> norse.LIFBoxCell:
    values = {"tau_mem_inv": 100.0, "v_th": 1.0, "v_leak": 0.0, "v_reset": 0.0} | changed
    tensors = {key: torch.full(shape, value) if isinstance(value, float) else value for key, value in values.items()}
    return norse.LIFBoxCell(norse.LIFBoxParameters(**tensors), dt=dt)


def current(size: int) -> norse.LIFCell:
    names = {"tau_mem_inv": 100.0, "tau_syn_inv": 200.0, "v_th": 1.0, "v_leak": 0.0, "v_reset": 0.0}
    return norse.LIFCell(norse.LIFParameters(**{name: torch.full((size,), value) for name, value in names.items()}))


def two_layers(first: torch.nn.Module, last: torch.nn.Module, size: float = 4.0, step: float = FINE) -> torch.nn.Module:
    layers = [torch.nn.Linear(INPUTS, HIDDEN), first, torch.nn.Linear(HIDDEN, OUTPUTS), last]
    return filled(norse.SequentialState(*layers), size, step)


def theirs(net: torch.nn.Module, data: np.ndarray) -> np.ndarray:
    state, output = None, []
    with torch.no_grad():
        for step in torch.from_numpy(data).unbind(1):
            values, state = net(step, state)
            output.append(values.numpy())
    return np.stack(output, 1)


def graph_of(net: torch.nn.Module, *shape: int, dt: float = 1.0) -> nir.NIRGraph:
    """`dt` scales the exported time constants: with 1 they are the network's own, in seconds."""
    return norse.to_nir(net, torch.zeros(1, *shape), dt=dt)


@pytest.fixture
def data() -> np.ndarray:
    return spikes(4, 60, INPUTS)


@pytest.mark.parametrize("dt", [1e-3, 2e-3])
def test_lif_box(tmp_path: Path, data: np.ndarray, dt: float) -> None:
    """The dt of the cells is nowhere in the file."""
    net = two_layers(box(HIDDEN, dt=dt), box(OUTPUTS, dt=dt))
    path = exported(graph_of(net, INPUTS), tmp_path / "net.nir")
    with pytest.raises(Refused, match=r"no timestep.*tau/r = 0.01"):
        ours(path, data)
    output, _, _ = ours(path, data, dt=dt)
    assert_near(output, theirs(net, data))


def test_default_export_scales_time(tmp_path: Path, data: np.ndarray) -> None:
    """Without dt=1 every tau is a thousandth, and so is the dt to build with. The parameters of default cells are scalars, which
    nir.write cannot compress."""
    net = two_layers(norse.LIFBoxCell(), norse.LIFBoxCell())
    graph = norse.to_nir(net, torch.zeros(1, INPUTS))
    assert float(graph.nodes["1"].tau) == pytest.approx(1e-5)
    output, _, _ = ours(exported(graph, tmp_path / "net.nir", compression=None), data, dt=1e-6)
    assert_near(output, theirs(net, data))


def test_subtracting_reset(tmp_path: Path, data: np.ndarray) -> None:
    net = two_layers(box(HIDDEN, reset_method=reset_subtract), box(OUTPUTS, reset_method=reset_subtract))
    path = exported(graph_of(net, INPUTS), tmp_path / "net.nir")
    output, _, _ = ours(path, data, dt=DT, reset="subtract")
    assert_near(output, theirs(net, data))
    assert_differ(ours(path, data, dt=DT)[0], theirs(net, data))


def test_reset_value_is_not_exported(tmp_path: Path, data: np.ndarray) -> None:
    net = two_layers(box(HIDDEN, v_reset=-0.5), box(OUTPUTS))
    graph = graph_of(net, INPUTS)
    assert_differ(ours(exported(graph, tmp_path / "net.nir"), data, dt=DT)[0], theirs(net, data))
    graph.nodes["1"].v_reset = np.full(HIDDEN, -0.5)
    assert_near(ours(exported(graph, tmp_path / "net.nir"), data, dt=DT)[0], theirs(net, data))


def test_current_scale_is_not_exported(tmp_path: Path, data: np.ndarray) -> None:
    """A LIFCell adds its input to the current as it is, but its CubaLIF has w_in = 1, not tau_syn/dt."""
    net = two_layers(current(HIDDEN), current(OUTPUTS), size=2.0)
    graph = graph_of(net, INPUTS)
    assert_differ(ours(exported(graph, tmp_path / "net.nir"), data, dt=DT)[0], theirs(net, data))
    for node in graph.nodes.values():
        if isinstance(node, nir.CubaLIF):
            node.w_in = np.asarray(node.tau_syn) / DT
    assert_near(ours(exported(graph, tmp_path / "net.nir"), data, dt=DT)[0], theirs(net, data))


def test_integrate_and_fire(tmp_path: Path, data: np.ndarray) -> None:
    def iaf(size: int) -> norse.IAFCell:
        return norse.IAFCell(norse.IAFParameters(v_th=torch.ones(size), v_reset=torch.zeros(size)))

    net = two_layers(iaf(HIDDEN), iaf(OUTPUTS), size=0.5, step=STEP)
    output, program, _ = ours(exported(graph_of(net, INPUTS), tmp_path / "net.nir"), data)
    assert program.discrete.dt_from == "none needed"
    assert_same(output, theirs(net, data))


def test_leaky_readout(tmp_path: Path, data: np.ndarray) -> None:
    readout = norse.LIBoxCell(
        norse.LIBoxParameters(tau_mem_inv=torch.full((OUTPUTS,), 100.0), v_leak=torch.zeros(OUTPUTS))
    )
    net = two_layers(box(HIDDEN), readout)
    output, _, _ = ours(exported(graph_of(net, INPUTS), tmp_path / "net.nir"), data, dt=DT)
    expected = theirs(net, data)
    assert np.abs(expected).max() > 1
    np.testing.assert_allclose(output, expected, rtol=0, atol=1e-5)  # 60 steps of a rounding each


def test_convolution(tmp_path: Path) -> None:
    """Its Conv2d has no input_shape, which nir.write takes for an error, and there is no Flatten: both set by hand."""
    layers = [torch.nn.Conv2d(2, 4, 3), box(4, 6, 6), torch.nn.Flatten(), torch.nn.Linear(144, OUTPUTS), box(OUTPUTS)]
    net = filled(norse.SequentialState(*layers), 4.0, FINE)
    graph = graph_of(net, 2, 8, 8)
    graph.nodes["0"].input_shape = (8, 8)
    graph.nodes["2"] = nir.Flatten({"input": np.array([4, 6, 6])}, start_dim=0)
    data = spikes(2, 24, 2, 8, 8)
    output, _, _ = ours(exported(graph, tmp_path / "net.nir"), data, dt=DT)
    assert_near(output, theirs(net, data))
