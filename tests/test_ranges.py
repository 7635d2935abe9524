# SPDX-License-Identifier: Apache-2.0
"""Range analysis under attack: the worst input a network can get reaches its bounds and never passes them, and the kernels that rely on
them do nothing undefined."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from built import check
from support import chain, lif, terminal, write_nir

from snn_builder.options import Options
from snn_builder.pipeline import compile_network
from snn_builder.program import INT32_MAX, Program
from snn_builder.ranges import analyse
from snn_builder.reference import Simulation, simulate

RNG = np.random.RandomState(11)


def worst_input(program: Program, steps: int, sign: int = 1) -> np.ndarray:
    """int8 extremes that drive the output with the largest sum of magnitudes one way, step after step."""
    weight = program.synapses["fc"].weight.astype(int)
    row = weight[np.abs(weight).sum(1).argmax()] * sign
    return np.tile(np.where(row > 0, 127, -128), (1, steps, 1))


def attack(path: Path, steps: int, **options: Any) -> tuple[Program, list[Simulation]]:
    program = compile_network(path, Options(quantize=True, dt=0.001, **options))
    return program, [simulate(program, {"input": worst_input(program, steps, sign)}, trace=True) for sign in (1, -1)]


def test_a_sum_reaches_its_bound(tmp_path: Path) -> None:
    path = chain(
        tmp_path / "net.nir", RNG.uniform(-1, 1, (5, 40)), {"type": "I", "r": np.ones(5)}, RNG.uniform(-1, 1, 5)
    )
    program, runs = attack(path, 1)
    bound = analyse(program).ranges["fc"]
    reached = [run.trace["fc"] for run in runs]
    assert all(bound.low <= array.min() and array.max() <= bound.high for array in reached)
    assert (
        max(array.max() for array in reached) > 0.9 * bound.high
        or min(array.min() for array in reached) < 0.9 * bound.low
    )


@pytest.mark.parametrize("decay", [0.5, 0.9, 0.99])
def test_a_leaky_state_comes_close_to_its_bound(tmp_path: Path, decay: float) -> None:
    tau = 0.001 / (1 - decay)
    neuron = {"type": "LI", "tau": np.full(5, tau), "r": np.full(5, tau / 0.001), "v_leak": np.full(5, 0.5)}
    program, runs = attack(chain(tmp_path / "net.nir", RNG.uniform(-1, 1, (5, 40)), neuron), 2000)
    bound = analyse(program).ranges["neuron"].high
    reached = max(int(np.abs(run.trace["neuron.v"]).max()) for run in runs)
    assert 0.9 * bound < reached <= bound
    assert not analyse(program).state_saturates["neuron"]


@pytest.mark.parametrize(
    "options", [{}, {"reset": "subtract"}, {"reset": "subtract", "reset_delay": 1}, {"reset_delay": 1}], ids=str
)
def test_spiking_states_stay_within(tmp_path: Path, options: dict[str, Any]) -> None:
    for threshold in (0.3, -2.0):
        neuron = lif(5, v_threshold=np.full(5, threshold), v_reset=np.zeros(5))
        program, runs = attack(chain(tmp_path / "net.nir", RNG.uniform(-1, 1, (5, 40)), neuron), 500, **options)
        decisions = analyse(program)
        assert not decisions.state_saturates["neuron"]
        limit = INT32_MAX // 4096 if decisions.product_bits["neuron"] == 32 else INT32_MAX
        assert all(np.abs(run.trace["neuron.v"]).max() <= limit for run in runs)


def test_an_integrator_is_clamped(tmp_path: Path) -> None:
    program, runs = attack(chain(tmp_path / "net.nir", np.full((1, 9), 30.0), {"type": "I", "r": np.ones(1)}), 500)
    assert analyse(program).state_saturates["neuron"]
    assert max(run.trace["neuron.v"].max() for run in runs) == INT32_MAX


# On both sides of the places where a decision changes: 32-bit product, 64-bit product, clamped state, clamped rescale.
EDGES = {
    0.0092: (32, False, False),
    0.0095: (64, False, False),
    33.5: (64, False, False),
    34.5: (64, True, False),
    340.0: (64, True, False),
    343.0: (64, True, True),
}


@pytest.mark.parametrize("weight", EDGES)
def test_kernels_at_the_edges(tmp_path: Path, weight: float) -> None:
    """Under the undefined-behaviour sanitizer."""
    neuron = {"type": "LI", "tau": np.full(3, 0.01), "r": np.full(3, 10.0), "v_leak": np.zeros(3)}
    path = chain(tmp_path / "net.nir", np.full((3, 12), weight) * [[1], [-1], [0.3]], neuron)
    options = [
        Options(name=f"{kernel}_{form}", quantize=True, dt=0.001, kernel=kernel, form=form)
        for kernel, form in (("dense", "packed"), ("event", "packed"), ("event", "column"))
    ]
    program = compile_network(path, options[0])
    data = np.concatenate([worst_input(program, 120, sign) for sign in (1, -1)])
    check(path, options, {"input": data}, tmp_path)


def test_the_decisions_do_change_there(tmp_path: Path) -> None:
    for weight, expected in EDGES.items():
        neuron = {"type": "LI", "tau": np.full(3, 0.01), "r": np.full(3, 10.0), "v_leak": np.zeros(3)}
        path = chain(tmp_path / "net.nir", np.full((3, 12), weight), neuron)
        decisions = analyse(compile_network(path, Options(quantize=True, dt=0.001)))
        found = (
            decisions.product_bits["neuron"],
            decisions.state_saturates["neuron"],
            decisions.rescale_saturates["fc"],
        )
        assert found == expected, weight


def test_sums_of_voltages_need_64_bits(tmp_path: Path) -> None:
    """A synapse fed by a leaky integrator that stands at its largest: the sum passes int32, and the kernels get it right."""
    nodes = {
        "input": terminal("Input", 12),
        "fc": {"type": "Linear", "weight": np.full((8, 12), 30.0)},
        "li": {"type": "LI", "tau": np.full(8, 0.01), "r": np.full(8, 10.0), "v_leak": np.zeros(8)},
        "wide": {"type": "Linear", "weight": np.array([[0.9] * 8, [1.0, -1.0] * 4, [0.001] * 8])},
        "output": terminal("Output", 3),
    }
    edges = [("input", "fc"), ("fc", "li"), ("li", "wide"), ("wide", "output")]
    path = write_nir(tmp_path / "net.nir", nodes, edges)
    options = [Options(name=kernel, quantize=True, dt=0.001, kernel=kernel) for kernel in ("dense", "event")]
    program = compile_network(path, options[0])
    assert analyse(program).accumulator_bits == {"fc": 32, "wide": 64}
    (found, _) = check(path, options, {"input": worst_input(program, 120)}, tmp_path)
    assert found["output"].max() == INT32_MAX
