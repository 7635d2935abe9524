# SPDX-License-Identifier: Apache-2.0
"""`load`: the generated C, compiled for this machine and stepped on NumPy arrays."""

from __future__ import annotations

import ctypes
import dataclasses
import hashlib
import importlib.util
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from .data import as_numbers, fits_as_it_is, in_samples
from .depfile import compiler_files
from .errors import Refused, Unreadable
from .files import write
from .network import Shape, size
from .options import Options
from .program import Array
from .progress import Progress

FLAGS = ("-std=c11", "-O3", "-fPIC", "-shared", "-ffp-contract=off", "-DSNN_FP_CONTRACT_OFF")
DTYPES: dict[str, np.dtype[Any]] = {
    "int8_t": np.dtype(np.int8),
    "int32_t": np.dtype(np.int32),
    "float": np.dtype(np.float32),
}
SLICE = 0.1  # seconds in C at a time: then Ctrl-C is seen and the progress is shown
ROOM = 1 << 17  # bytes of input that are converted at a time, and are in the cache when they are needed

Data: TypeAlias = "Array | Mapping[str, Array]"  # of the only terminal, or by terminal name


def load(
    path: str | os.PathLike[str],
    directory: str | os.PathLike[str] | None = None,
    compiler: str | None = None,
    **options: Any,
) -> HostNetwork:
    """A network that runs on this machine: `path` is a `.nir`, or a library that an earlier call made (`.so`, its `.json` beside it).

    `options` are the fields of `Options`: name, quantize, dt, reset, ...; the kernel is the event-driven one in the form for hosts
    unless given. The library is made once per content, in `directory` or in a cache ($SNN_BUILDER_CACHE, else snn-builder in the
    user's cache directory), with `compiler`, else $CC, gcc, cc, clang or zig. Raises `Unreadable` or `Refused`.
    """
    if Path(path).suffix == ".so":
        if options:
            raise Unreadable(path, "", "a library has its options built in", "leave them out, or load the .nir")
        return HostNetwork(Path(path), Path(path))
    chosen = Options(**{"kernel": "event", "form": "column", **options})
    return HostNetwork(_library(Path(path), chosen, directory, _compiler(compiler)), Path(path))


@dataclasses.dataclass(frozen=True)
class Port:
    """An Input or Output; a value is number / 2^frac_bits."""

    name: str
    shape: Shape
    dtype: np.dtype[Any]
    frac_bits: int


