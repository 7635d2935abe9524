# SPDX-License-Identifier: Apache-2.0
"""Modules of the snn dialect, compiled to a shared library and called from Python; for tests of what they compute."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
from mlir import ir

from snn_builder import dialect
from snn_builder.c import emit_c
from snn_builder.c.to_emitc import to_emitc
from snn_builder.dialect import Argument
from snn_builder.lowering import lower

DTYPES = {"i8": np.int8, "i16": np.int16, "i32": np.int32, "i64": np.int64, "f32": np.float32, "f64": np.float64}
C_TYPES = {"f32": "float", "f64": "double", **{f"i{bits}": f"int{bits}_t" for bits in (8, 16, 32, 64)}}
WARNINGS = ["-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wshadow", "-Wmissing-prototypes", "-Werror"]
EXACT = ["-ffp-contract=off", "-DSNN_FP_CONTRACT_OFF"]
NAME = "net"

Body = Callable[..., None]


def build(
    mode: str, arguments: Sequence[Argument], weights: Mapping[str, np.ndarray], body: Body, name: str = NAME
) -> str:
    """The text of a module; body(module, **{argument name: value}) builds its step."""
    elements = {np.dtype(dtype): element for element, dtype in DTYPES.items()}
    with dialect.new_context():
        module = dialect.network(name, mode=mode, kernel="dense", generator="snn-builder test")
        for constant, values in weights.items():
            dialect.declare(module, constant, values.shape, elements[values.dtype])
        states = [a for a in arguments if a.role == "state"]
        with dialect.function(module, "init", states) as values:
            for argument, value in zip(states, values, strict=True):
                dialect.clear(value, loc=f"{argument.name} (at rest)")
        with dialect.function(module, "step", arguments) as values:
            body(module, **{a.name: v for a, v in zip(arguments, values, strict=True)})
        dialect.verify(module)
        return dialect.to_text(module)


def header(arguments: Sequence[Argument], name: str = NAME) -> str:
    """The least header that a kernel with these arguments needs."""
    states = [a for a in arguments if a.role == "state"]
    members = [f"    {C_TYPES[a.element]} {a.name}{''.join(f'[{n}]' for n in a.shape)};" for a in states]
    size = sum(int(np.prod(a.shape)) * np.dtype(DTYPES[a.element]).itemsize for a in states)
    lines = [
        "#include <stdint.h>",
        f"#define {name.upper()}_INTERFACE 1",
        f"#define {name.upper()}_STATE_BYTES {size or 1}",
    ]
    lines += ["typedef struct {", *(members or ["    uint8_t unused;"]), f"}} {name}_state;"]
    parameters = [f"{name}_state *state"]
    for role, const in (("input", "const "), ("output", "")):
        terminals = [a for a in arguments if a.role == role]
        if len(terminals) == 1:
            lines.append(f"typedef {C_TYPES[terminals[0].element]} {name}_{role}_t;")
        for a in terminals:
            type_ = f"{name}_{role}_t" if len(terminals) == 1 else C_TYPES[a.element]
            parameters.append(f"{const}{type_} *{a.name}")
    lines += [f"void {name}_init({name}_state *state);", f"void {name}_step({', '.join(parameters)});"]
    return "\n".join(lines) + "\n"


def weights_c(weights: Mapping[str, np.ndarray], prefix: str) -> str:
    """The definitions of the constants."""
    elements = {np.dtype(dtype): C_TYPES[element] for element, dtype in DTYPES.items()}
    lines = ["#include <stdint.h>"]
    for name, values in weights.items():
        declared = f"const {elements[values.dtype]} {prefix}{name}{''.join(f'[{n}]' for n in values.shape)}"
        lines += [f"extern {declared};", f"{declared} = {_initialiser(values)};"]
    return "\n".join(lines) + "\n"


def _initialiser(values: np.ndarray) -> str:
    if values.ndim:
        return "{" + ", ".join(map(_initialiser, values)) + "}"
    return float(values).hex() + "f" if values.dtype == np.float32 else str(values)


def compile_library(directory: Path, sources: Mapping[str, str], flags: Sequence[str] = ()) -> ctypes.CDLL:
    """Writes the sources and makes a shared library of the C files among them."""
    for file, text in sources.items():
        directory.joinpath(file).write_text(text)
    files = [file for file in sources if file.endswith(".c")]
    subprocess.run(
        ["gcc", "-shared", "-fPIC", "-O1", *EXACT, *flags, *files, "-o", "kernel.so"], cwd=directory, check=True
    )
    return ctypes.CDLL(str(directory / "kernel.so"))


class Kernel:
    """A compiled network: `state` holds its arrays, `step` runs it."""

    def __init__(
        self, directory: Path, text: str, arguments: Sequence[Argument], weights: Mapping[str, np.ndarray] = {},
        flags: Sequence[str] = (*WARNINGS, "-fsanitize=undefined"),
    ) -> None:  # fmt: skip
        sources = {
            f"{NAME}.h": header(arguments),
            f"{NAME}.c": emit_c(lower(text)),
            f"{NAME}_weights.c": weights_c(weights, f"{NAME}_"),
        }
        self._library = compile_library(directory, sources, flags)
        self.arguments = list(arguments)
        states = [a for a in arguments if a.role == "state"]
        fields = [(a.name, DTYPES[a.element], a.shape) for a in states]
        self._memory = np.zeros(1, np.dtype(fields or [("unused", np.uint8)], align=True))
        self.state = {a.name: self._memory[a.name][0] for a in states}

    def init(self) -> None:
        self._library.net_init(ctypes.c_void_p(self._memory.ctypes.data))

    def step(self, **inputs: np.ndarray) -> dict[str, np.ndarray]:
        """One step: inputs and outputs by name."""
        arrays = terminals(self.arguments, inputs)
        pointers = [ctypes.c_void_p(a.ctypes.data) for a in (self._memory, *arrays.values())]
        self._library.net_step(*pointers)
        return {a.name: arrays[a.name] for a in self.arguments if a.role == "output"}


class Oracle:
    """The same network through mlir-translate's printer."""

    def __init__(
        self, directory: Path, text: str, arguments: Sequence[Argument], weights: Mapping[str, np.ndarray] = {},
        flags: Sequence[str] = ("-fwrapv",),
    ) -> None:  # fmt: skip
        with dialect.new_context() as context:
            module = dialect.parse(lower(text), context)
            to_emitc(module)
            for op in module.body.operations:  # it hides a constant whose name looks like one of its locals
                assert not op.operation.attributes["sym_name"].value.startswith("v")
            emitc = str(module)
        tool = Path(ir.__file__).parent / "bin" / "mlir-translate"
        printed = subprocess.run(
            [tool, "--mlir-to-cpp"], input=emitc, capture_output=True, text=True, check=True
        ).stdout
        includes = "#include <math.h>\n#include <stdbool.h>\n#include <stddef.h>\n#include <stdint.h>\n"
        sources = {"oracle.c": includes + printed, "weights.c": weights_c(weights, "")}
        self._library = compile_library(directory, sources, flags)
        self.arguments = list(arguments)
        self.state = {a.name: np.zeros(a.shape, DTYPES[a.element]) for a in arguments if a.role == "state"}

    def step(self, **inputs: np.ndarray) -> dict[str, np.ndarray]:
        arrays = {**self.state, **terminals(self.arguments, inputs)}
        self._library.step(*(ctypes.c_void_p(arrays[a.name].ctypes.data) for a in self.arguments))
        return {a.name: arrays[a.name] for a in self.arguments if a.role == "output"}


def terminals(arguments: Sequence[Argument], inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Inputs and fresh outputs as contiguous arrays, in the order of the arguments."""
    arrays = {}
    for a in arguments:
        if a.role == "input":
            arrays[a.name] = np.ascontiguousarray(inputs[a.name], DTYPES[a.element])
            assert arrays[a.name].shape == a.shape
        elif a.role == "output":
            arrays[a.name] = np.full(a.shape, 77, DTYPES[a.element])
    return arrays
