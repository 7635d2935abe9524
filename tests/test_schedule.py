# SPDX-License-Identifier: Apache-2.0
"""Order and feedback: which edge of a cycle carries the previous step (DESIGN 4.3)."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from support import terminal, write_nir

from snn_builder.errors import Findings, Refused
from snn_builder.reader import read
from snn_builder.schedule import Schedule, schedule

NEURON = {"type": "IF", "r": np.ones(1), "v_threshold": np.ones(1)}
SYNAPSE = {"type": "Linear", "weight": np.ones((1, 1))}


def scheduled(path: Path, neurons: str, synapses: str, edges: str) -> Schedule:
    """Nodes by one letter; i and o are the terminals; edges as "ia ab"."""
    nodes = {"i": terminal("Input", 1), "o": terminal("Output", 1)}
    nodes |= {name: NEURON for name in neurons} | {name: SYNAPSE for name in synapses}
    network = read(write_nir(path / "net.nir", nodes, [(edge[0], edge[1]) for edge in edges.split()]))
    return schedule(network, {}, Findings(network.file))


@pytest.mark.parametrize(
    ("neurons", "synapses", "edges", "previous"),
    [
        ("n", "f", "if fn no", set()),
        ("n", "fw", "if fn no nw wn", {("n", "w")}),  # n's out-edge on the cycle, not w's
        ("n", "", "in nn no", {("n", "n")}),  # a self edge
        ("ab", "", "ia ab ba bo", {("b", "a")}),  # two neurons: the one nearest to the closing edge
        ("abc", "", "ia ab bc cb ca co", {("c", "a"), ("c", "b")}),  # two cycles through one neuron
        ("xy", "", "io xy yx", {("y", "x")}),  # a loop that no Input reaches: in name order
        ("xy", "w", "iy yx xw wy yo", {("x", "w")}),  # entered at y: x is the first neuron met walking back
    ],
)
def test_previous_step_edges(
    tmp_path: Path, neurons: str, synapses: str, edges: str, previous: set[tuple[str, str]]
) -> None:
    result = scheduled(tmp_path, neurons, synapses, edges)
    assert result.previous == previous
    place = {name: index for index, name in enumerate(result.order)}
    assert sorted(place) == sorted({*neurons, *synapses, "i", "o"})
    for edge in edges.split():
        if (edge[0], edge[1]) not in previous:
            assert place[edge[0]] < place[edge[1]]


def test_cycle_without_state(tmp_path: Path) -> None:
    with pytest.raises(Refused) as caught:
        scheduled(tmp_path, "", "abc", "ia ab bc ca co")
    assert str(caught.value) == (
        f"{tmp_path / 'net.nir'}: a: cycle without a neuron: a -> b -> c -> a; "
        "put a neuron or a Delay into it: its value at this step would depend on itself"
    )


def test_a_long_chain_does_not_recurse(tmp_path: Path) -> None:
    nodes = {"i": terminal("Input", 1), "o": terminal("Output", 1)} | {f"n{index:04}": NEURON for index in range(1500)}
    names = ["i", *sorted(name for name in nodes if name.startswith("n")), "o"]
    network = read(write_nir(tmp_path / "net.nir", nodes, list(itertools.pairwise(names))))
    assert list(schedule(network, {}, Findings("x")).order) == names
