# SPDX-License-Identifier: Apache-2.0
"""`check`: all findings at once, the graph as it runs, and the verdict that `generate` has."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import (
    CONSTRUCTED,
    CONSTRUCTED_DT,
    CONSTRUCTED_NAMES,
    CORPUS,
    chain,
    lif,
    needs_corpus,
    reset_of,
    terminal,
    write_nir,
)

import snn_builder
from snn_builder.__main__ import main
from snn_builder.options import Options


def checked(capsys: pytest.CaptureFixture[str], status: int, *words: str | Path) -> str:
    """What check prints, in the working directory's names."""
    assert main(["check", *map(str, words)]) == status
    printed = capsys.readouterr()
    assert printed.err == ""
    return printed.out


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def looped(path: Path, **changed: Any) -> Path:
    """input -> fc -> neuron -> output, and neuron -> back -> neuron."""
    nodes = {
        "input": terminal("Input", 1, 2, 2),
        "fc": {"type": "Affine", "weight": np.full((3, 4), 0.5), "bias": np.full(3, 0.25)},
        "back": {"type": "Linear", "weight": np.full((3, 3), 0.25)},
        "neuron": lif(3, **changed),
        "output": terminal("Output", 3),
    }
    edges = [("input", "fc"), ("fc", "neuron"), ("neuron", "back"), ("back", "neuron"), ("neuron", "output")]
    return write_nir(path, nodes, edges)


