# SPDX-License-Identifier: Apache-2.0
"""The integer scheme: scales, rounding, and what it refuses (DESIGN 4.5)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import chain, lif, terminal, write_nir

from snn_builder.errors import Findings, Refused
from snn_builder.options import Options
from snn_builder.pipeline import compile_network
from snn_builder.program import Program
from snn_builder.quantise import mean, weight_scale


def quantised(
    path: Path,
    weight: Any,
    neuron: dict[str, Any],
    bias: Any = None,
    dt: float | None = 0.001,
    findings: Findings | None = None,
) -> Program:
    file = chain(path / "net.nir", np.array(weight, float), neuron, None if bias is None else np.array(bias, float))
    return compile_network(file, Options(quantize=True, dt=dt), findings)


@pytest.mark.parametrize(
    ("weights", "scale"),
    [
        ([1.0, -1.0], 6),  # 127 / 1 allows 2^6 only
        ([0.5, -1.0], 7),  # -1 * 2^7 = -128 fits
        ([127.0], 0),
        ([128.0], -1),
        ([-128.0, 0.0], 0),
        ([-129.0], -1),
        ([0.0, 0.0], 12),
        ([1e-30, 0.0], 106),
        ([-1.0, -1.0], 6),  # the formula's own word: |127 / max w| counts when max w is negative
    ],
)
def test_weight_scale(weights: list[float], scale: int) -> None:
    assert weight_scale(np.array(weights)) == scale


def test_rounding_is_half_to_even(tmp_path: Path) -> None:
    program = quantised(tmp_path, [[1.0, 0.5 / 64, 1.5 / 64, -0.5 / 64, -2.5 / 64]], lif(1))
    assert program.synapses["fc"].w_scale == 6
    assert program.synapses["fc"].weight.tolist() == [[64, 0, 2, 0, -2]]


def test_scale_is_lowered_until_the_bias_fits(tmp_path: Path) -> None:
    program = quantised(tmp_path, [[2.0**-16]], lif(1), [4096.0])
    # 127 * 2^16 allows w_scale 22, but 4096 * 2^22 is beyond int32
    assert program.synapses["fc"].w_scale == 18
    assert program.synapses["fc"].bias is not None and program.synapses["fc"].bias.tolist() == [2**30]


def test_gain_multiplier(tmp_path: Path) -> None:
    program = quantised(tmp_path, [[1.0]] * 4, lif(4, r=np.array([5.0, 10.0, 0.0, 3e5])))
    neuron = program.neurons["neuron"]
    assert neuron.gain is not None and neuron.gain_shift is not None
    # 0.5 = 16384 / 2^15; 1 = 16384 / 2^14; 0; 30000 has 14 bits before the point: e = 0
    assert neuron.gain.tolist() == [16384, 16384, 0, 30000]
    assert neuron.gain_shift.tolist() == [15, 14, 0, 0]


@pytest.mark.parametrize(
    ("neuron", "bias", "dt", "line"),
    [
        (lif(1, tau=np.array([100.0])), None, 0.001, "neuron: decay[0] is 0.99999, which rounds to 1 in Q12: the neuron would never leak; pass a larger dt, or use float mode (quantize=0)"),
        (lif(1, v_threshold=np.array([1e-4])), None, 0.001, "neuron: v_threshold[0] is 0.0001, which rounds to 0 in Q12: every input would fire; scale weights and threshold up, or use float mode (quantize=0)"),
        (lif(1, v_threshold=np.array([6e5])), None, 0.001, "neuron: v_threshold[0] is 600000, beyond int32 in Q12 (less than 524288); scale the network down, or use float mode (quantize=0)"),
        (lif(1, v_reset=np.array([-6e5])), None, 0.001, "neuron: v_reset[0] is -600000, beyond int32 in Q12 (less than 524288); scale the network down, or use float mode (quantize=0)"),
        (lif(1), [6e5], 0.001, "fc: bias[0] is 600000, beyond int32 in Q12 (less than 524288); scale the network down, or use float mode (quantize=0)"),
        (lif(2, r=np.array([1e-5, 10.0])), None, 0.001, "neuron: gain[0] is 1e-06, too small for a 32-bit multiplier; pass another dt, scale r, or use float mode (quantize=0)"),
    ],
)  # fmt: skip
def test_refused(tmp_path: Path, neuron: dict[str, Any], bias: Any, dt: float, line: str) -> None:
    with pytest.raises(Refused) as caught:
        quantised(tmp_path, [[1.0]] * len(neuron["tau"]), neuron, bias, dt)
    assert str(caught.value) == f"{tmp_path / 'net.nir'}: {line}"


@pytest.mark.parametrize(("height", "fits"), [(362, True), (363, False)])  # of an area below and above 2^17
def test_a_mean_over_too_many_is_refused(tmp_path: Path, height: int, fits: bool) -> None:
    pool = {"type": "AvgPool2d", "kernel_size": [height, 362], "stride": [1, 1], "padding": [0, 0]}
    nodes = {"i": terminal("Input", 1, height, 362), "p": pool, "o": terminal("Output", 1, 1, 1)}
    path = write_nir(tmp_path / "net.nir", nodes, [("i", "p"), ("p", "o")])
    if fits:
        network = compile_network(path, Options(quantize=True)).network
        assert mean(network.nodes["p"]) == (round(2**31 / (height * 362)), 31)  # type: ignore[arg-type]
    else:
        with pytest.raises(Refused) as caught:
            compile_network(path, Options(quantize=True))
        problem = f"p: gain[0] is {1 / (height * 362):.7g}, too small for a 32-bit multiplier"
        assert str(caught.value) == f"{path}: {problem}; pool smaller windows, or use float mode (quantize=0)"


@pytest.mark.parametrize("value", [1e300, 1e308])
@pytest.mark.filterwarnings("error")
def test_extreme_numbers_are_refused_without_a_warning(tmp_path: Path, value: float) -> None:
    for field, changed in (("v_threshold", lif(1, v_threshold=np.array([value]))), ("bias", lif(1))):
        with pytest.raises(Refused, match=rf"{field}\[0\] is 1e\+30[08], beyond int32 in Q12"):
            quantised(tmp_path, [[1.0]], changed, [value] if field == "bias" else None)


def test_lost_precision_is_warned_about(tmp_path: Path) -> None:
    findings = Findings("x")
    quantised(tmp_path, [[1.0]], lif(1, v_threshold=np.array([0.0004])), findings=findings)
    assert [(item.level, item.node, item.problem) for item in findings.items] == [
        ("warning", "neuron", "v_threshold 0.0004 loses 22 % in 12 fraction bits")
    ]


def test_float_mode_takes_what_int8_cannot(tmp_path: Path) -> None:
    path = chain(tmp_path / "net.nir", np.ones((1, 1)), lif(1, tau=np.array([100.0]), v_threshold=np.array([1e-4])))
    assert compile_network(path, Options(dt=0.001)).neurons["neuron"].threshold is not None


def test_float_mode_refuses_what_float32_cannot_hold(tmp_path: Path) -> None:
    path = chain(tmp_path / "net.nir", np.array([[1e39]]), lif(1))
    with pytest.raises(Refused) as caught:
        compile_network(path, Options(dt=0.001))
    assert str(caught.value) == f"{path}: fc: weight is beyond the range of a 32-bit float; scale the network down"


def test_subtract_needs_v_reset_zero(tmp_path: Path) -> None:
    path = chain(tmp_path / "net.nir", np.ones((1, 1)), lif(1, v_reset=np.array([0.5])))
    with pytest.raises(Refused) as caught:
        compile_network(path, Options(dt=0.001, reset="subtract"))
    assert (
        str(caught.value)
        == f"{path}: neuron: reset=subtract, but v_reset is not 0; leave reset=subtract out, or store v_reset 0"
    )
