# SPDX-License-Identifier: Apache-2.0
"""What a build is asked for: its options, what each accepts, what they mean together. Knows nothing of SCons."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from pathlib import Path

from ..boards import FILE, Board, either, find, load, nearest
from ..errors import SnnError, Unreadable
from ..options import DEFAULT_NAME, KERNELS, RESET_DELAYS, RESETS, Options

DEFAULT_MODEL = "models/digits/digits.nir"
PRECISIONS = {"0": ("f32",), "1": ("int8",), "both": ("f32", "int8")}
TOOLCHAINS = ("auto", "zig", "gcc", "clang")
# firmware/ and what is generated for it own these; a network of that name would meet them at the linker or in a file name
TAKEN_NAMES = ("baked", "board", "main", "stream", "stream_main", "streamed")

# name -> (what it is, default)
HELP: dict[str, tuple[str, str]] = {
    "board": ("board to build for: a name, several with commas between, or all", "host"),
    "quantize": ("integer mode, int8 weights: 0, 1 or both", "0"),
    "model": ("network to build: a .nir file, or several with commas between", DEFAULT_MODEL),
    "input": ("input data, .npy (default: input.npy beside the model, else random spikes)", ""),
    "labels": ("classes of the samples, .npy (default: INPUT.labels.npy beside the input)", ""),
    "input_scale": ("integer mode: an input value is q * 2^-input_scale; -16 to 16", ""),
    "dt": ("timestep, in the model's unit of time (default: from the model)", ""),
    "reset": (f"what a spike does to the voltage: {either(*RESETS)}", RESETS[0]),
    "reset_delay": (f"steps between a spike and its reset: {either(*RESET_DELAYS)}, as in snnTorch", RESET_DELAYS[0]),
    "kernel": (f"form of the code: {either(*KERNELS)} (default: the board's)", ""),
    "name": ("prefix of files and C symbols, for one model", DEFAULT_NAME),
    "toolchain": (f"compiler: {either(*TOOLCHAINS)} (auto: the first of the board's that is there)", TOOLCHAINS[0]),
    "board_path": ("more board directories, or directories that hold some, with commas between", ""),
}


@dataclasses.dataclass(frozen=True)
class Model:
    """One network to build. `stem` names its build directory; `input` and `labels` are None where there are none."""

    path: str
    stem: str
    input: str | None
    labels: str | None


@dataclasses.dataclass(frozen=True)
class Request:
    """Everything one run of the build was asked for, checked."""

    boards: tuple[Board, ...]
    precisions: tuple[str, ...]
    models: tuple[Model, ...]
    board_options: Mapping[str, Mapping[str, int]]  # board -> its option -> the value for the linker
    name: str
    dt: float | None
    reset: str
    reset_delay: int
    kernel: str | None
    input_scale: int | None
    toolchain: str

    def options(self, board: Board, precision: str) -> Options:
        """The compiler's options for a network on this board; `precision` is "f32" or "int8"."""
        quantize = precision == "int8"
        return Options(
            name=self.name,
            quantize=quantize,
            dt=self.dt,
            reset=self.reset,
            reset_delay=self.reset_delay,
            kernel=self.kernel or board.kernel,
            input_scale=self.input_scale if quantize else None,
            form=board.form,
        )


def find_boards(own: Path, board_path: str) -> dict[str, Path]:
    """The boards in the directory `own` and those of board_path=, by name. Raises `Unreadable`."""
    return find([own, *(Path(word) for word in _words(board_path))])


