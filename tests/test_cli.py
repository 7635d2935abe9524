# SPDX-License-Identifier: Apache-2.0
"""The command line: exit status, one line per error, and no half-written file."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from support import CORPUS, chain, lif, needs_corpus, terminal, write_nir

from snn_builder.__main__ import main


@pytest.fixture
def net(tmp_path: Path) -> Path:
    return chain(tmp_path / "net.nir", np.array([[0.6, -0.4], [0.3, 0.8]]), lif(2))


def refused(capsys: pytest.CaptureFixture[str], status: int, *words: str | Path) -> str:
    """The one line, without `error: `."""
    assert main([str(word) for word in words]) == status
    printed = capsys.readouterr()
    assert printed.out == "" and printed.err.startswith("error: ") and printed.err.count("\n") == 1
    return printed.err.removeprefix("error: ").rstrip("\n")


def test_generate_writes_all_files(net: Path, tmp_path: Path) -> None:
    assert main(["generate", str(net), "-o", str(tmp_path / "out"), "--name", "gesture", "--quantize"]) == 0
    names = ["gesture.c", "gesture.h", "gesture.json", "gesture.lowered.mlir", "gesture.mlir", "gesture_weights.c"]
    assert sorted(os.listdir(tmp_path / "out")) == names


def test_stages_one_by_one_give_the_same_bytes(net: Path, tmp_path: Path) -> None:
    assert main(["generate", str(net), "-o", str(tmp_path / "whole")]) == 0
    parts = tmp_path / "parts"
    assert main(["export", str(net), "-o", str(parts)]) == 0
    assert main(["lower", str(parts / "snn_network.mlir"), "-o", str(parts / "snn_network.lowered.mlir")]) == 0
    assert main(["emit-c", str(parts / "snn_network.lowered.mlir"), "-o", str(parts / "snn_network.c")]) == 0
    for file in (tmp_path / "whole").iterdir():
        assert file.read_bytes() == (parts / file.name).read_bytes(), file.name


@pytest.mark.parametrize(
    ("status", "words", "line"),
    [
        (2, ["generate"], "the following arguments are required: FILE, -o; see python -m snn_builder generate --help"),
        (2, ["frobnicate"], None),
        (2, ["generate", "NET", "-o", "OUT", "--reset", "later"], None),
        (2, ["generate", "NET", "-o", "OUT", "--dt", "0"], "dt 0.0 is not a timestep; pass a positive number in the file's unit of time"),
        (2, ["generate", "NET", "-o", "OUT", "--dt", "nan"], "dt nan is not a timestep; pass a positive number in the file's unit of time"),
        (2, ["generate", "NET", "-o", "OUT", "--name", "Net-1"], "name 'Net-1' cannot prefix C symbols; use lower-case letters, digits and underscores, a letter first"),
        (2, ["generate", "NET", "-o", "OUT", "--quantize", "--input-scale", "17"], "input_scale 17 is out of range; use -16 to 16"),
        (2, ["generate", "NET", "-o", "OUT", "--input-scale", "3"], "input_scale needs integer mode; add --quantize, or leave input_scale out"),
        (2, ["generate", "NO.nir", "-o", "OUT"], "NO.nir: no such file; check the path"),
        (2, ["lower", "NO.mlir", "-o", "OUT"], "NO.mlir: cannot be read (No such file or directory); check the path"),
        (2, ["simulate", "NET", "--input", "NO.npy", "--output", "OUT"], "NO.npy: no such file; check the path"),
        (2, ["run", "NO", "--", "true"], "NO/reference.npz: no such file; check the path"),
    ],
)  # fmt: skip
def test_bad_usage(
    capsys: pytest.CaptureFixture[str], net: Path, tmp_path: Path, status: int, words: list[str], line: str | None
) -> None:
    told = refused(capsys, status, *({"NET": net, "OUT": tmp_path / "out"}.get(word, word) for word in words))
    assert line is None or told == line
    assert not (tmp_path / "out").exists()


def test_a_refusal_writes_nothing(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = chain(tmp_path / "net.nir", np.ones((1, 1)), lif(1, r=np.ones(1)))
    assert "no timestep" in refused(capsys, 1, "generate", path, "-o", tmp_path / "out")
    assert "no timestep" in refused(capsys, 1, "simulate", path, "--input", path, "--output", tmp_path / "out")
    assert os.listdir(tmp_path) == ["net.nir"]


def test_output_that_cannot_be_written(capsys: pytest.CaptureFixture[str], net: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    line = refused(capsys, 2, "generate", net, "-o", tmp_path / "file" / "out")
    assert line.endswith("cannot be written (Not a directory); check the path, its permissions and the space left")


@pytest.mark.parametrize(
    ("command", "text", "problem"),
    [
        ("lower", "hello", "not a module of the snn dialect: "),
        ("emit-c", "hello", "not a lowered module: "),
        ("emit-c", "module {}", "not a lowered module: it has no attribute snn.name; make it with `python -m snn_builder lower`"),
    ],
)  # fmt: skip
def test_text_that_is_no_network(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, command: str, text: str, problem: str
) -> None:
    (tmp_path / "x.mlir").write_text(text)
    line = refused(capsys, 2, command, tmp_path / "x.mlir", "-o", tmp_path / "y")
    assert line.startswith(f"{tmp_path / 'x.mlir'}: {problem}")
    assert not (tmp_path / "y").exists()


def test_simulate(net: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "run.npy", np.ones((5, 2), np.int8))
    np.save(tmp_path / "samples.npy", np.ones((3, 5, 2), np.int8))
    words = ["simulate", str(net), "--output", str(tmp_path / "out.npy"), "--trace", str(tmp_path / "trace.npz")]
    assert main([*words, "--input", str(tmp_path / "samples.npy")]) == 0
    assert np.load(tmp_path / "out.npy").shape == (3, 5, 2)
    assert main([*words, "--input", str(tmp_path / "run.npy")]) == 0
    out, trace = np.load(tmp_path / "out.npy"), np.load(tmp_path / "trace.npz")
    assert out.shape == (5, 2) and set(trace.files) == {"input", "fc", "neuron", "neuron.v", "output"}
    np.testing.assert_array_equal(trace["neuron"], out)


@pytest.mark.parametrize(
    ("shape", "line"),
    [
        ((5, 3), "input: data of shape (5, 3) does not fit an input of 2; give steps x 2, or samples x steps x 2"),
        ((5,), "input: data of shape (5,) does not fit an input of 2; give steps x 2, or samples x steps x 2"),
    ],
)
def test_data_that_does_not_fit(
    capsys: pytest.CaptureFixture[str], net: Path, tmp_path: Path, shape: tuple[int, ...], line: str
) -> None:
    np.save(tmp_path / "in.npy", np.zeros(shape))
    path = tmp_path / "in.npy"
    assert refused(capsys, 1, "simulate", net, "--input", path, "--output", tmp_path / "o.npy") == f"{path}: {line}"


def test_data_that_is_none(capsys: pytest.CaptureFixture[str], net: Path, tmp_path: Path) -> None:
    (tmp_path / "in.npy").write_bytes(b"\x93NUMPY\x01\x00garbage")
    line = refused(capsys, 2, "simulate", net, "--input", tmp_path / "in.npy", "--output", tmp_path / "o.npy")
    assert line == f"{tmp_path / 'in.npy'}: not a NumPy array file; save it with numpy.save (no pickled objects)"


def test_several_inputs_come_by_name(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    nodes = {
        "a": terminal("Input", 2),
        "b": terminal("Input", 2),
        "x": terminal("Output", 2),
        "y": terminal("Output", 2),
    }
    net = write_nir(tmp_path / "net.nir", nodes, [("a", "x"), ("b", "y")])
    data = {"a": np.array([[1, 2]]), "b": np.array([[3, 4]])}
    np.savez(tmp_path / "in.npz", **data)
    assert main(["simulate", str(net), "--input", str(tmp_path / "in.npz"), "--output", str(tmp_path / "out.npz")]) == 0
    out = np.load(tmp_path / "out.npz")
    assert out["x"].tolist() == [[1, 2]] and out["y"].tolist() == [[3, 4]]
    np.save(tmp_path / "one.npy", data["a"])
    line = refused(capsys, 1, "simulate", net, "--input", tmp_path / "one.npy", "--output", tmp_path / "out.npz")
    assert (
        line
        == f"{tmp_path / 'one.npy'}: the network's inputs are a, b; save one array per input, by name, with numpy.savez"
    )


@needs_corpus
def test_lif_norse_needs_dt(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = CORPUS / "lif_norse" / "lif_norse.nir"
    assert refused(capsys, 1, "generate", path, "-o", tmp_path / "out") == (
        f"{path}: no timestep: the file does not say dt and it cannot be inferred (1: tau/r = 0.0025); "
        "pass dt= in the file's unit of time, the one used in training"
    )


def test_importing_the_package_loads_nothing_heavy() -> None:
    program = "import sys, snn_builder, snn_builder.errors, snn_builder.options; print(sorted({'numpy', 'h5py', 'nir', 'mlir'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout == "[]\n"


def test_public_api(net: Path, tmp_path: Path) -> None:
    import snn_builder

    assert list(snn_builder.read(net).nodes) == ["fc", "input", "neuron", "output"]
    assert '"snn.linear"' in snn_builder.to_mlir(net, quantize=True)
    np.save(tmp_path / "in.npy", np.ones((5, 2)))
    assert snn_builder.simulate(net, tmp_path / "in.npy")["output"].shape == (5, 2)
    snn_builder.generate(net, tmp_path / "a", snn_builder.Options(quantize=True))
    assert json.loads((tmp_path / "a" / "snn_network.json").read_text())["options"]["quantize"] is True
    with pytest.raises(AttributeError):
        snn_builder.nonsense  # noqa: B018