def test_supported(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    looped(tmp_path / "net.nir", v_leak=np.full(3, 1e-3))
    assert checked(capsys, 0, "net.nir", "--quantize", "--kernel", "dense") == (
        "net.nir: supported, int8, dt = 0.001 (inferred), state 16 bytes, weights and tables 33 bytes\n"
        "  warning: dt = 0.001 inferred from the file's time constants; pass dt=0.001 to be sure\n"
        "  warning: neuron: leak 0.0001 loses 100 % in 12 fraction bits; scale the network up, or use float mode\n"
        "  node    kind    shape   type     value  weights  state  constant  operations  of\n"
        "  back    Linear  3       int32_t  2^-12  2^-8         0         9           9  neuron (previous step)\n"
        "  input   Input   1x2x2   int8_t   2^0                 0         0           4\n"
        "  fc      Affine  4 -> 3  int32_t  2^-12  2^-7         0        24          12  input\n"
        "  neuron  LIF     3       int8_t   2^0                15         0           3  back + fc\n"
        "  output  Output  3       int8_t   2^0                 0         0           3  neuron\n"
        "  neuron -> back carries the previous step\n"
    )


def test_supported_in_float(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    chain(tmp_path / "net.nir", np.ones((2, 3)), lif(2))
    assert checked(capsys, 0, "net.nir", "--dt", "0.001") == (
        "net.nir: supported, f32, dt = 0.001 (option), state 8 bytes, weights and tables 24 bytes\n"
        "  node    kind    shape   type   state  constant  operations  of\n"
        "  input   Input   3       float      0         0           3\n"
        "  fc      Linear  3 -> 2  float      0        24           6  input\n"
        "  neuron  LIF     2       float      8         0           2  fc\n"
        "  output  Output  2       float      0         0           2  neuron\n"
    )


def test_operations_of_windows(tmp_path: Path) -> None:
    conv = {"type": "Conv2d", "weight": np.ones((4, 1, 3, 3)), "stride": 1, "padding": 0, "dilation": 1, "groups": 2,
            "input_shape": np.array([6, 6])}  # fmt: skip
    pool = {
        "type": "SumPool2d",
        "kernel_size": np.array([2, 2]),
        "stride": np.array([2, 2]),
        "padding": np.array([0, 0]),
    }
    nodes = {"a": terminal("Input", 2, 6, 6), "b": conv, "c": pool, "d": terminal("Output", 4, 2, 2)}
    write_nir(tmp_path / "net.nir", nodes, [("a", "b"), ("b", "c"), ("c", "d")])
    report = snn_builder.check("net.nir").network
    assert report is not None
    # 4 x 4 x 4 outputs of 9 taps in one channel; 4 x 2 x 2 windows of 4
    assert {layer["node"]: layer["operations"] for layer in report["layers"]} == {"a": 72, "b": 576, "c": 64, "d": 16}


def test_every_finding_at_once(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Two nodes with two errors, beside a repair."""
    nodes = {
        "input": terminal("Input", 2),
        "fc": {"type": "Affine", "weight": np.full((2, 2), np.nan)},
        "neuron": lif(2, tau=np.array([0.01, -1.0])),
        "output": terminal("Output", 2),
    }
    write_nir(tmp_path / "net.nir", nodes, [("input", "fc"), ("fc", "neuron"), ("neuron", "output")])
    assert checked(capsys, 1, "net.nir") == (
        "net.nir: refused\n"
        "  error: fc: weight[0, 0] is nan; every parameter must be a finite number: check the training\n"
        "  error: neuron: tau[1] is -1; a time constant must be positive\n"
    )


def test_stages_that_can_run_do(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Three stages: reset, the timestep, and the order of execution."""
    nodes = {
        "input": terminal("Input", 1),
        "a": {"type": "Scale", "scale": np.ones(1)},
        "b": {"type": "Scale", "scale": np.ones(1)},
        "d": {"type": "Delay", "delay": np.ones(1)},
        "neuron": lif(1, r=np.full(1, 3.3), v_reset=np.ones(1)),
        "output": terminal("Output", 1),
    }
    edges = [("input", "a"), ("a", "b"), ("b", "a"), ("b", "neuron"), ("b", "d"), ("d", "b"), ("neuron", "output")]
    write_nir(tmp_path / "net.nir", nodes, edges)
    assert checked(capsys, 1, "net.nir", "--reset", "subtract") == (
        "net.nir: refused\n"
        "  error: neuron: reset=subtract, but v_reset is not 0; leave reset=subtract out, or store v_reset 0\n"
        "  error: no timestep: the file does not say dt and it cannot be inferred (neuron: tau/r = 0.0030303); "
        "pass dt= in the file's unit of time, the one used in training\n"
        "  error: a: cycle without a neuron: a -> b -> a; "
        "put a neuron or a Delay into it: its value at this step would depend on itself\n"
    )


def test_several_files(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    chain(tmp_path / "good.nir", np.ones((1, 1)), lif(1))
    (tmp_path / "bad.nir").write_text("hello")
    told = checked(capsys, 2, "bad.nir", "good.nir", "none.nir", "--dt", "0.001").split("\n\n")
    assert told[0] == (
        "bad.nir: unreadable\n  error: not an HDF5 file, so not a NIR file; export the network with nir.write"
    )
    assert told[1].startswith("good.nir: supported, f32")
    assert told[2] == "none.nir: unreadable\n  error: no such file; check the path\n"
    assert not [path.name for path in tmp_path.iterdir() if path.suffix != ".nir"]


def test_json(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    looped(tmp_path / "net.nir")
    (tmp_path / "bad.nir").write_text("hello")
    good, bad = json.loads(checked(capsys, 2, "net.nir", "bad.nir", "--json", "--name", "gesture"))
    assert (good["file"], good["supported"], good["status"]) == ("net.nir", True, 0)
    assert good["findings"][0]["level"] == "warning" and good["findings"][0]["problem"].startswith(
        "dt = 0.001 inferred"
    )
    assert good["network"]["name"] == "gesture"
    assert good["network"]["previous_step_edges"] == [["neuron", "back"]]
    assert bad == {
        "supported": False,
        "file": "bad.nir",
        "status": 2,
        "findings": [
            {
                "level": "error",
                "node": "",
                "problem": "not an HDF5 file, so not a NIR file",
                "remedy": "export the network with nir.write",
            }
        ],
        "network": None,
    }


def test_a_name_that_only_the_export_refuses(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    nodes = {"in": terminal("Input", 1), "a.b": lif(1), "a_b": lif(1), "out": terminal("Output", 1)}
    write_nir(tmp_path / "net.nir", nodes, [("in", "a.b"), ("a.b", "a_b"), ("a_b", "out")])
    assert "  error: a_b: its name in C, a_b_v, is also that of node 'a.b'; rename one of the two nodes\n" in checked(
        capsys, 1, "net.nir", "--dt", "0.001"
    )


@pytest.mark.parametrize("name", CONSTRUCTED_NAMES)
def test_constructed_networks_are_supported(name: str) -> None:
    file = CONSTRUCTED / name / f"{name}.nir"
    assert snn_builder.check(file, Options(quantize=True, dt=CONSTRUCTED_DT, reset=reset_of(name))).supported


@needs_corpus
@pytest.mark.parametrize(
    ("name", "node", "problem"),
    [
        ("braille_subgraph_broken", "", "edge "),
        ("srnn_leak_reset", "cu1", "tau_mem[1] is -0.0831663"),
        ("srnn_no_reset", "cu1", "tau_mem[0] is -0.471835"),
        ("lif_norse", "", "no timestep: the file does not say dt"),
        ("lif_rockpool", "", "no timestep: the file does not say dt"),
    ],
)
def test_corpus_refusals(name: str, node: str, problem: str) -> None:
    report = snn_builder.check(CORPUS / name / f"{name}.nir")
    assert report.status == 1
    first = report.findings[0]
    assert first.level == "error" and first.problem.startswith(problem) and (not node or first.node == node)