def request(given: Mapping[str, str], boards: Mapping[str, Path]) -> Request:
    """Checks the options as typed (`given`; what is missing has its default) and reads the boards that they select.

    Raises `Unreadable` for the first that is wrong.
    """
    values = {name: default for name, (_, default) in HELP.items()} | dict(given)
    chosen = tuple(load(boards[name]) for name in _board_names(values["board"], boards))
    own_options = {option for board in chosen for option in board.options}
    for board in chosen:
        for name in board.options.keys() & HELP.keys():
            raise Unreadable(
                board.path / FILE, "options", f"'{name}' is an option of every board", "choose another name"
            )
    for name, value in given.items():
        if name in HELP or name in own_options:
            continue
        others = [board for board, path in boards.items() if name in load(path).options]
        if others:
            raise _bad(
                name, value, f"no option of board {either(*(board.name for board in chosen))}", f"add board={others[0]}"
            )
        raise _bad(name, value, "unknown option", nearest(name, [*HELP, *own_options]))

    precisions = PRECISIONS.get(values["quantize"])
    if precisions is None:
        raise _bad("quantize", values["quantize"], "not a choice", "use " + either(*PRECISIONS))
    for name, allowed in (
        ("reset", RESETS),
        ("reset_delay", RESET_DELAYS),
        ("kernel", ("", *KERNELS)),
        ("toolchain", ("auto", *sorted({name for board in chosen for name in board.toolchains}))),
    ):
        if values[name] not in allowed:
            raise _bad(name, values[name], "not a choice", "use " + either(*filter(None, allowed)))
    result = Request(
        boards=chosen,
        precisions=precisions,
        models=_models(values, f"{chosen[0].name}-{precisions[0]}"),
        board_options={
            board.name: {name: _board_option(board, name, values) for name in board.options} for board in chosen
        },
        name=values["name"],
        dt=_dt(values["dt"]),
        reset=values["reset"],
        reset_delay=int(values["reset_delay"]),
        kernel=values["kernel"] or None,
        input_scale=_input_scale(values["input_scale"], precisions),
        toolchain=values["toolchain"],
    )
    if result.name in TAKEN_NAMES:
        raise _bad("name", result.name, "the harness uses this name", "choose another")
    if result.name != DEFAULT_NAME and len(result.models) > 1:
        raise _bad(
            "name", result.name, f"names one network, but model= lists {len(result.models)}", "build them one by one"
        )
    for board in chosen:
        for precision in precisions:
            try:
                result.options(board, precision)
            except SnnError as error:
                raise Unreadable("", "", error.problem, error.remedy) from None
    return result


def _bad(name: str, value: str, problem: str, remedy: str) -> Unreadable:
    return Unreadable("", f"{name}={value}", problem, remedy)


def _words(text: str) -> list[str]:
    return list(dict.fromkeys(word for word in text.split(",") if word))


def _board_names(text: str, boards: Mapping[str, Path]) -> list[str]:
    if text == "all":
        return list(boards)
    names = _words(text)
    for name in names:
        if name not in boards:
            raise _bad("board", name, "no such board", nearest(name, ["all", *boards]))
    if not names:
        raise _bad("board", text, "no board named", "use " + either("all", *boards))
    return names


def _models(values: Mapping[str, str], place: str) -> tuple[Model, ...]:
    models: dict[str, Model] = {}
    for path in _words(values["model"]):
        _file("model", path, "name a .nir file with model=")
        stem = Path(path).name.removesuffix(".nir")
        if stem in models:
            problem = f"{models[stem].path} and {path} would both be built in build/{place}/{stem}"
            raise Unreadable("", "model", problem, "rename one of the files")
        beside = Path(path).parent / "input.npy"
        data = values["input"] or (str(beside) if beside.is_file() else None)
        labels: str | None = values["labels"] or None
        if values["input"]:
            _file("input", values["input"], "name a .npy file with input=")
        if labels is not None:
            _file("labels", labels, "name a .npy file with labels=")
            if data is None:
                raise _bad("labels", labels, "labels without input", "name the input too, with input=")
        elif data is not None and Path(data).with_suffix(".labels.npy").is_file():
            labels = str(Path(data).with_suffix(".labels.npy"))
        models[stem] = Model(path, stem, data, labels)
    if not models:
        raise _bad("model", values["model"], "no model named", "name a .nir file with model=")
    return tuple(models.values())


def _file(name: str, path: str, remedy: str) -> None:
    if Path(path).is_dir():
        raise _bad(name, path, "a directory, not a file", remedy)
    if not Path(path).is_file():
        raise _bad(name, path, "no such file", remedy)


def _board_option(board: Board, name: str, values: Mapping[str, str]) -> int:
    option = board.options[name]
    value = values.get(name, option.default)
    if value not in option.values:
        raise _bad(name, value, f"not a choice for board {board.name}", "use " + either(*option.values))
    return option.values[value]


def _dt(text: str) -> float | None:
    if not text:
        return None
    try:
        dt = float(text)
    except ValueError:
        dt = math.nan
    if not (math.isfinite(dt) and dt > 0):
        raise _bad("dt", text, "not a timestep", "use a positive number, in the model's unit of time")
    return dt


def _input_scale(text: str, precisions: tuple[str, ...]) -> int | None:
    if not text:
        return None
    try:
        scale = int(text)
    except ValueError:
        scale = 99
    if not -16 <= scale <= 16:
        raise _bad("input_scale", text, "not a scale", "use a whole number from -16 to 16")
    if "int8" not in precisions:
        raise _bad("input_scale", text, "needs integer mode", "add quantize=1")
    return scale