class HostNetwork:
    """One instance of a network, with a state of its own. `inputs` and `outputs` are its ports by name, `report` is what `N.json` says,
    `saturated` how many values of the last data did not fit int8. Several instances of one library are independent."""

    def __init__(self, library: Path, source: Path) -> None:
        self.library, self.source = library, source
        self.report = _report(library)
        name = self.report["name"]
        try:
            loaded = _open(library.resolve())
            self._init, self._run = loaded[f"{name}_init"], loaded[f"{name}_run"]
            model = ctypes.string_at(ctypes.addressof(ctypes.c_char.in_dll(loaded, f"{name}_model_id"))).decode()
        except (OSError, AttributeError, ValueError) as error:
            raise Unreadable(library, "", f"cannot be loaded ({error})", "load the .nir: that makes it anew") from None
        if not model.endswith(self.report["sha256"]):
            raise Refused(library, "", "the .json beside it is of another model", "load the .nir: that makes both anew")
        self.inputs, self.outputs = _ports(self.report["inputs"]), _ports(self.report["outputs"])
        self.saturated = 0
        self._init.argtypes, self._init.restype = [ctypes.c_void_p], None
        count = len(self.inputs) + len(self.outputs)
        self._run.argtypes, self._run.restype = [ctypes.c_void_p] * (1 + count) + [ctypes.c_size_t], None
        self._state = np.zeros(-(-int(self.report["state_bytes"]) // 8), np.uint64)  # aligned for every member
        self._rooms = {name: _room(port) for name, port in self.inputs.items()}
        self._speed = 0.0  # steps per second
        self.reset()

    def reset(self) -> None:
        """Puts every neuron at rest."""
        self._init(self._state.ctypes.data)

    def step(self, x: Data) -> Any:
        """One step from the present state. `x` has the shape of the input, or is flat; of several inputs a dict by name. Returns the
        output in its own shape and number format, of several outputs a dict. Raises `Refused`."""
        rows = {}
        for name, data in self._by_name(x).items():
            port = self.inputs[name]
            if data.shape not in (port.shape, (size(port.shape),)):
                dims = " x ".join(map(str, port.shape))
                problem = f"data of shape {data.shape} does not fit an input of {dims}"
                raise Refused(self.source, name, problem, f"give {dims}; run() takes many steps")
            rows[name] = data.reshape(1, 1, *port.shape)
        return self._shaped(self._advance(self._numbers(rows), progress=None, rest=False), lead=())

    def run(self, x: Data, rest: bool = True, progress: bool | None = None) -> Any:
        """Many steps: `x` is (steps, *shape), or (samples, steps, *shape); of several inputs a dict by name. Every sample starts at rest;
        `rest=False` goes on from the present state instead. Returns the output with the same leading axes, in its own number
        format (`outputs[...].frac_bits`), of several outputs a dict. `progress` None shows it on a terminal. Raises `Refused`."""
        arrays = self._by_name(x)
        found = {name: in_samples(arrays[name], name, port.shape, self.source) for name, port in self.inputs.items()}
        if len({(array.shape[:2], many) for array, many in found.values()}) > 1:
            problem = "the inputs differ in samples or steps"
            raise Refused(self.source, "", problem, "give every input the same number of both")
        (lead, many), *_ = ((array.shape[:2], many) for array, many in found.values())
        outputs = self._advance(self._numbers({name: array for name, (array, _) in found.items()}), progress, rest)
        return self._shaped(outputs, lead=lead if many else lead[1:])

    def _by_name(self, x: Data) -> dict[str, Array]:
        arrays = x if isinstance(x, Mapping) else {next(iter(self.inputs)): x}
        if set(arrays) != set(self.inputs):
            wanted = ", ".join(self.inputs)
            raise Refused(self.source, "", f"the network's inputs are {wanted}", "give a dict with one array per input")
        return {name: np.asarray(array) for name, array in arrays.items()}

    def _numbers(self, inputs: dict[str, Array]) -> dict[str, Array]:
        """(samples, steps, elements) in values that C takes, of any type that holds them."""
        options, self.saturated, numbers = self.report["options"], 0, {}
        for name in self.inputs:
            values, mode = inputs[name], (options["quantize"], options["input_scale"])
            if not fits_as_it_is(values, *mode):
                values, clipped = as_numbers(values, *mode, name, self.source)
                self.saturated += clipped
            numbers[name] = values.reshape(*values.shape[:2], -1)
        return numbers

    def _advance(self, inputs: dict[str, Array], progress: bool | None, rest: bool) -> dict[str, Array]:
        samples, steps = next(iter(inputs.values())).shape[:2]
        outputs = {name: np.zeros((samples, steps, size(p.shape)), p.dtype) for name, p in self.outputs.items()}
        ports = [(inputs[name], self._rooms[name]) for name in self.inputs]
        most = min(len(room) for _, room in ports)
        rows = [(array.ctypes.data, array.strides[1]) for array in outputs.values()]
        state = self._state.ctypes.data
        with Progress(samples * steps, "steps", progress) as line:
            for sample in range(samples):
                if rest:
                    self.reset()
                at = 0
                while at < steps:
                    count = min(steps - at, most, max(1, int(self._speed * SLICE)))
                    given = [_address(array[sample, at : at + count], room) for array, room in ports]
                    taken = [first + (sample * steps + at) * width for first, width in rows]
                    start = time.perf_counter()
                    self._run(state, *given, *taken, count)
                    self._speed = count / max(time.perf_counter() - start, 1e-7)
                    at += count
                    line.advance(count)
        return outputs

    def _shaped(self, outputs: dict[str, Array], lead: Shape) -> Any:
        shaped = {name: array.reshape(*lead, *self.outputs[name].shape) for name, array in outputs.items()}
        return shaped if len(shaped) > 1 else next(iter(shaped.values()))


def _room(port: Port) -> Array:
    """(steps, elements) for a part of the input, at least one step."""
    count = size(port.shape)
    return np.empty((max(1, ROOM // (count * port.dtype.itemsize)), count), port.dtype)


def _address(part: Array, room: Array) -> int:
    """Where the steps of `part` are as C takes them: there, or in `room`."""
    if part.dtype != room.dtype or not part.flags.c_contiguous:
        np.copyto(room[: len(part)], part, casting="unsafe")
        part = room
    address: int = part.ctypes.data
    return address


# -- The library --------------------------------------------------------------------------------------------------------------


_opened: dict[Path, tuple[int, ...]] = {}  # which file each path was, when this process opened it first


def _open(library: Path) -> ctypes.CDLL:
    """The library as it is now: the loader knows libraries by path, and would give back one that has been replaced since."""
    found = library.stat()
    identity = (found.st_ino, found.st_mtime_ns, found.st_size)
    if _opened.setdefault(library, identity) == identity:
        return ctypes.CDLL(str(library))
    with tempfile.TemporaryDirectory() as scratch:
        return ctypes.CDLL(shutil.copy(library, scratch))


def _report(library: Path) -> dict[str, Any]:
    file = library.with_suffix(".json")
    try:
        report: dict[str, Any] = json.loads(file.read_text())
        return report
    except (OSError, ValueError):
        raise Unreadable(file, "", "cannot be read, and says what the library takes", "load the .nir") from None


def _ports(rows: list[dict[str, Any]]) -> dict[str, Port]:
    return {row["node"]: Port(row["node"], tuple(row["shape"]), DTYPES[row["type"]], row["frac_bits"]) for row in rows}


def _library(path: Path, options: Options, directory: str | os.PathLike[str] | None, compiler: list[str]) -> Path:
    """Makes the library, unless it is there: NAME.key beside it, which is written last, says what it was made of."""
    key = _key(path, options, compiler)
    folder = Path(directory) if directory is not None else _cache() / key
    library, mark = folder / f"{options.name}.so", folder / f"{options.name}.key"
    if mark.is_file() and library.is_file() and mark.read_text() == key:
        return library
    from .api import generate

    write(mark, "")
    generate(path, folder, options)
    write(folder / f"{options.name}_run.c", _loop(options.name, _report(library)))
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        made = Path(scratch) / library.name
        sources = [f"{options.name}{part}.c" for part in ("", "_weights", "_run")]
        process = subprocess.run(
            [*compiler, *FLAGS, *sources, "-o", made.resolve()], cwd=folder, capture_output=True, text=True
        )
        if process.returncode:
            said = next((line for line in process.stderr.splitlines() if "error" in line), process.stderr.strip())
            raise Refused(path, "", f"{' '.join(compiler)} failed: {said}", "pass another compiler=")
        os.replace(made, library)  # a library that somebody has open stays as it is
    write(mark, key)
    return library


def _loop(name: str, report: dict[str, Any]) -> str:
    """C that runs many steps in one call."""
    ports = [(f"const {row['type']}", row) for row in report["inputs"]] + [
        (row["type"], row) for row in report["outputs"]
    ]
    parameters = ", ".join(f"{type_} *{row['argument']}" for type_, row in ports)
    moved = ", ".join(f"{row['argument']} + i * {size(tuple(row['shape']))}" for _, row in ports)
    head = f"void {name}_run({name}_state *state, {parameters}, size_t steps)"
    return (
        f'#include <stddef.h>\n#include "{name}.h"\n{head};\n{head}\n'
        f"{{\n    for (size_t i = 0; i < steps; i++) {name}_step(state, {moved});\n}}\n"
    )


def _key(path: Path, options: Options, compiler: list[str]) -> str:
    """A hash of everything that decides about the library."""
    try:
        model = path.read_bytes()
    except OSError as error:
        problem = "no such file" if isinstance(error, FileNotFoundError) else f"cannot be read ({error.strerror})"
        raise Unreadable(path, "", problem, "check the path") from None
    tool = Path(compiler[0]).resolve().stat()
    told = [path.name, repr(options), *compiler, *FLAGS, str(tool.st_size), str(tool.st_mtime_ns), sys.platform]
    digest = hashlib.sha256("\0".join(told).encode())
    for content in (model, *(file.read_bytes() for file in compiler_files())):
        digest.update(hashlib.sha256(content).digest())
    return digest.hexdigest()[:32]


def _cache() -> Path:
    named = os.environ.get("SNN_BUILDER_CACHE")
    return Path(named) if named else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "snn-builder"


def _compiler(named: str | None) -> list[str]:
    """A command, its program as a path. zig is told not to compile for this very processor: the cache may be shared."""
    asked = named or os.environ.get("CC")
    for command in [shlex.split(asked)] if asked else [["gcc"], ["cc"], ["clang"]]:
        program = shutil.which(command[0])
        if program is not None:
            return [program, *command[1:]]
    if asked:
        raise Unreadable("", "", f"compiler '{asked}' is not found", "check compiler= and $CC")
    if importlib.util.find_spec("ziglang") is None:
        raise Unreadable("", "", "no C compiler is found", "apt-get install gcc, or pip install ziglang")
    return [sys.executable, "-m", "ziglang", "cc", "-mcpu=baseline", "-g0"]
