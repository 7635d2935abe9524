# SPDX-License-Identifier: Apache-2.0
"""Every node type in a case worked out by hand: the reference and the compiled kernel, in float and in integer mode; and random networks of all of them."""

from __future__ import annotations

import itertools
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from built import check
from hypothesis import HealthCheck, Phase, given, reject, settings
from random_networks import Drawn, networks
from support import terminal, write_nir

from snn_builder.errors import Refused
from snn_builder.nodes import SUPPORTED
from snn_builder.options import Options
from snn_builder.pipeline import compile_network

Q12 = 4096


class Case(NamedTuple):
    """`nodes` in a chain from an Input to an Output; one row per step. In integer mode an output is value * unit, or `integer`
    where rounding shows."""

    nodes: list[dict[str, Any]]
    input_shape: tuple[int, ...]
    steps: list[list[float]]
    expected: list[list[float]]
    unit: int = Q12
    integer: list[list[int]] | None = None


def node(kind: str, **fields: Any) -> dict[str, Any]:
    return {"type": kind} | {name: np.asarray(value) for name, value in fields.items()}


def pool(kind: str, kernel: int) -> dict[str, Any]:
    return node(kind, kernel_size=[kernel, kernel], stride=[kernel, kernel], padding=[0, 0])


# dt = 1, so tau 2 is a decay of 1/2, and r = 2 then a gain of 1.
LEAKY = node("LI", tau=[2.0], r=[4.0], v_leak=[0.0])  # v = v/2 + 2x
LEAKY_STEPS, LEAKY_EXPECTED = [[1], [0], [1]], [[2.0], [1.0], [2.5]]
NESTED = {
    "type": "NIRGraph",
    "nodes": {"input": terminal("Input", 1), "li": LEAKY, "output": terminal("Output", 1)},
    "edges": [("input", "li"), ("li", "output")],
}
# Two channels of 2 x 4: the windows of 2 x 2 hold 3 and 2 spikes, and 1 and 2.
POOLED = [[1, 0, 1, 1, 1, 1, 0, 0, 0, 1, 0, 0, 0, 0, 1, 1]]

CASES = {
    "Linear": Case(
        [node("Linear", weight=[[1.0, 2.0], [0.5, -1.0]])], (2,),
        [[1, 0], [0, 1], [1, 1]], [[1.0, 0.5], [2.0, -1.0], [3.0, -0.5]],
    ),
    "Affine": Case(
        [node("Affine", weight=[[1.0, 2.0], [0.5, -1.0]], bias=[0.25, -1.0])], (2,),
        [[0, 0], [1, 1]], [[0.25, -1.0], [3.25, -1.5]],
    ),
    "Scale": Case([node("Scale", scale=[2.0, -0.5])], (2,), [[1, 1], [0, 3]], [[2.0, -0.5], [0.0, -1.5]]),
    # Windows begin at -1 (only its second place is there: 2*1 + 8*0) and at 1 (1*0 + 2*1 + 4*1 + 8*1).
    "Conv1d": Case(
        [node("Conv1d", weight=[[[1.0, 2.0], [4.0, 8.0]]], stride=2, padding=1, dilation=1, groups=1, input_shape=3)],
        (2, 3), [[1, 0, 1, 0, 1, 1]], [[2.0, 14.0]],
    ),
    # One filter per channel, of [[1, 2], [3, 4]] and [[1, 0], [0, 1]]; a column of padding on both sides; bias 0 and 1.
    "Conv2d": Case(
        [node("Conv2d", weight=[[[[1.0, 0.0], [0.0, 1.0]]], [[[0.0, 1.0], [1.0, 0.0]]]], bias=[0.0, 1.0],
              stride=[1, 1], padding=[0, 1], dilation=[1, 1], groups=2, input_shape=[2, 2])],
        (2, 2, 2), [[1, 2, 3, 4, 1, 0, 0, 1]], [[3.0, 5.0, 2.0, 2.0, 1.0, 2.0]],
    ),
    # Taps two apart: rows 0 and 2, columns -1 and 1, then 1 and 3 of which -1 and 3 are padding.
    "Conv2d with dilation": Case(
        [node("Conv2d", weight=[[[[1.0, 2.0], [4.0, 8.0]]]], stride=[1, 2], padding=[0, 1], dilation=[2, 2], groups=1,
              input_shape=[3, 3])],
        (1, 3, 3), [[0, 1, 0, 1, 1, 1, 1, 1, 0]], [[2.0 + 8.0, 1.0 + 4.0]],
    ),
    "SumPool2d": Case([pool("SumPool2d", 2)], (2, 2, 4), POOLED, [[3.0, 2.0, 1.0, 2.0]], unit=1),
    "AvgPool2d": Case([pool("AvgPool2d", 2)], (2, 2, 4), POOLED, [[0.75, 0.5, 0.25, 0.5]]),
    # 1/9 is 29127 / 2^18, a little less: (9 * 4096 * 29127) >> 18. In float, 9 * f32(1/9) rounds to 1.
    "AvgPool2d of 3x3": Case([pool("AvgPool2d", 3)], (1, 3, 3), [[1] * 9], [[1.0]], integer=[[4095]]),
    # Channel 0 has the weights 1 and 2, channel 1 has 4 and 8.
    "Flatten": Case(
        [node("Flatten", start_dim=0, end_dim=-1, input_type=[2, 1, 2]), node("Linear", weight=[[1.0, 2.0, 4.0, 8.0]])],
        (2, 1, 2), [[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]], [[1.0], [2.0], [4.0], [8.0]],
    ),
    "Delay": Case(
        [node("Delay", delay=[0.0, 1.0, 2.0])], (3,),
        [[1, 2, 3], [4, 5, 6], [7, 8, 9], [1, 1, 1]], [[1.0, 0.0, 0.0], [4.0, 2.0, 0.0], [7.0, 5.0, 3.0], [1.0, 8.0, 6.0]],
        unit=1,
    ),
    "Threshold": Case(
        [node("Threshold", threshold=[1.0, 2.5])], (2,), [[1, 3], [2, 2]], [[0.0, 1.0], [1.0, 0.0]], unit=1
    ),
    # v = v/2 + x + 1/4: 1.25 fires and goes to -1/2; 1 is not above 1; 0.75; 0.625; 1.5625 fires.
    "LIF": Case(
        [node("LIF", tau=[2.0], r=[2.0], v_leak=[0.5], v_threshold=[1.0], v_reset=[-0.5])], (1,),
        [[1], [1], [0], [0], [1]], [[1.0], [0.0], [0.0], [0.0], [1.0]], unit=1,
    ),
    "LI": Case([LEAKY], (1,), LEAKY_STEPS, LEAKY_EXPECTED),
    # i = i/2 + 2x, v = v/2 + i: 2 fires; 1 is not above 1; 1; 0.75; 0.375 + 2.125 fires.
    "CubaLIF": Case(
        [node("CubaLIF", tau_syn=[2.0], tau_mem=[2.0], r=[2.0], w_in=[2.0 * 2], v_leak=[0.0], v_threshold=[1.0], v_reset=[0.0])],
        (1,), [[1], [0], [0], [0], [1]], [[1.0], [0.0], [0.0], [0.0], [1.0]], unit=1,
    ),
    # i = i/2 + x: 1, 1/2, 1/4; v = v/2 + i
    "CubaLI": Case(
        [node("CubaLI", tau_syn=[2.0], tau_mem=[2.0], r=[2.0], w_in=[2.0], v_leak=[0.0])], (1,),
        [[1], [0], [0]], [[1.0], [1.0], [0.75]],
    ),
    # v = v + x/2: 0.5; 1.5 fires and goes to 0.25; 0.75; 1.25 fires.
    "IF": Case(
        [node("IF", r=[0.5], v_threshold=[1.0], v_reset=[0.25])], (1,),
        [[1], [2], [1], [1]], [[0.0], [1.0], [0.0], [1.0]], unit=1,
    ),
    "I": Case([node("I", r=[0.5])], (1,), [[1], [1], [-2]], [[0.5], [1.0], [0.0]]),
    "NIRGraph": Case([NESTED], (1,), LEAKY_STEPS, LEAKY_EXPECTED),
}  # fmt: skip


