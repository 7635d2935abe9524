# SPDX-License-Identifier: Apache-2.0
"""Baked input, and the reading of what a board printed: every way in which a printout can be wrong is told."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import chain, lif

from snn_builder.data import arrays_as_bytes
from snn_builder.errors import Refused, Unreadable
from snn_builder.harness import bake, checks_of, class_of, decode, run
from snn_builder.options import Options


def board(folder: Path, text: str, status: int = 0) -> list[str]:
    """A program that prints `text`."""
    (folder / "board.py").write_text(f"import sys; sys.stdout.write({text!r}); sys.exit({status})")
    return [sys.executable, str(folder / "board.py")]


@pytest.fixture
def spikes(tmp_path: Path) -> Path:
    """2 samples of 3 steps and 10 outputs; sample 0 is of class 1, sample 1 of class 9."""
    outputs = np.zeros((2, 3, 10), np.int8)
    outputs[0, :, 1] = 1
    outputs[0, 0, 8] = 1
    outputs[1, 2, 9] = 1
    reference: dict[str, Any] = {
        "outputs": outputs, "many": np.array(True), "layers": np.array(["lif2"]), "sizes": np.array([10]),
        "spiking": np.array(True), "frac_bits": np.zeros(10, int), "labels": np.array([1, 4]),
        "float_outputs": outputs.astype(np.float32),
    }  # fmt: skip
    (tmp_path / "reference.npz").write_bytes(arrays_as_bytes(reference))
    return tmp_path


RIGHT = "0 020102000200 1\n1 000000000002 9\nSNN ok errors=0 steps=6 cycles=120\n"


def test_a_right_printout(spikes: Path) -> None:
    said: list[str] = []
    assert run(spikes, board(spikes, RIGHT), True, said.append) == 0
    assert said == [
        "sample 0: class 1, label 1",
        "sample 1: class 9, label 4  <- wrong",
        "accuracy 50.0 % of 2 samples",
        "against reference: 5 spikes to 5, F1 1.0000",
        "against float: 5 spikes to 5, F1 1.0000",
        "20 instructions per step",
    ]
    result = json.loads((spikes / "result.json").read_text())
    assert result["mismatches"] == 0 and result["steps"] == 6 and result["spikes"] == 5 and result["accuracy"] == 0.5
    np.testing.assert_array_equal(np.load(spikes / "outputs.npy"), np.load(spikes / "reference.npz")["outputs"])


@pytest.mark.parametrize(
    ("text", "status", "line"),
    [
        (RIGHT.replace("0 020102000200", "0 020102000300"), 0, "sample 0, step 2, layer lif2, neuron 0: board 1, reference 0 (1 values differ)"),
        (RIGHT.replace("ok errors=0", "fail errors=1"), 1, "outputs agree, but the board reported 1 errors and exit status 1"),
        (RIGHT, 3, "outputs agree, but the board reported 0 errors and exit status 3"),
        (RIGHT.replace("0 1\n", "0 2\n"), 0, "sample 0: the outputs agree, but not the class that the board made of them"),
    ],
)  # fmt: skip
def test_a_wrong_result(spikes: Path, text: str, status: int, line: str) -> None:
    said: list[str] = []
    assert run(spikes, board(spikes, text, status), False, said.append) == 1
    assert said[-1] == f"error: {spikes}: {line}"
    assert (spikes / "result.json").exists()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "it stopped after 0 lines without its last line 'SNN ...'"),
        ("0 020102", "it stopped after 1 lines without its last line 'SNN ...': '0 020102'"),
        ("SNN ok errors=0 steps=6 cycles=1\n", "it printed 0 samples, not 2"),
        (RIGHT.replace("0 0201", "1 0201"), "line 1 is not a sample's: '1 020102000200 1'"),
        (RIGHT.replace("0 0201", "0 02"), "line 1 is not a sample's: '0 0202000200 1'"),
        (RIGHT.replace("0 0201", "0 0x01"), "line 1 is not a sample's: '0 0x0102000200 1'"),
    ],
)
def test_a_printout_that_is_none(spikes: Path, text: str, problem: str) -> None:
    (spikes / "result.json").write_text("{}")
    with pytest.raises(Refused) as caught:
        run(spikes, board(spikes, text, 2))
    remedy = "run the image by itself to see all of it"
    assert str(caught.value) == f"{spikes}: the board's printout is wrong: {problem} (exit status 2); {remedy}"
    assert not (spikes / "result.json").exists()  # an old result is not this run's


def test_a_program_that_is_not_there(spikes: Path) -> None:
    with pytest.raises(Unreadable) as caught:
        run(spikes, [str(spikes / "firmware.elf")])
    assert str(caught.value) == f"{spikes / 'firmware.elf'}: cannot be run (No such file or directory); build it first"


@pytest.mark.parametrize(("dtype", "hexes"), [(np.int32, "ffffffff7fffffff"), (np.float32, "3fc0000080000000")])
def test_numbers_come_as_their_patterns(dtype: type, hexes: str) -> None:
    values = {np.int32: [-1, 2**31 - 1], np.float32: [1.5, -0.0]}[dtype]
    reference = np.zeros((1, 1, 2), dtype)
    printed = decode(f"0 {hexes} 0\nSNN ok errors=0 steps=1 cycles=0\n", reference, 32)
    assert printed.outputs.tolist() == [[values]] and np.signbit(printed.outputs[0, 0, 1]) == (dtype is np.float32)


def test_checks_are_fnv1a() -> None:
    """Offset basis and prime of FNV-1a-32; "a" hashes to e40c292c, "foobar" to bf9cf968."""
    for word, check in ((b"a", 0xE40C292C), (b"foobar", 0xBF9CF968)):
        assert checks_of(np.frombuffer(word, np.int8).reshape(1, 1, -1), 8) == [check]
    whole = np.array([[[0x64636261]]], np.int32)  # "abcd", the lowest byte first
    assert checks_of(whole, 32) == checks_of(np.frombuffer(b"abcd", np.int8).reshape(1, 1, -1), 8)
    assert checks_of(np.array([[[1.0, 0.0]]], np.float32), 1) == checks_of(np.array([[[1, 0]]], np.int8), 8)


def test_class_is_the_first_of_equals() -> None:
    assert class_of(np.array([[0, 1, 1], [0, 1, 1]], np.int8)) == 1
    assert class_of(np.array([[100, 0], [100, 127]], np.int8)) == 0  # int8 sums would wrap


def test_bake(tmp_path: Path) -> None:
    net = chain(tmp_path / "net.nir", np.full((3, 10), 0.3), lif(3))
    data = np.zeros((2, 4, 10), np.int8)
    data[0, 0, 0] = data[0, 0, 9] = data[1, 3, 1] = 1
    np.save(tmp_path / "in.npy", data)
    np.save(tmp_path / "in.labels.npy", np.array([0, 2]))
    bake(net, tmp_path, Options(name="gesture", quantize=True), tmp_path / "in.npy")
    header, source = (tmp_path / "baked.h").read_text(), (tmp_path / "baked.c").read_text()
    for line in (
        '#include "gesture.h"',
        "#define BAKED_SAMPLES 2",
        "#define BAKED_STEPS 4 ",
        "#define BAKED_INPUT_BITS 1",
        "#define BAKED_OUTPUT_BITS 1",
    ):
        assert line in header
    assert "0x01, 0x02, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x02, 0x00" in source
    assert np.load(tmp_path / "reference.npz")["labels"].tolist() == [0, 2]
    data[0, 0, 0] = 2
    np.save(tmp_path / "in.npy", data)
    bake(net, tmp_path, Options(quantize=True), tmp_path / "in.npy")
    assert "#define BAKED_INPUT_BITS 8" in (tmp_path / "baked.h").read_text()


@pytest.mark.parametrize("labels", [np.zeros(3, int), np.zeros(2), np.zeros((2, 1), int)])
def test_labels_that_do_not_fit(tmp_path: Path, labels: np.ndarray) -> None:
    net = chain(tmp_path / "net.nir", np.ones((1, 1)), lif(1))
    np.save(tmp_path / "in.npy", np.zeros((2, 4, 1)))
    np.save(tmp_path / "labels.npy", labels)
    with pytest.raises(Refused) as caught:
        bake(net, tmp_path / "out", Options(), tmp_path / "in.npy", tmp_path / "labels.npy")
    assert str(caught.value) == (
        f"{tmp_path / 'labels.npy'}: labels do not fit 2 samples; save one whole number per sample, shape (samples,)"
    )
    assert not (tmp_path / "out").exists()


def test_random_spikes_are_the_same_everywhere(tmp_path: Path) -> None:
    net = chain(tmp_path / "net.nir", np.ones((2, 20)), lif(2))
    bake(net, tmp_path / "a", Options())
    bake(net, tmp_path / "b", Options())
    assert (tmp_path / "a" / "baked.c").read_bytes() == (tmp_path / "b" / "baked.c").read_bytes()
    assert "random spikes (seed 0)" in (tmp_path / "a" / "baked.h").read_text()
