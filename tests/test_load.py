# SPDX-License-Identifier: Apache-2.0
"""`snn_builder.load`: the compiled network on NumPy arrays gives what the reference gives."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import CONSTRUCTED, CONSTRUCTED_DT, ROOT, chain, lif, reset_of, two_ends

import snn_builder
from snn_builder import host, progress
from snn_builder.errors import Refused, SnnError, Unreadable
from snn_builder.host import HostNetwork
from snn_builder.options import Options
from snn_builder.pipeline import compile_network
from snn_builder.reference import simulate

RNG = np.random.RandomState(3)
ZIG = f"{sys.executable} -m ziglang cc -g0"


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def own_cache(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SNN_BUILDER_CACHE", str(cache))
    monkeypatch.delenv("CC", raising=False)


@pytest.fixture
def net(tmp_path: Path) -> Path:
    return chain(tmp_path / "net.nir", np.array([[0.6, -0.4], [0.3, 0.8]]), lif(2))


def expected(path: Path, inputs: dict[str, np.ndarray], options: Options) -> dict[str, np.ndarray]:
    """(samples, steps, ...) by Output."""
    return simulate(compile_network(path, options), inputs).outputs


def same_bits(ours: np.ndarray, reference: np.ndarray) -> None:
    assert ours.dtype == reference.dtype and ours.shape == reference.shape
    assert ours.tobytes() == reference.tobytes()
    assert np.any(reference)


@pytest.mark.parametrize("quantize", [False, True], ids=["float", "int8"])
@pytest.mark.parametrize(
    "name", ["conv_flatten_li", "delay_loop", "leak_reset", "per_neuron_gain", "recurrent_bias", "saturation", "subtract", "tiny_weights"]
)  # fmt: skip
def test_constructed_networks(name: str, quantize: bool) -> None:
    path = CONSTRUCTED / name / f"{name}.nir"
    words: dict[str, Any] = {"quantize": quantize, "dt": CONSTRUCTED_DT, "reset": reset_of(name)}
    data = np.load(path.with_name("input.npy"))
    loaded = snn_builder.load(path, **words)
    (source,), (target,) = loaded.inputs, loaded.outputs
    one, two = data, np.roll(data, 3, axis=0)
    reference = expected(path, {source: np.stack([one, two])}, Options(**words))[target]
    same_bits(loaded.run(one), reference[0])
    same_bits(loaded.run(np.stack([one, two])), reference)
    same_bits(loaded.run(two.reshape(len(two), -1)), reference[1])  # a flat layer, from rest again


@pytest.mark.parametrize("quantize", [False, True], ids=["float", "int8"])
def test_steps_and_instances(net: Path, quantize: bool) -> None:
    """Two instances that take turns give what each gives alone; a run can be cut anywhere."""
    data = (RNG.random_sample((2, 40, 2)) < 0.5).astype(np.int8)
    reference = expected(net, {"input": data}, Options(quantize=quantize))["output"]
    a, b = (snn_builder.load(net, quantize=quantize) for _ in range(2))
    rows = [(a.step(data[0, t]), b.step(data[1, t].tolist())) for t in range(40)]
    for sample, index in ((0, 0), (1, 1)):
        same_bits(np.stack([row[index] for row in rows]), reference[sample])
    a.reset()
    first = a.run(data[0, :13], rest=False)
    same_bits(np.concatenate([first, a.run(data[0, 13:], rest=False)]), reference[0])


@pytest.mark.parametrize("quantize", [False, True], ids=["float", "int8"])
@pytest.mark.parametrize("kind", ["int8", "bool", "int64", "uint8", "float32", "float64", "strided", "reversed"])
def test_data_of_any_type_is_converted_in_parts(
    net: Path, quantize: bool, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Parts of three or four steps: 23 are no multiple of them."""
    monkeypatch.setattr(host, "ROOM", 8 if quantize else 24)
    spikes = RNG.random_sample((2, 23, 2)) < 0.5
    data = spikes.astype(np.float32 if kind in ("strided", "reversed") else kind)
    if kind == "strided":
        data = np.asfortranarray(data)
    elif kind == "reversed":
        data = data[:, ::-1]
    before = data.copy()
    reference = expected(net, {"input": before}, Options(quantize=quantize))["output"]
    loaded = snn_builder.load(net, quantize=quantize)
    same_bits(loaded.run(data), reference)
    assert np.array_equal(data, before)


