# SPDX-License-Identifier: Apache-2.0
"""The build's options: what they mean together, and the line for each that is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from snn_builder.boards import load
from snn_builder.errors import Unreadable
from snn_builder.options import Options
from snn_builder.scons.request import Request, find_boards, request
from snn_builder.scons.stages import flags

BOARD = """
description = "test"
toolchains = {{"mine": {{"cc": ["mine-gcc"], "install": "x"}}, "gcc": {{"cc": ["gcc"], "install": "x"}}}}
{more}
"""
RAM = 'options = {"ram": {"default": "64k", "values": {"64k": 65536, "128k": 131072}, "help": "RAM"}}'


@pytest.fixture(autouse=True)
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with two boards and some networks, as current directory."""
    monkeypatch.chdir(tmp_path)
    for name, more in (("host", ""), ("small", RAM)):
        (tmp_path / "boards" / name).mkdir(parents=True)
        (tmp_path / "boards" / name / "board.py").write_text(BOARD.format(more=more))
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "net.nir").touch()
    for name in ("input.npy", "input.labels.npy", "other.npy"):
        (tmp_path / "a" / name).touch()
    return tmp_path


def ask(**options: str) -> Request:
    words = {"model": "a/net.nir", **options}
    return request(words, find_boards(Path("boards"), words.get("board_path", "")))


def refusal(**options: str) -> str:
    with pytest.raises(Unreadable) as caught:
        ask(**options)
    assert caught.value.status == 2
    return str(caught.value)


def test_the_defaults() -> None:
    found = ask()
    assert [board.name for board in found.boards] == ["host"]
    assert (found.precisions, found.name, found.dt, found.reset, found.kernel) == (
        ("f32",),
        "snn_network",
        None,
        "zero",
        None,
    )
    assert found.options(found.boards[0], "f32") == Options()


def test_what_is_beside_the_model() -> None:
    (model,) = ask().models
    assert (model.path, model.stem, model.input, model.labels) == (
        "a/net.nir",
        "net",
        "a/input.npy",
        "a/input.labels.npy",
    )
    (model,) = ask(model="b/net.nir").models
    assert (model.input, model.labels) == (None, None)
    (model,) = ask(input="a/other.npy").models
    assert (model.input, model.labels) == ("a/other.npy", None), "the labels belong to their input"
    (model,) = ask(model="b/net.nir", input="a/other.npy", labels="a/input.labels.npy").models
    assert (model.input, model.labels) == ("a/other.npy", "a/input.labels.npy")


def test_all_boards_both_precisions() -> None:
    found = ask(board="all", quantize="both", ram="128k", input_scale="-3")
    assert [board.name for board in found.boards] == ["host", "small"]
    assert found.precisions == ("f32", "int8")
    assert found.board_options == {"host": {}, "small": {"ram": 131072}}
    assert found.options(found.boards[0], "int8") == Options(quantize=True, input_scale=-3)
    assert found.options(found.boards[0], "f32") == Options(), "input_scale is for integers"


def test_a_board_has_its_own_default_kernel() -> None:
    board = Path("boards/host/board.py")
    board.write_text(board.read_text() + 'kernel = "event"\n')
    assert ask().options(load("boards/host"), "f32").kernel == "event"
    assert ask(kernel="dense").options(load("boards/host"), "f32").kernel == "dense"


def test_the_command_line_of_a_stage() -> None:
    assert flags(Options()) == []
    everything = Options(quantize=True, dt=1e-4, reset="subtract", kernel="dense", input_scale=-2)
    assert flags(everything) == [
        "--quantize", "--dt", "0.0001", "--reset", "subtract", "--kernel", "dense", "--input-scale=-2",
    ]  # fmt: skip


def test_several_models() -> None:
    Path("b/net2.nir").touch()
    assert [model.stem for model in ask(model="a/net.nir,b/net2.nir,a/net.nir").models] == ["net", "net2"]


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"bord": "host"}, "bord=host: unknown option; did you mean board?"),
        ({"xyzzy": "1"}, "xyzzy=1: unknown option; use board, board_path, dt, input, input_scale, kernel, labels, model, name, quantize, reset, reset_delay or toolchain"),
        ({"ram": "64k"}, "ram=64k: no option of board host; add board=small"),
        ({"board": "small", "ram": "1k"}, "ram=1k: not a choice for board small; use 64k or 128k"),
        ({"board": "smal"}, "board=smal: no such board; did you mean small?"),
        ({"board": "host,zzz"}, "board=zzz: no such board; use all, host or small"),
        ({"board": ""}, "board=: no board named; use all, host or small"),
        ({"quantize": "yes"}, "quantize=yes: not a choice; use 0, 1 or both"),
        ({"reset": "none"}, "reset=none: not a choice; use zero or subtract"),
        ({"kernel": "sparse"}, "kernel=sparse: not a choice; use dense or event"),
        ({"toolchain": "tcc"}, "toolchain=tcc: not a choice; use auto, gcc or mine"),
        ({"model": "c/net.nir"}, "model=c/net.nir: no such file; name a .nir file with model="),
        ({"model": "a"}, "model=a: a directory, not a file; name a .nir file with model="),
        ({"model": ","}, "model=,: no model named; name a .nir file with model="),
        ({"model": "a/net.nir,b/net.nir"}, "model: a/net.nir and b/net.nir would both be built in build/host-f32/net; rename one of the files"),
        ({"input": "c.npy"}, "input=c.npy: no such file; name a .npy file with input="),
        ({"labels": "c.npy"}, "labels=c.npy: no such file; name a .npy file with labels="),
        ({"model": "b/net.nir", "labels": "a/input.labels.npy"}, "labels=a/input.labels.npy: labels without input; name the input too, with input="),
        ({"dt": "fast"}, "dt=fast: not a timestep; use a positive number, in the model's unit of time"),
        ({"dt": "0"}, "dt=0: not a timestep; use a positive number, in the model's unit of time"),
        ({"dt": "inf"}, "dt=inf: not a timestep; use a positive number, in the model's unit of time"),
        ({"input_scale": "2"}, "input_scale=2: needs integer mode; add quantize=1"),
        ({"input_scale": "17", "quantize": "1"}, "input_scale=17: not a scale; use a whole number from -16 to 16"),
        ({"input_scale": "1.5", "quantize": "1"}, "input_scale=1.5: not a scale; use a whole number from -16 to 16"),
        ({"name": "main"}, "name=main: the harness uses this name; choose another"),
        ({"name": "baked"}, "name=baked: the harness uses this name; choose another"),
        ({"name": "streamed"}, "name=streamed: the harness uses this name; choose another"),
        ({"name": "board"}, "name=board: the harness uses this name; choose another"),
        ({"name": "brain", "model": "a/net.nir,b/net2.nir"}, "name=brain: names one network, but model= lists 2; build them one by one"),
        ({"name": "9lives"}, "name '9lives' cannot prefix C symbols; use lower-case letters, digits and underscores, a letter first"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_an_option(options: dict[str, str], line: str) -> None:
    Path("b/net2.nir").touch()
    assert refusal(**options) == line


def test_a_board_may_not_take_the_name_of_an_option() -> None:
    board = Path("boards/small/board.py")
    board.write_text(BOARD.format(more=RAM.replace('"ram"', '"dt"')))
    assert (
        refusal(board="small")
        == "boards/small/board.py: options: 'dt' is an option of every board; choose another name"
    )
