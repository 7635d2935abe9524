# SPDX-License-Identifier: Apache-2.0
"""dt and coefficients (DESIGN 4.2)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import CORPUS, chain, lif, needs_corpus, terminal, write_nir

from snn_builder.discretise import Discrete, discretise
from snn_builder.errors import Findings, Refused
from snn_builder.options import Options
from snn_builder.pipeline import compile_network
from snn_builder.reader import read


def discrete(path: Path, dt: float | None = None) -> Discrete:
    return discretise(read(path), dt, Findings(path))


def refusal(path: Path, dt: float | None = None) -> str:
    with pytest.raises(Refused) as caught:
        discrete(path, dt)
    return str(caught.value).removeprefix(f"{path}: ")


def test_dt_is_inferred_where_every_gain_says_it(tmp_path: Path) -> None:
    path = chain(
        tmp_path / "net.nir", np.ones((2, 1)), lif(2, tau=np.array([0.01, 0.02]), r=np.array([10.00005, 20.0]))
    )
    assert (discrete(path).dt, discrete(path).dt_from) == (0.001, "inferred")


@pytest.mark.parametrize(
    ("neuron", "why"),
    [
        (lif(1, r=np.ones(1)), "a decay of 0 would come out: a memoryless neuron"),
        (lif(1, r=np.array([10.002])), "2e-4 away from a two-digit number"),
        (lif(1, tau=np.array([0.0123]), r=np.array([10.0])), "three digits"),
        (lif(1, r=np.zeros(1)), "r is 0"),
    ],
)
def test_dt_is_not_guessed(tmp_path: Path, neuron: dict[str, Any], why: str) -> None:
    line = refusal(chain(tmp_path / "net.nir", np.ones((1, 1)), neuron))
    assert line.startswith("no timestep: the file does not say dt and it cannot be inferred (neuron: tau/r = "), why
    assert line.endswith("; pass dt= in the file's unit of time, the one used in training")


def test_two_layers_that_disagree(tmp_path: Path) -> None:
    nodes = {"i": terminal("Input", 1), "o": terminal("Output", 1), "a": lif(1), "b": lif(1, r=np.array([20.0]))}
    path = write_nir(tmp_path / "net.nir", nodes, [("i", "a"), ("a", "b"), ("b", "o")])
    assert refusal(path) == (
        "no timestep: the file does not say dt and it cannot be inferred (a: tau/r = 0.001; b: tau/r = 0.0005); "
        "pass dt= in the file's unit of time, the one used in training"
    )


def test_metadata_and_option_win(tmp_path: Path) -> None:
    nodes = {"i": terminal("Input", 1), "o": terminal("Output", 1), "n": lif(1)}
    path = write_nir(tmp_path / "net.nir", nodes, [("i", "n"), ("n", "o")], {"dt": 0.002})
    assert (discrete(path).dt, discrete(path).dt_from) == (0.002, "metadata")
    assert (discrete(path, 0.005).dt, discrete(path, 0.005).dt_from) == (0.005, "option")


def test_no_time_constant_needs_no_dt(tmp_path: Path) -> None:
    path = chain(tmp_path / "net.nir", np.ones((1, 1)), {"type": "I", "r": np.ones(1)})
    assert (discrete(path).dt, discrete(path).dt_from) == (None, "none needed")


def test_decay_outside_is_refused(tmp_path: Path) -> None:
    path = chain(tmp_path / "net.nir", np.ones((2, 1)), lif(2, tau=np.array([0.01, 0.0005])))
    assert (
        refusal(path, 0.001)
        == "neuron: tau[1] is 0.0005, shorter than dt = 0.001: decay -1 is outside [0, 1]; pass a smaller dt"
    )


def test_decay_near_zero_is_zero(tmp_path: Path) -> None:
    tau = float(np.float32(0.0017))  # 1 - dt/tau is not exactly 0
    path = chain(tmp_path / "net.nir", np.ones((1, 1)), lif(1, tau=np.array([tau])))
    assert 1 - 0.0017 / tau != 0
    assert discrete(path, 0.0017).neurons["neuron"].decay.tolist() == [0.0]


def test_uniform_gain_is_folded(tmp_path: Path) -> None:
    path = chain(tmp_path / "net.nir", np.array([[2.0], [4.0]]), lif(2, r=np.full(2, 5.0)), np.array([1.0, 3.0]))
    result = discrete(path, 0.001)
    assert result.neurons["neuron"].gain is None
    assert result.synapses["fc"].weight.tolist() == [[1.0], [2.0]]
    assert result.synapses["fc"].bias is not None and result.synapses["fc"].bias.tolist() == [0.5, 1.5]


def test_gain_differing_by_neuron_is_explicit(tmp_path: Path) -> None:
    path = chain(tmp_path / "net.nir", np.ones((2, 1)), lif(2, r=np.array([5.0, 10.0])))
    result = discrete(path, 0.001)
    assert result.neurons["neuron"].gain is not None and result.neurons["neuron"].gain.tolist() == [0.5, 1.0]
    assert result.synapses["fc"].weight.tolist() == [[1.0], [1.0]]


def test_gain_is_not_folded_where_the_synapse_feeds_others(tmp_path: Path) -> None:
    nodes = {
        "i": terminal("Input", 1), "o": terminal("Output", 1), "p": terminal("Output", 1),
        "fc": {"type": "Linear", "weight": np.ones((1, 1))}, "n": lif(1, r=np.array([5.0])),
    }  # fmt: skip
    result = discrete(
        write_nir(tmp_path / "net.nir", nodes, [("i", "fc"), ("fc", "n"), ("n", "o"), ("fc", "p")]), 0.001
    )
    assert result.neurons["n"].gain is not None and result.synapses["fc"].weight.tolist() == [[1.0]]


def test_gain_of_spikes_is_explicit(tmp_path: Path) -> None:
    nodes = {"i": terminal("Input", 1), "o": terminal("Output", 1), "n": lif(1, r=np.array([5.0]))}
    result = discrete(write_nir(tmp_path / "net.nir", nodes, [("i", "n"), ("n", "o")]), 0.001)
    assert result.neurons["n"].gain is not None and result.neurons["n"].gain.tolist() == [0.5]


def test_folded_weight_must_stay_finite(tmp_path: Path) -> None:
    path = chain(tmp_path / "net.nir", np.array([[3e38]]), lif(1, r=np.array([1e3])))
    assert refusal(path, 0.001) == (
        "fc: a weight times the gain 100 of neuron is not a finite float; scale the weights or r of the neuron down"
    )


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("neuron", "dt", "line"),
    [
        (lif(1, tau=np.array([1e-308])), 1e3, "tau[0] is 1e-308, shorter than dt = 1000: decay -inf is outside [0, 1]; pass a smaller dt"),
        (lif(1, r=np.array([1e308])), 1e-2, None),
        (lif(2, tau=np.full(2, 1e-3), r=np.array([1.0, 1e308]), v_leak=np.zeros(2)), 1e-3, None),
        (lif(2, tau=np.full(2, 1e10), r=np.array([1.0, 1e308])), 1e9, "gain[1] is not a finite number with dt = 1e+09; correct its parameters, or pass another dt"),
        (lif(2, tau=np.full(2, 1e10), v_leak=np.array([0, -1e308])), 1e9, "leak[1] is not a finite number with dt = 1e+09; correct its parameters, or pass another dt"),
        ({"type": "Delay", "delay": np.array([0.001, 1e300])}, 1e-10, "a delay of inf steps; at most 65535 steps fit: pass a larger dt"),
        ({"type": "Delay", "delay": np.array([1e300])}, 1e-3, "a delay of 1e+303 steps; at most 65535 steps fit: pass a larger dt"),
        ({"type": "Delay", "delay": np.array([70.0])}, 1e-3, "a delay of 70000 steps; at most 65535 steps fit: pass a larger dt"),
    ],
)  # fmt: skip
def test_extreme_numbers_are_refused_without_a_warning(
    tmp_path: Path, neuron: dict[str, Any], dt: float, line: str | None
) -> None:
    size = len(neuron["tau"] if "tau" in neuron else neuron["delay"])
    nodes = {"i": terminal("Input", size), "o": terminal("Output", size), "n": neuron}
    path = write_nir(tmp_path / "net.nir", nodes, [("i", "n"), ("n", "o")])
    if line is not None:
        assert refusal(path, dt) == f"n: {line}"
    else:
        for quantize in (False, True):
            with pytest.raises(
                Refused, match=r"n: gain.* is beyond the range of a 32-bit float|too large for a 32-bit"
            ):
                compile_network(path, Options(dt=dt, quantize=quantize))


@needs_corpus
@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("lif_norse", "1: tau/r = 0.0025"),
        ("lif_rockpool", "1_LIFNeuronTorch: tau/r = 0.00010408"),
        ("two_lif_neurons", "lif1: tau/r = 0.01; lif2: tau/r = 0.01"),
        ("feedback_graph", "feedback_ir: tau/r = 0.1; state: tau/r = 0.02"),
    ],
)
def test_corpus_files_that_do_not_say_dt(name: str, shown: str) -> None:
    assert refusal(CORPUS / name / f"{name}.nir") == (
        f"no timestep: the file does not say dt and it cannot be inferred ({shown}); pass dt= in the file's unit of time, the one used in training"
    )