def write_case(case: Case, path: Path) -> Path:
    """The case's chain as a file."""
    names = ["input", *(f"n{place}" for place in range(len(case.nodes))), "output"]
    nodes = [terminal("Input", *case.input_shape), *case.nodes, terminal("Output", len(case.expected[0]))]
    return write_nir(path, dict(zip(names, nodes, strict=True)), list(itertools.pairwise(names)))


@pytest.mark.parametrize("name", CASES)
def test_by_hand(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    file = write_case(case, tmp_path / "case.nir")
    options = [
        Options(name=f"{kernel}_{mode}", dt=1.0, quantize=mode == "int8", kernel=kernel)
        for kernel in ("event", "dense")
        for mode in ("f32", "int8")
    ]
    steps = np.array(case.steps, np.float64).reshape(1, len(case.steps), *case.input_shape)
    wanted = case.integer or (np.array(case.expected) * case.unit).astype(int).tolist()
    for chosen, found in zip(options, check(file, options, {"input": steps}, tmp_path), strict=True):
        assert found["output"][0].tolist() == (wanted if chosen.quantize else case.expected)


def test_what_hands_on_a_previous_step_is_read_after_it(tmp_path: Path) -> None:
    """The nested graph's Output carries m's previous step, also to readers that run after m."""
    nested = {
        "type": "NIRGraph",
        "nodes": {"input": terminal("Input", 1), "m": node("I", r=[1.0]), "output": terminal("Output", 1)},
        "edges": [("input", "m"), ("m", "output")],
    }
    nodes = {"input": terminal("Input", 1), "sub": nested, "output": terminal("Output", 1)}
    file = write_nir(tmp_path / "case.nir", nodes, [("input", "sub"), ("sub", "sub"), ("sub", "output")])
    options = [Options(name="f"), Options(name="q", quantize=True)]
    floats, integers = check(file, options, {"input": np.ones((1, 4, 1))}, tmp_path)
    # v = v + (1 + v of the step before): 1, 3, 7
    assert floats["output"].ravel().tolist() == [0, 1, 3, 7]
    assert integers["output"].ravel().tolist() == [0, Q12, 3 * Q12, 7 * Q12]


def test_every_node_type_is_here() -> None:
    assert set(SUPPORTED) - {"Input", "Output"} <= set(CASES)


# No shrinking: each attempt would compile two kernels.
@settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
@given(drawn=networks())
def test_kernels_are_the_reference(drawn: Drawn) -> None:
    with tempfile.TemporaryDirectory() as directory:
        file = write_nir(Path(directory) / "random.nir", drawn.nodes, drawn.edges)
        # Each graph in both kernels, with the modes in turn: four kernels each would take twice as long.
        one, other = ("event", "dense") if len(drawn.edges) % 2 else ("dense", "event")
        options = [
            Options(name="f", dt=1.0, reset=drawn.reset, kernel=one, form="column"),
            Options(name="q", dt=1.0, reset=drawn.reset, kernel=other, quantize=True),
        ]
        try:
            for chosen in options:
                compile_network(file, chosen)
        except Refused as refusal:
            if "cycle without a neuron" not in refusal.problem:
                raise
            reject()
        check(file, options, drawn.inputs, Path(directory))
