# SPDX-License-Identifier: Apache-2.0
"""The network as it will run: execution order, and every parameter rounded to the arithmetic of its mode.

`discretise.round_to_float` and `quantise.quantise` make a `Program`; the reference simulator and the export both read it.
"""

from __future__ import annotations

import dataclasses
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from .discretise import Discrete
from .network import Delay, Flatten, Network, Neuron, Terminal, Threshold, stored_order
from .options import Options
from .schedule import Schedule

Array: TypeAlias = NDArray[Any]
STATE_FRAC = 12  # fraction bits of voltages in integer mode: Q12
INT32_MIN, INT32_MAX = -(2**31), 2**31 - 1


@dataclasses.dataclass(frozen=True)
class SynapseParameters:
    """float mode: float32 weight, shaped as in `Linear` and `Conv`, of a Scale one per element; bias (outputs,). Integer mode: int8 weight
    at 2^-w_scale, int64 bias (that fits int32) at 2^-(w_scale + fraction exponent of the input). A bias of zeros becomes None: it changes
    nothing, and without one a layer that nothing arrives at may have nothing to do."""

    weight: Array
    bias: Array | None
    w_scale: int = 0

    def __post_init__(self) -> None:
        if self.bias is not None and not np.any(self.bias):
            object.__setattr__(self, "bias", None)


@dataclasses.dataclass(frozen=True)
class NeuronParameters:
    """Arrays of one value per neuron: float32 in float mode; int64 (that fits int32) in Q12 in integer mode. `gain`: float32, or the
    integer m with x <- (m*x) >> gain_shift; None where there is none."""

    decay: Array
    leak: Array
    cur_decay: Array | None = None
    gain: Array | None = None
    gain_shift: Array | None = None
    threshold: Array | None = None
    reset: Array | None = None


@dataclasses.dataclass(frozen=True)
class Program:
    """`thresholds`: of Threshold nodes, one per element: float32, or the integer that the input's numbers are compared with. `frac`: in
    integer mode, the fraction exponent of each node's output as its consumers see it (DESIGN 4.5); of a synapse, after its
    rescale. Empty in float mode."""

    network: Network
    options: Options
    discrete: Discrete
    schedule: Schedule
    synapses: dict[str, SynapseParameters]
    neurons: dict[str, NeuronParameters]
    thresholds: dict[str, Array]
    frac: dict[str, int]

    def input_frac(self, name: str) -> int:
        """Fraction exponent of the summed input of a node (integer mode)."""
        return input_frac(self.network, name, self.frac)

    def inputs(self, name: str) -> list[tuple[str, bool]]:
        """(source, whether it is last step's value) of each edge into a node, in name order."""
        return [(source, (source, name) in self.schedule.previous) for source in self.network.predecessors(name)]


def input_frac(network: Network, name: str, frac: dict[str, int]) -> int:
    """Exponent at which the edges into a node are summed: their own where all agree below Q12 and the node is no neuron, else Q12.
    A single edge that is not summed keeps its own, whatever it is, except into a neuron."""
    node, sources = network.nodes[name], network.predecessors(name)
    if isinstance(node, Delay) and name in frac:
        return frac[name]  # hands on what it gets, in Q12 on a cycle
    fracs = {frac[source] for source in sources}
    if isinstance(node, Neuron) or len(fracs) != 1:
        return STATE_FRAC
    agreed = fracs.pop()
    return agreed if len(sources) == 1 or agreed < STATE_FRAC else STATE_FRAC


def is_int8(network: Network, name: str, schedule: Schedule) -> bool:
    """Whether a node's value is a spike or one network input, and so int8 in integer mode; every other value is int32. Flatten, Delay
    and Output hand on what they get, but for a register on a cycle, which works in Q12."""
    while True:
        node = network.nodes[name]
        if isinstance(node, Neuron):
            return node.spikes
        if isinstance(node, Threshold) or node.kind == "Input":
            return True
        sources = network.predecessors(name)
        if not isinstance(node, (Flatten, Delay, Terminal)) or len(sources) != 1 or name in schedule.in_loop:
            return False
        name = sources[0]


def summed_order(network: Network, name: str) -> NDArray[np.intp]:
    """Indices of a Linear's inputs, flat in NIR's layout, in the order in which they are added up: the stored order of its input, which
    a single Flatten in front of it does not change (DESIGN 4.4)."""
    sources = network.predecessors(name)
    before = network.nodes[sources[0]]
    shape = before.output_shape
    if len(sources) == 1 and isinstance(before, Flatten):
        shape = before.input_shape
    return stored_order(shape)
