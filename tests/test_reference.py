# SPDX-License-Identifier: Apache-2.0
"""The reference simulator: bit for bit what the contract's networks expect, and small cases worked out by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support import (
    CONSTRUCTED,
    CONSTRUCTED_DT,
    CONSTRUCTED_NAMES,
    CORPUS,
    CORPUS_DT,
    chain,
    lif,
    needs_corpus,
    reset_of,
    terminal,
    write_nir,
)

from snn_builder.errors import Refused
from snn_builder.options import Options
from snn_builder.pipeline import compile_network
from snn_builder.reference import Simulation, rescale, simulate


def run(path: Path, data: np.ndarray, options: Options) -> Simulation:
    """One run; `data` is (steps, ...)."""
    program = compile_network(path, options)
    return simulate(program, {program.network.terminals("Input")[0].name: data[None]}, trace=True)


def only(result: Simulation) -> np.ndarray:
    (output,) = result.outputs.values()
    return output[0]


def assert_same_bits(ours: np.ndarray, expected: np.ndarray) -> None:
    expected = expected.reshape(ours.shape)
    if ours.dtype == np.float32:
        np.testing.assert_array_equal(
            ours.view(np.uint32), (expected.astype(np.float32) + np.float32(0)).view(np.uint32)
        )
    else:
        np.testing.assert_array_equal(ours, expected)


@pytest.mark.parametrize("quantize", [False, True], ids=["float", "int8"])
@pytest.mark.parametrize("name", CONSTRUCTED_NAMES)
def test_constructed_networks(name: str, quantize: bool) -> None:
    folder = CONSTRUCTED / name
    options = Options(quantize=quantize, dt=CONSTRUCTED_DT, reset=reset_of(name))
    result = run(folder / f"{name}.nir", np.load(folder / "input.npy"), options)
    assert_same_bits(only(result), np.load(folder / ("expected_int8.npy" if quantize else "expected.npy")))


@needs_corpus
@pytest.mark.parametrize("quantize", [False, True], ids=["float", "int8"])
@pytest.mark.parametrize("name", CORPUS_DT)
def test_corpus(name: str, quantize: bool) -> None:
    folder = CORPUS / name
    options = Options(quantize=quantize, dt=CORPUS_DT[name])
    result = run(folder / f"{name}.nir", np.load(folder / "input.npy"), options)
    if name == "lif_norse":
        assert np.flatnonzero(only(result)).tolist() == [460, 510, 710, 760]
    else:
        assert_same_bits(only(result), np.load(folder / ("expected_int8.npy" if quantize else "expected.npy")))
    potentials = np.load(folder / ("expected_v_int8.npy" if quantize else "expected_v.npy"))
    order = compile_network(folder / f"{name}.nir", options).schedule.order
    last = [node for node in order if f"{node}.v" in result.trace][-1]
    assert_same_bits(result.trace[f"{last}.v"][0, : len(potentials)], potentials)
    if name == "tinynet" and not quantize:
        assert_same_bits(result.trace["lif1"][0], np.load(folder / "expected_layer1.npy"))


def test_lif_by_hand(tmp_path: Path) -> None:
    """decay 0.5, threshold 1: 0.75, 1.125 -> spike and reset to 0.25, then 0.125 + 0.75 = 0.875, 1.1875 -> spike."""
    neuron = lif(1, tau=np.array([0.002]), r=np.array([2.0]), v_reset=np.array([0.25]))
    path = chain(tmp_path / "net.nir", np.array([[0.75]]), neuron)
    for quantize in (False, True):
        result = run(path, np.ones((4, 1)), Options(quantize=quantize, dt=0.001))
        assert only(result)[:, 0].tolist() == [0, 1, 0, 1]
        unit = 4096 if quantize else 1
        assert (result.trace["neuron.v"][0, :, 0] / unit).tolist() == [0.75, 0.25, 0.875, 0.25]


def test_threshold_is_strict(tmp_path: Path) -> None:
    path = chain(tmp_path / "net.nir", np.array([[1.0]]), lif(1))
    assert only(run(path, np.ones((1, 1)), Options(dt=0.001))).tolist() == [[0]]


def test_subtract_by_hand(tmp_path: Path) -> None:
    """An IF neuron, 1.5 a step, threshold 1: 1.5 -> 0.5, 2.0 -> 1.0, 2.5 -> 1.5."""
    neuron = {"type": "IF", "r": np.ones(1), "v_threshold": np.ones(1)}
    path = chain(tmp_path / "net.nir", np.array([[1.5]]), neuron)
    result = run(path, np.ones((3, 1)), Options(reset="subtract"))
    assert only(result)[:, 0].tolist() == [1, 1, 1]
    assert result.trace["neuron.v"][0, :, 0].tolist() == [0.5, 1.0, 1.5]


def test_cuba_by_hand(tmp_path: Path) -> None:
    """The new current drives the voltage: i = 1, 0.5, 0.25; v = 1, 0.5 + 0.5, 0.5 + 0.25."""
    neuron = {
        "type": "CubaLI",
        "tau_mem": np.array([0.002]),
        "tau_syn": np.array([0.002]),
        "r": np.array([2.0]),
        "w_in": np.array([2.0]),
    }
    path = chain(tmp_path / "net.nir", np.array([[1.0]]), neuron | {"v_leak": np.zeros(1)})
    result = run(path, np.array([[1], [0], [0]]), Options(dt=0.001))
    assert result.trace["neuron.i"][0, :, 0].tolist() == [1, 0.5, 0.25]
    assert only(result)[:, 0].tolist() == [1, 1, 0.75]


def test_feedback_carries_the_previous_step(tmp_path: Path) -> None:
    """A neuron that excites itself: one input spike, then it fires for ever, from the step after on."""
    neuron = {"type": "IF", "r": np.ones(1), "v_threshold": np.array([0.5])}
    nodes = {
        "input": terminal("Input", 1),
        "output": terminal("Output", 1),
        "n": neuron,
        "back": {"type": "Linear", "weight": np.ones((1, 1))},
    }
    path = write_nir(tmp_path / "net.nir", nodes, [("input", "n"), ("n", "back"), ("back", "n"), ("n", "output")])
    result = run(path, np.array([[0], [1], [0], [0]]), Options())
    assert only(result)[:, 0].tolist() == [0, 1, 1, 1]


def test_sum_runs_in_name_order(tmp_path: Path) -> None:
    """1e8 - 1e8 + 1 is 1 in float32, any order that adds the 1 to 1e8 first is 0."""
    nodes: dict = {"input": terminal("Input", 1), "output": terminal("Output", 1), "n": {"type": "I", "r": np.ones(1)}}
    for name, weight in (("c", 1.0), ("a", 1e8), ("b", -1e8)):
        nodes[name] = {"type": "Linear", "weight": np.array([[weight]])}
    edges = [("input", "c"), ("c", "n"), ("input", "b"), ("b", "n"), ("input", "a"), ("a", "n"), ("n", "output")]
    assert only(run(write_nir(tmp_path / "net.nir", nodes, edges), np.ones((1, 1)), Options())).tolist() == [[1.0]]


def test_samples_are_independent(tmp_path: Path) -> None:
    path = chain(tmp_path / "net.nir", np.array([[0.6]]), lif(1))
    program = compile_network(path, Options(dt=0.001))
    together = simulate(program, {"input": np.array([[[1], [1], [1]], [[1], [0], [1]]])}).outputs["output"]
    for sample, data in zip(together, ([1, 1, 1], [1, 0, 1]), strict=True):
        np.testing.assert_array_equal(sample, only(run(path, np.array(data)[:, None], Options(dt=0.001))))


def test_input_beyond_int8_saturates_and_is_counted(tmp_path: Path) -> None:
    path = chain(tmp_path / "net.nir", np.array([[1.0]]), {"type": "I", "r": np.ones(1)})
    result = run(path, np.array([[200], [-200], [5]]), Options(quantize=True))
    assert result.saturated == 2
    assert (only(result)[:, 0] / 4096).tolist() == [127, -1, 4]


def test_fractions_need_an_input_scale(tmp_path: Path) -> None:
    path = chain(tmp_path / "net.nir", np.array([[1.0]]), {"type": "I", "r": np.ones(1)})
    with pytest.raises(Refused) as refusal:
        run(path, np.array([[0.5]]), Options(quantize=True))
    assert str(refusal.value) == (
        f"{path}: input: the input data is not whole, and integer mode takes int8; pass input_scale= (value = q * 2^-input_scale)"
    )
    result = run(path, np.array([[0.5], [0.3125]]), Options(quantize=True, input_scale=3))
    assert (only(result)[:, 0] / 4096).tolist() == [0.5, 0.75]  # 0.3125 * 8 = 2.5 rounds half to even


def test_rescale() -> None:
    big = np.array([2**31, -(2**31) - 1, 3, -3, 0])
    assert rescale(big, 0).tolist() == [2**31 - 1, -(2**31), 3, -3, 0]
    assert rescale(big, -1).tolist() == [2**30, -(2**30) - 1, 1, -2, 0]
    assert rescale(big, -80).tolist() == [0, -1, 0, -1, 0]
    assert rescale(np.array([1, -1, 0]), 31).tolist() == [2**31 - 1, -(2**31), 0]
    assert rescale(np.array([1, -1, 0]), 90).tolist() == [2**31 - 1, -(2**31), 0]


@pytest.mark.parametrize("quantize", [False, True], ids=["float", "int8"])
def test_late_reset_by_hand(tmp_path: Path, quantize: bool) -> None:
    """decay 0.5, 1.5 a step, threshold 1. Subtract: 1.5; 0.75 + 1.5 - 1 = 1.25; 0.625 + 1.5 - 1 = 1.125. Zero: 1.5; 0 + 1.5; ..."""
    neuron = lif(1, tau=np.array([0.002]), r=np.array([2.0]))
    path = chain(tmp_path / "net.nir", np.array([[1.5]]), neuron)
    unit = 4096 if quantize else 1
    for reset, potentials in (("subtract", [1.5, 1.25, 1.125]), ("zero", [1.5, 1.5, 1.5])):
        result = run(path, np.ones((3, 1)), Options(quantize=quantize, dt=0.001, reset=reset, reset_delay=1))
        assert (result.trace["neuron.v"][0, :, 0] / unit).tolist() == potentials
        assert only(result)[:, 0].tolist() == [1, 1, 1]


def test_late_reset_to_v_reset_gives_the_same_spikes(tmp_path: Path) -> None:
    weight = np.random.RandomState(3).uniform(-1, 1, (20, 10))
    path = chain(tmp_path / "net.nir", weight, lif(20, v_reset=np.full(20, -0.25)))
    data = (np.random.RandomState(4).random_sample((60, 10)) < 0.4).astype(np.int8)
    for quantize in (False, True):
        spikes = [only(run(path, data, Options(quantize=quantize, dt=0.001, reset_delay=delay))) for delay in (0, 1)]
        np.testing.assert_array_equal(*spikes)
        assert spikes[0].sum() > 100
