# SPDX-License-Identifier: Apache-2.0
"""snnTorch's spikes are those of the file it exports: every layer type, reset and delay of reset that can be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

for name in ("torch", "snntorch", "nirtorch"):
    pytest.importorskip(name, reason=f"{name} is not installed: pip install -r requirements-frameworks.txt")

import snntorch
import torch
from against import FINE, STEP, assert_differ, assert_near, assert_same, exported, filled, ours, spikes
from built import check
from snntorch.export_nir import export_to_nir
from snntorch.utils import reset as at_rest

from snn_builder.options import KERNELS, Options

DT = 1e-4  # fixed in the exporter
INPUTS, HIDDEN, OUTPUTS = 8, 12, 5


def neuron(kind: str, *shape: int, beta: float = 0.9, **options: Any) -> torch.nn.Module:
    """One parameter per neuron: the exporter's graph has no shape for a scalar."""
    parameters = {"beta": torch.full(shape, beta), "threshold": torch.ones(shape), "init_hidden": True} | options
    if kind.endswith("Synaptic"):
        parameters["alpha"] = torch.full(shape, 0.5)
    if kind.startswith("R") and "V" not in options:
        parameters["linear_features"] = shape[0]
    return getattr(snntorch, kind)(**parameters)


def two_layers(kind: str, last: str = "", **options: Any) -> torch.nn.Sequential:
    """8-12-5; `last` is the second layer's type where it is another."""
    return torch.nn.Sequential(
        torch.nn.Linear(INPUTS, HIDDEN),
        neuron(kind, HIDDEN, **options),
        torch.nn.Linear(HIDDEN, OUTPUTS),
        neuron(last or kind, OUTPUTS, **options),
    )


def theirs(net: torch.nn.Module, data: np.ndarray) -> np.ndarray:
    at_rest(net)
    with torch.no_grad():
        return np.stack([net(step).numpy() for step in torch.from_numpy(data).unbind(1)], 1)


def to_file(net: torch.nn.Module, shape: tuple[int, ...], path: Path) -> Path:
    return exported(export_to_nir(net, torch.zeros(1, *shape), ignore_dims=[0]), path)


@pytest.mark.parametrize("step", [STEP, FINE], ids=["exact_sums", "any_weights"])
@pytest.mark.parametrize(
    ("kind", "size", "reset", "reset_delay"),
    [
        ("Leaky", 1.0, "zero", False),
        ("Leaky", 1.0, "zero", True),
        ("Leaky", 0.3, "subtract", False),
        ("Synaptic", 1.0, "zero", False),
        ("Synaptic", 0.25, "subtract", False),
    ],
)
def test_layers(tmp_path: Path, kind: str, size: float, reset: str, reset_delay: bool, step: float) -> None:
    net = filled(two_layers(kind, reset_mechanism=reset, reset_delay=reset_delay), size, step)
    data = spikes(4, 60, INPUTS, rate=0.5)
    output, program, result = ours(to_file(net, (INPUTS,), tmp_path / "net.nir"), data, reset=reset)
    assert (program.discrete.dt, program.discrete.dt_from) == (DT, "inferred")
    assert all(parameters.gain is None for parameters in program.neurons.values())
    if reset == "subtract":  # no reset leaves a potential above the threshold; else see test_what_the_docs_say_differs
        assert max(values.max() for state, values in result.trace.items() if state.endswith(".v")) <= 1
    (assert_same if step == STEP else assert_near)(output, theirs(net, data))


@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no_bias"])
def test_convolution_pool_flatten(tmp_path: Path, bias: bool) -> None:
    options = {"reset_mechanism": "zero", "reset_delay": False}
    layers = [
        torch.nn.Conv2d(2, 4, 3, bias=bias),
        neuron("Leaky", 4, 6, 6, **options),
        torch.nn.AvgPool2d(2),
        torch.nn.Flatten(),
        torch.nn.Linear(36, OUTPUTS),
        neuron("Leaky", OUTPUTS, **options),
    ]
    net = filled(torch.nn.Sequential(*layers), 1.0, STEP)
    data = spikes(2, 24, 2, 8, 8)
    output, _, _ = ours(to_file(net, (2, 8, 8), tmp_path / "net.nir"), data)
    assert_same(output, theirs(net, data))


@pytest.mark.parametrize(
    "options", [{}, {"all_to_all": False, "V": torch.linspace(-0.8, 0.8, HIDDEN)}], ids=["all_to_all", "one_to_one"]
)
def test_recurrent(tmp_path: Path, options: dict[str, Any]) -> None:
    """Adds the recurrent input after the decay, we before it: only near-ties are open."""
    layer = neuron("RLeaky", HIDDEN, reset_mechanism="zero", reset_delay=False, **options)
    net = torch.nn.Sequential(torch.nn.Linear(INPUTS, HIDDEN), layer)
    filled(net, 0.8, STEP)
    data = spikes(4, 60, INPUTS)
    output, _, _ = ours(to_file(net, (INPUTS,), tmp_path / "net.nir"), data)
    assert_near(output, theirs(net, data))


@pytest.mark.parametrize(
    ("kind", "reset"),
    [
        ("Leaky", "zero"),
        ("Leaky", "subtract"),
        ("Synaptic", "subtract"),
        ("RLeaky", "subtract"),
        ("RSynaptic", "subtract"),
    ],
)
def test_delayed_reset(tmp_path: Path, kind: str, reset: str) -> None:
    """snnTorch's default, with inputs that leave potentials above the threshold."""
    net = filled(two_layers(kind, "Leaky", reset_mechanism=reset), 0.8, STEP)
    data = spikes(4, 60, INPUTS)
    output, _, _ = ours(to_file(net, (INPUTS,), tmp_path / "net.nir"), data, reset=reset, reset_delay=1)
    (assert_near if kind.startswith("R") else assert_same)(output, theirs(net, data))


@pytest.mark.parametrize(
    ("kind", "reset", "reset_delay"),
    [
        ("Leaky", "subtract", True),
        (
            "Leaky",
            "subtract",
            False,
        ),  # it asks for a spike above twice the threshold after a potential that stayed above it
        ("Synaptic", "zero", True),  # and the recurrent ones: the step after a spike is lost, input included
    ],
)
def test_what_the_docs_say_differs(tmp_path: Path, kind: str, reset: str, reset_delay: bool) -> None:
    net = filled(two_layers(kind, reset_mechanism=reset, reset_delay=reset_delay), 0.8, STEP)
    data = spikes(4, 60, INPUTS)
    output, _, _ = ours(to_file(net, (INPUTS,), tmp_path / "net.nir"), data, reset=reset)
    assert_differ(output, theirs(net, data))


def test_compiled(tmp_path: Path) -> None:
    """The sizes of models/digits, as C."""
    options = {"reset_mechanism": "zero", "reset_delay": False}
    layers = [
        torch.nn.Linear(64, 48),
        neuron("Leaky", 48, **options),
        torch.nn.Linear(48, 10),
        neuron("Leaky", 10, beta=0.95, **options),
    ]
    net = filled(torch.nn.Sequential(*layers), 0.5, STEP)
    data = spikes(2, 24, 64)
    kernels = [Options(name=kernel, kernel=kernel) for kernel in KERNELS]
    file = to_file(net, (64,), tmp_path / "net.nir")
    for outputs in check(file, kernels, {"input": data}, tmp_path):
        assert_same(outputs["output"], theirs(net, data))