@pytest.mark.parametrize("quantize", [False, True], ids=["float", "int8"])
def test_several_inputs_and_outputs(tmp_path: Path, quantize: bool) -> None:
    path = two_ends(tmp_path / "net.nir")
    data = {"left": RNG.randint(1, 3, (2, 7, 3)), "right": RNG.randint(0, 3, (2, 7, 2))}
    reference = expected(path, data, Options(quantize=quantize))
    loaded = snn_builder.load(path, quantize=quantize, name="two")
    for name, values in loaded.run(data).items():
        same_bits(values, reference[name])
    loaded.reset()
    out = loaded.step({name: values[0, 0] for name, values in data.items()})
    same_bits(out["vote"], reference["vote"][0, 0])
    assert list(loaded.inputs) == ["left", "right"] and loaded.outputs["vote"].frac_bits == (12 if quantize else 0)
    one = "the network's inputs are left, right; give a dict with one array per input"
    refused(lambda: loaded.run(data["left"]), f"{path}: {one}")
    refused(lambda: loaded.run({**data, "left": data["left"][:1]}), "the inputs differ in samples or steps")


def refused(call: Callable[[], object], *words: str, kind: type[SnnError] = Refused) -> None:
    with pytest.raises(kind) as caught:
        call()
    assert all(word in str(caught.value) for word in words), str(caught.value)


def test_data_that_does_not_fit(net: Path) -> None:
    loaded = snn_builder.load(net, quantize=True)
    before = loaded.step([1, 1])
    loaded.reset()
    refused(
        lambda: loaded.step(np.ones(3)),
        f"{net}: input: data of shape (3,) does not fit an input of 2; give 2; run() takes many steps",
    )
    refused(lambda: loaded.step(np.ones((4, 2))), "data of shape (4, 2) does not fit")
    refused(lambda: loaded.run(np.ones((4, 3))), "give steps x 2, or samples x steps x 2")
    refused(lambda: loaded.run(np.ones((0, 2))), "give at least one step")
    refused(lambda: loaded.step([0.5, 1]), "the input data is not whole")
    refused(lambda: loaded.step([np.nan, 1]), "not finite numbers")
    refused(lambda: loaded.step(np.array(["a", "b"])), "not finite numbers")
    np.testing.assert_array_equal(loaded.step([1, 1]), before)  # what is refused leaves the state alone


