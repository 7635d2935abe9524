# SPDX-License-Identifier: Apache-2.0
"""Random networks of all node types, as a hypothesis strategy: fan-in, fan-out, loops, several terminals, nested graphs.

dt = 1 is to be passed. What cannot be built (a cycle without a neuron) is for the caller to discard.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
from hypothesis import strategies as st
from support import terminal

KINDS = [
    "Linear", "Affine", "Scale", "Conv1d", "Conv2d", "SumPool2d", "AvgPool2d", "Flatten", "Delay", "Threshold",
    "LIF", "LI", "CubaLIF", "CubaLI", "IF", "I",
]  # fmt: skip
NAMES = ["a", "b.1", "10", "2", "Z", "é", "n.1", "n.2", "in", "step", "x y", "v"]
SHAPES = [(1,), (4,), (7,), (2, 5), (3, 4), (2, 4, 4), (1, 5, 3), (3, 3, 5), (2, 6, 3), (4, 3, 3)]

Shape = tuple[int, ...]


@dataclasses.dataclass
class Drawn:
    """A network to write with `write_nir`, and `inputs` per Input: (samples, steps, *shape) of whole numbers."""

    nodes: dict[str, dict[str, Any]]
    edges: list[tuple[str, str]]
    inputs: dict[str, np.ndarray]
    reset: str


@st.composite
def networks(draw: st.DrawFn) -> Drawn:
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1), label="seed"))
    names = iter(draw(st.permutations(NAMES)))
    size = draw(st.sampled_from([0.3, 1.0, 40.0, 3e4]), label="size of parameters")
    reset = draw(st.sampled_from(["zero", "zero", "subtract"]), label="reset")
    nodes: dict[str, dict[str, Any]] = {}
    edges: list[tuple[str, str]] = []
    outputs: dict[str, Shape] = {}  # per node that may be read
    accepts: dict[str, int] = {}  # per node that may take another input, how many values

    for name in [next(names) for _ in range(draw(st.integers(1, 2), label="inputs"))]:
        outputs[name] = draw(st.sampled_from(SHAPES), label="input shape")
        nodes[name] = terminal("Input", *outputs[name])
    given = list(nodes)
    for name in [next(names) for _ in range(draw(st.integers(1, 6), label="layers"))]:
        source = draw(st.sampled_from(sorted(outputs)), label="source")
        shape = outputs[source]
        kind = draw(st.sampled_from(_kinds(shape)), label="kind")
        nodes[name], outputs[name] = _node(kind, shape, rng, draw, size, reset)
        edges.append((source, name))
        if kind not in ("Conv1d", "Conv2d", "SumPool2d", "AvgPool2d", "Flatten"):
            accepts[name] = math.prod(shape)
        if "input_shape" not in nodes[name] and draw(st.integers(0, 5), label="nested") == 5:
            members = {
                "input": terminal("Input", *shape),
                "m": nodes[name],
                "output": terminal("Output", *outputs[name]),
            }
            nodes[name] = {"type": "NIRGraph", "nodes": members, "edges": [("input", "m"), ("m", "output")]}
    for _ in range(draw(st.integers(0, 3), label="more edges")):
        pairs = [(s, t) for s in sorted(outputs) for t in sorted(accepts) if math.prod(outputs[s]) == accepts[t]]
        if pairs:
            edges.append(draw(st.sampled_from(pairs), label="edge"))
    layers = [name for name in nodes if name not in given]
    ends = draw(st.lists(st.sampled_from(layers), min_size=1, max_size=3), label="outputs")
    for source, name in zip(ends, names, strict=False):
        flat = draw(st.booleans(), label="flat output")
        nodes[name] = terminal("Output", *([math.prod(outputs[source])] if flat else outputs[source]))
        edges.append((source, name))
        others = [other for other in layers if outputs[other] == outputs[source] and other != source]
        if others and draw(st.booleans(), label="output of two"):
            edges.append((draw(st.sampled_from(others)), name))
    steps = draw(st.integers(1, 12), label="steps")
    low, high = draw(st.sampled_from([(0, 2), (-3, 4), (-128, 128)]), label="values")
    inputs = {name: rng.integers(low, high, (2, steps, *outputs[name])) for name in given}
    return Drawn(nodes, sorted(set(edges)), inputs, reset)


def _kinds(shape: Shape) -> list[str]:
    """Which kinds take that shape; those that need it come up more often."""
    ranks = {"Conv1d": 2, "Conv2d": 3, "SumPool2d": 3, "AvgPool2d": 3}
    return [kind for kind in KINDS if ranks.get(kind) in (None, len(shape)) for _ in range(3 if kind in ranks else 1)]


def _node(
    kind: str, shape: Shape, rng: np.random.Generator, draw: st.DrawFn, size: float, reset: str
) -> tuple[dict[str, Any], Shape]:
    """The fields of a node and the shape of its output."""
    count = math.prod(shape)

    def weights(*extents: int) -> np.ndarray:
        return (rng.standard_normal(extents) * size * (rng.random(extents) < 0.8)).astype(np.float32)

    def some(low: float, high: float) -> np.ndarray:
        """One value for all, or one per element."""
        if draw(st.booleans(), label="uniform"):
            return np.full(shape, rng.uniform(low, high))
        return rng.uniform(low, high, shape)

    fields: dict[str, Any] = {"type": kind}
    if kind in ("Linear", "Affine"):
        outputs = draw(st.sampled_from([1, 4, count]), label="outputs")
        fields["weight"] = weights(outputs, count)
        if kind == "Affine":
            fields["bias"] = weights(outputs)
        return fields, (outputs,)
    if kind == "Scale":
        return fields | {"scale": weights(*shape)}, shape
    if kind == "Threshold":
        return fields | {"threshold": some(-size, 2 * size)}, shape
    if kind == "Delay":
        return fields | {"delay": np.round(some(0, draw(st.sampled_from([1, 4]), label="delay")))}, shape
    if kind == "Flatten":
        start = draw(st.integers(1, len(shape)), label="start_dim")
        flat = (*shape[: start - 1], math.prod(shape[start - 1 :]))
        return fields | {"start_dim": start, "end_dim": -1, "input_type": np.array([1, *shape])}, flat
    if kind.startswith("Conv") or kind.endswith("Pool2d"):
        return _windows(fields, kind, shape, rng, draw, weights)
    subtract = reset == "subtract"
    fields["r"] = some(0.1, 2) * draw(st.sampled_from([1.0, -3.0]), label="sign of r")
    if kind not in ("IF", "I"):
        fields["v_leak"] = some(-0.2, 0.2) * draw(st.sampled_from([0.0, size]), label="leak")
    if kind in ("LIF", "LI"):
        fields["tau"] = some(1, 20)
    elif kind in ("CubaLIF", "CubaLI"):
        fields |= {"tau_mem": some(1, 20), "tau_syn": some(1, 9), "w_in": some(0.5, 3)}
    if kind.endswith("IF"):
        fields |= {
            "v_threshold": some(0.1, 1) * size,
            "v_reset": np.zeros(shape) if subtract else some(-0.3, 0.3) * size,
        }
    return fields, shape


def _windows(
    fields: dict[str, Any], kind: str, shape: Shape, rng: np.random.Generator, draw: st.DrawFn, weights: Any
) -> tuple[dict[str, Any], Shape]:
    channels, *spatial = shape
    pool = kind.endswith("Pool2d")

    def each(low: int, high: int, label: str) -> list[int]:
        return [draw(st.integers(low, high), label=label) for _ in spatial]

    kernel, stride, padding = each(1, 3, "kernel"), each(1, 3, "stride"), each(0, 3, "padding")
    dilation = [1 for _ in spatial] if pool else each(1, 2, "dilation")
    reach = [d * (k - 1) for k, d in zip(kernel, dilation, strict=True)]
    if draw(st.integers(0, 4), label="same") == 4 and not pool:
        stride, total = [1 for _ in spatial], reach
        fields["padding"] = "same"
    else:
        padding = [max(p, -(-(r + 1 - n) // 2)) for p, r, n in zip(padding, reach, spatial, strict=True)]
        total = [2 * p for p in padding]
        fields["padding"] = np.array(padding)
    outputs = [(n + p - r - 1) // s + 1 for n, p, r, s in zip(spatial, total, reach, stride, strict=True)]
    fields["stride"] = np.array(stride)
    if pool:
        return fields | {"kernel_size": np.array(kernel)}, (channels, *outputs)
    groups = draw(st.sampled_from([g for g in (1, channels) if channels % g == 0]), label="groups")
    features = groups * draw(st.integers(1, 2), label="features")
    fields |= {"dilation": np.array(dilation), "groups": groups, "input_shape": np.array(spatial)}
    fields["weight"] = weights(features, channels // groups, *kernel)
    if draw(st.booleans(), label="bias"):
        fields["bias"] = weights(features)
    return fields, (features, *outputs)
