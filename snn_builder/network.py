# SPDX-License-Identifier: Apache-2.0
"""The typed graph that every stage works on: what a `.nir` file says, with shapes resolved and nothing interpreted.

Arrays are float64 copies of what the file holds (float32 values are exact in them). Node names are the file's own.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterable
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

F64: TypeAlias = NDArray[np.float64]
Shape: TypeAlias = tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Terminal:
    """`Input` or `Output`: where values of `shape` enter or leave the network, once per timestep."""

    name: str
    kind: str
    shape: Shape

    @property
    def input_shape(self) -> Shape:
        return self.shape

    output_shape = input_shape


@dataclasses.dataclass(frozen=True)
class Linear:
    """`Linear` or `Affine`: y = weight @ x + bias; weight is (outputs, inputs), bias (outputs,) or None."""

    name: str
    kind: str
    weight: F64
    bias: F64 | None

    @property
    def input_shape(self) -> Shape:
        return (self.weight.shape[1],)

    @property
    def output_shape(self) -> Shape:
        return (self.weight.shape[0],)


@dataclasses.dataclass(frozen=True)
class Neuron:
    """LIF, LI, CubaLIF, CubaLI, IF or I: one neuron per element of `shape`; parameters have that shape, or are None where the
    kind has none.

    `tau` is the membrane's time constant (NIR: tau or tau_mem), `tau_syn` the synapse's, both in the file's unit of time.
    """

    name: str
    kind: str
    shape: Shape
    r: F64
    tau: F64 | None = None
    tau_syn: F64 | None = None
    w_in: F64 | None = None
    v_leak: F64 | None = None
    v_threshold: F64 | None = None
    v_reset: F64 | None = None

    @property
    def input_shape(self) -> Shape:
        return self.shape

    output_shape = input_shape

    @property
    def spikes(self) -> bool:
        """Whether the output is a spike (else it is the membrane potential)."""
        return self.v_threshold is not None


@dataclasses.dataclass(frozen=True)
class Conv:
    """`Conv1d` or `Conv2d`, as two spatial dimensions (a Conv1d has height 1): weight (Cout, Cin/groups, KH, KW), bias (Cout,) or None.

    Shapes are (C, H, W), of a Conv1d (C, L). `padding` is ((top, bottom), (left, right)).
    """

    name: str
    kind: str
    weight: F64
    bias: F64 | None
    stride: tuple[int, int]
    padding: tuple[tuple[int, int], tuple[int, int]]
    dilation: tuple[int, int]
    groups: int
    input_shape: Shape
    output_shape: Shape


@dataclasses.dataclass(frozen=True)
class Pool:
    """`SumPool2d` or `AvgPool2d`; shapes are (C, H, W), padding as in `Conv`. Padded places count as zeros, in the average too."""

    name: str
    kind: str
    kernel: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[tuple[int, int], tuple[int, int]]
    input_shape: Shape
    output_shape: Shape


@dataclasses.dataclass(frozen=True)
class Scale:
    """`Scale`: y = scale * x, element by element: a diagonal synapse."""

    name: str
    kind: str
    scale: F64

    @property
    def input_shape(self) -> Shape:
        return self.scale.shape

    output_shape = input_shape


@dataclasses.dataclass(frozen=True)
class Threshold:
    """`Threshold`: a spike where x > threshold, without memory."""

    name: str
    kind: str
    threshold: F64

    @property
    def input_shape(self) -> Shape:
        return self.threshold.shape

    output_shape = input_shape


@dataclasses.dataclass(frozen=True)
class Delay:
    """`Delay`: y(t) = x(t - delay), per element, in the file's unit of time."""

    name: str
    kind: str
    delay: F64

    @property
    def input_shape(self) -> Shape:
        return self.delay.shape

    output_shape = input_shape


@dataclasses.dataclass(frozen=True)
class Flatten:
    """`Flatten`, or the `Input` or `Output` of a nested graph: the same values in another shape."""

    name: str
    kind: str
    input_shape: Shape
    output_shape: Shape


Synapse: TypeAlias = Linear | Conv
Node: TypeAlias = Terminal | Linear | Conv | Scale | Pool | Flatten | Threshold | Delay | Neuron
Edge: TypeAlias = tuple[str, str]


def size(shape: Shape) -> int:
    """Number of elements."""
    return math.prod(shape)


def neighbours(edges: Iterable[Edge]) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """Sources by target, and targets by source, in the order of the edges."""
    before: dict[str, list[str]] = {}
    after: dict[str, list[str]] = {}
    for source, target in edges:
        before.setdefault(target, []).append(source)
        after.setdefault(source, []).append(target)
    return before, after


@dataclasses.dataclass(frozen=True)
class Network:
    """A checked graph: `nodes` by name in code-point order, `edges` (source, target) sorted, without duplicates.

    `file` is the path as the user gave it, `sha256` the digest of its bytes, `dt` the graph's metadata key of that name.
    """

    file: str
    sha256: str
    nodes: dict[str, Node]
    edges: tuple[Edge, ...]
    dt: float | None

    @functools.cached_property
    def _neighbours(self) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
        return neighbours(self.edges)

    def predecessors(self, name: str) -> list[str]:
        """Sources of the edges into a node, in name order."""
        return list(self._neighbours[0].get(name, ()))

    def successors(self, name: str) -> list[str]:
        """Targets of the edges out of a node, in name order."""
        return list(self._neighbours[1].get(name, ()))

    def terminals(self, kind: str) -> list[Terminal]:
        """The `Input`s or `Output`s in name order."""
        return [node for node in self.nodes.values() if isinstance(node, Terminal) and node.kind == kind]

    def neurons(self) -> list[Neuron]:
        return [node for node in self.nodes.values() if isinstance(node, Neuron)]

    def synapses(self) -> list[Synapse]:
        """What a gain can be folded into."""
        return [node for node in self.nodes.values() if isinstance(node, (Linear, Conv))]


def stored_order(shape: Shape) -> NDArray[np.intp]:
    """Indices into a flat array in NIR's layout, in the order in which we store and add up: channels last for (C, L) and (C, H, W)."""
    indices = np.arange(size(shape)).reshape(shape)
    return np.moveaxis(indices, 0, -1).reshape(-1) if len(shape) > 1 else indices.reshape(-1)