def test_saturated_input_is_counted(net: Path) -> None:
    data = np.array([[200, 1], [-129, 127]])
    loaded = snn_builder.load(net, quantize=True)
    same_bits(
        loaded.run(np.repeat(data, 9, 0)),
        expected(net, {"input": np.repeat(data, 9, 0)[None]}, Options(quantize=True))["output"][0],
    )
    assert loaded.saturated == 18
    assert (loaded.run(data // 2) is not None) and loaded.saturated == 0
    scaled = snn_builder.load(net, quantize=True, input_scale=4)
    same_bits(
        scaled.run(np.full((9, 2), 1.26)),
        expected(net, {"input": np.full((1, 9, 2), 1.26)}, Options(quantize=True, input_scale=4))["output"][0],
    )


# -- The library


def test_a_library_is_made_once(net: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = snn_builder.load(net).library
    assert cache in made.parents
    with monkeypatch.context() as patched:
        patched.setattr(subprocess, "run", lambda *_, **__: pytest.fail("compiled again"))
        assert snn_builder.load(net).library == made
    assert snn_builder.load(net, quantize=True).library != made
    chain(net, np.array([[0.1, 0.9], [0.9, 0.1]]), lif(2))
    assert snn_builder.load(net).library != made


def test_in_a_directory_of_ones_own(net: Path, tmp_path: Path) -> None:
    data = np.ones((20, 2))
    first = snn_builder.load(net, directory=tmp_path / "lib", name="mine")
    assert first.library == tmp_path / "lib" / "mine.so"
    before = first.run(data)
    again = snn_builder.load(first.library)
    np.testing.assert_array_equal(again.run(data), before)
    chain(net, np.array([[0.1, 0.9], [0.9, 0.1]]), lif(2))
    second = snn_builder.load(net, directory=tmp_path / "lib", name="mine")
    assert not np.array_equal(second.run(data), before)
    np.testing.assert_array_equal(first.run(data), before)  # what is loaded stays what it was
    same_bits(second.run(data), expected(net, {"input": data[None]}, Options())["output"][0])


def test_libraries_that_are_none(net: Path, tmp_path: Path) -> None:
    def load(path: Path, **options: Any) -> Callable[[], HostNetwork]:
        return lambda: snn_builder.load(path, **options)

    library = snn_builder.load(net, directory=tmp_path / "lib").library
    report = library.with_suffix(".json")
    refused(load(library, quantize=True), "a library has its options built in", kind=Unreadable)
    text = report.read_text()
    report.write_text(json.dumps(json.loads(text) | {"sha256": "0" * 64}))
    refused(load(library), "the .json beside it is of another model")
    report.write_text(json.dumps(json.loads(text) | {"name": "other"}))
    refused(load(library), f"{library}: cannot be loaded", kind=Unreadable)
    report.unlink()
    refused(load(library), "snn_network.json: cannot be read", kind=Unreadable)
    report.write_text(text)
    library.unlink()
    library.write_text("none")
    refused(load(library), f"{library}: cannot be loaded", kind=Unreadable)
    refused(load(tmp_path / "no.nir"), f"{tmp_path / 'no.nir'}: no such file; check the path", kind=Unreadable)
    refused(load(net, dt=-1.0), "dt -1.0 is not a timestep", kind=Unreadable)


def test_compilers(net: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refused(lambda: snn_builder.load(net, compiler="no-such-cc"), "compiler 'no-such-cc' is not found", kind=Unreadable)
    failing = tmp_path / "cc"
    failing.write_text("#!/bin/sh\necho 'x.c:1: error: no luck' >&2\nexit 1\n")
    failing.chmod(0o755)
    refused(lambda: snn_builder.load(net, compiler=str(failing)), f"{net}: {failing} failed: x.c:1: error: no luck")
    data = np.ones((20, 2))
    reference = expected(net, {"input": data[None]}, Options())["output"][0]
    monkeypatch.setenv("CC", ZIG)
    same_bits(snn_builder.load(net).run(data), reference)
    monkeypatch.delenv("CC")
    monkeypatch.setattr("shutil.which", lambda _: None)  # a machine without a compiler
    same_bits(snn_builder.load(net, directory=tmp_path / "zig").run(data), reference)


def test_a_compiler_behind_another_program(net: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """CC="ccache gcc": a later gcc compiles again, though ccache is the same."""
    for name, more in (("ccache", ""), ("cc-behind", f"{ZIG} ")):
        (tmp_path / name).write_text(f'#!/bin/sh\necho {name} >> "{tmp_path}/log"\nexec {more}"$@"\n')
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setenv("CC", "ccache cc-behind")
    counts = []
    for later in (False, False, True):
        if later:
            with (tmp_path / "cc-behind").open("a") as stream:
                stream.write("# a later one\n")
        snn_builder.load(net, directory=tmp_path / "made").run(np.ones((3, 2)))
        started = (tmp_path / "log").read_text().split()
        assert started[:2] == ["ccache", "cc-behind"]
        counts.append(len(started))
    assert counts == [counts[0], counts[0], 2 * counts[0]]


def test_progress(net: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A long run on a terminal says how far it is, and takes the line away; nothing is printed elsewhere."""
    loaded = snn_builder.load(net)
    data = np.ones((3, 50, 2))
    monkeypatch.setattr(progress, "QUIET", 0.0)
    quiet = loaded.run(data)
    assert capsys.readouterr() == ("", "")
    loaded._speed = 0.0
    monkeypatch.setattr(progress, "PERIOD", 0.0)
    np.testing.assert_array_equal(loaded.run(data, progress=True), quiet)
    *lines, last = capsys.readouterr().err.split("\r")[1:]
    assert lines[0].startswith("1 of 150 steps, ") and lines[-2].startswith("150 of 150 steps, 0 s left")
    assert last == "" and lines[-1].strip() == ""
    monkeypatch.setattr(progress, "QUIET", 60.0)
    loaded.run(data, progress=True)
    assert capsys.readouterr().err == ""


def test_bench_runs() -> None:
    model = ROOT / "models" / "digits"
    command = [sys.executable, "-m", "bench.load", model / "digits.nir", model / "input.npy"]
    printed = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT).stdout
    assert [line.split()[0] for line in printed.splitlines()] == ["mode", "float", "int8"]
