# SPDX-License-Identifier: Apache-2.0
"""kernel=event: the same bits as the reference and the dense kernel, in both forms and modes; what it may take; its stages."""

from __future__ import annotations

import ctypes
import dataclasses
import itertools
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import board_images
import numpy as np
import pytest
from compiled import EXACT, WARNINGS
from mlir.passmanager import PassManager
from support import (
    CONSTRUCTED,
    CONSTRUCTED_DT,
    CONSTRUCTED_NAMES,
    CORPUS,
    CORPUS_DT,
    lif,
    needs_corpus,
    reset_of,
    terminal,
    write_nir,
)

from snn_builder import dialect
from snn_builder.c import emit_c
from snn_builder.emulator import emulator
from snn_builder.errors import Findings
from snn_builder.exporter import texts
from snn_builder.exporter.layout import lay_out
from snn_builder.lowering import EventToLoops, SNNToEvent, lower
from snn_builder.names import CNames
from snn_builder.options import Options
from snn_builder.pipeline import compile_network
from snn_builder.program import Program
from snn_builder.reference import simulate

PACKED = Options(quantize=True, kernel="event")
CHOICES = [
    pytest.param(
        dataclasses.replace(PACKED, quantize=quantize, form=form), id=f"{'int8' if quantize else 'f32'}-{form}"
    )
    for quantize in (True, False)
    for form in ("packed", "column")
]
FULL = bool(os.environ.get("SNN_FULL"))
DTYPES = {"i8": np.int8, "i32": np.int32, "f32": np.float32}


def program_of(nir: Path, options: Options) -> Program:
    return compile_network(nir, options, Findings(nir))


def c_files(program: Program) -> dict[str, str]:
    files = texts(program, Findings(program.network.file))
    name = program.options.name
    return {
        f"{name}.h": files[f"{name}.h"],
        f"{name}_weights.c": files[f"{name}_weights.c"],
        f"{name}.c": emit_c(lower(files[f"{name}.mlir"])),
    }


def run_native(program: Program, inputs: np.ndarray, folder: Path) -> np.ndarray:
    """(samples, steps, all outputs), computed by the kernel, which may do nothing undefined."""
    name = program.options.name
    for file, text in c_files(program).items():
        folder.joinpath(file).write_text(text)
    flags = ["-fsanitize=undefined", "-fno-sanitize-recover", *WARNINGS, *EXACT]
    sources = [f"{name}.c", f"{name}_weights.c"]
    shared = f"{program.options.mode}-{program.options.form}.so"  # a path that is loaded twice is loaded once
    subprocess.run(["gcc", "-shared", "-fPIC", "-O1", *flags, *sources, "-o", shared], cwd=folder, check=True)
    library = ctypes.CDLL(str(folder / shared))
    layout = lay_out(program, CNames(program.network.file))
    found = []
    for sample in inputs:
        state = np.full(layout.state_bytes + 8, 0xAB, np.uint8)  # init must clear all that counts
        pointer = ctypes.c_void_p(state.ctypes.data)
        getattr(library, f"{name}_init")(pointer)
        for row in sample:
            pieces = np.split(row, np.cumsum([variable.shape[0] for variable in layout.inputs])[:-1])
            given = [np.ascontiguousarray(p, DTYPES[v.element]) for p, v in zip(pieces, layout.inputs, strict=True)]
            out = [np.full(variable.shape, 77, DTYPES[variable.element]) for variable in layout.outputs]
            pointers = [ctypes.c_void_p(array.ctypes.data) for array in (*given, *out)]
            getattr(library, f"{name}_step")(pointer, *pointers)
            found.append(np.concatenate([array.astype(np.float64) for array in out]))
        assert np.all(state[-8:] == 0xAB)
    return np.array(found).reshape(*inputs.shape[:2], -1)


def check(nir: Path, options: Options, inputs: dict[str, np.ndarray], folder: Path) -> np.ndarray:
    """The kernel agrees with the reference in every bit; returns what came out."""
    program = program_of(nir, options)
    expected = simulate(program, inputs)
    flat = np.concatenate([a.reshape(*a.shape[:2], -1) for a in expected.outputs.values()], 2)
    found = run_native(program, expected.inputs, folder)
    assert np.array_equal(found, flat.astype(np.float64), equal_nan=True)
    return found


def samples(path: Path, program: Program) -> dict[str, np.ndarray]:
    """The data of a file, as (samples, steps, ...); of long data the beginning."""
    (terminal_,) = program.network.terminals("Input")
    data = np.load(path)
    data = data if data.ndim == len(terminal_.shape) + 2 else data[None]
    return {terminal_.name: data[:2, :60]}


@pytest.mark.parametrize("options", CHOICES)
@pytest.mark.parametrize("name", CONSTRUCTED_NAMES)
def test_constructed(name: str, options: Options, tmp_path: Path) -> None:
    options = dataclasses.replace(options, dt=CONSTRUCTED_DT, reset=reset_of(name))
    nir = CONSTRUCTED / name / f"{name}.nir"
    inputs = samples(CONSTRUCTED / name / "input.npy", program_of(nir, options))
    found = check(nir, options, inputs, tmp_path)
    assert np.any(found) or name == "tiny_weights"


@needs_corpus
@pytest.mark.parametrize("options", CHOICES)
@pytest.mark.parametrize("name", CORPUS_DT)
def test_corpus(name: str, options: Options, tmp_path: Path) -> None:
    nir = CORPUS / name / f"{name}.nir"
    options = dataclasses.replace(options, dt=CORPUS_DT[name])
    check(nir, options, samples(CORPUS / name / "input.npy", program_of(nir, options)), tmp_path)


# Random networks


class Random:
    """A network of Linear and Affine synapses and every kind of neuron, with fan-in, fan-out and feedback."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = np.random.default_rng(seed)
        largest = 300 if seed % 3 == 0 else 40
        self.sizes = [int(rng.integers(1, largest + 1)) for _ in range(int(rng.integers(2, 5)))]
        self.graded = bool(rng.integers(0, 3) == 0)
        self.density = float(rng.choice([0.0, 0.05, 0.3, 1.0]))
        self.nodes: dict[str, dict[str, Any]] = {"input": terminal("Input", self.sizes[0])}
        self.edges: list[tuple[str, str]] = []
        spiking = ["input"]
        for index, (inputs, outputs) in enumerate(itertools.pairwise(self.sizes)):
            name = f"n{index}"
            self.nodes[name] = self._neuron(outputs)
            self._connect(spiking[-1], name, inputs, outputs)
            if rng.integers(0, 3) == 0:  # a second synapse from the same source, or from an earlier layer
                earlier = int(rng.integers(0, index + 1))
                self._connect(spiking[earlier], name, self.sizes[earlier], outputs, "b")
            if rng.integers(0, 3) == 0:
                self._connect(name, name, outputs, outputs, "r")
            if index and rng.integers(0, 3) == 0:  # back to an earlier layer
                self._connect(name, "n0", outputs, self.sizes[1], f"f{index}")
            spiking.append(name)
        self.nodes["output"] = terminal("Output", self.sizes[-1])
        self.edges.append((spiking[-1], "output"))

    def _connect(self, source: str, target: str, inputs: int, outputs: int, suffix: str = "a") -> None:
        name = f"s_{source}_{target}_{suffix}"
        spread = float(self.rng.choice([0.05, 0.3, 2.0]))
        weight = self.rng.normal(0, spread, (outputs, inputs)).astype(np.float32)
        self.nodes[name] = {"type": "Linear", "weight": weight}
        if self.rng.integers(0, 2):
            bias = self.rng.normal(0, 0.1, outputs).astype(np.float32)
            self.nodes[name] = {"type": "Affine", "weight": weight, "bias": bias}
        self.edges += [(source, name), (name, target)]

    def _neuron(self, count: int) -> dict[str, Any]:
        rng = self.rng
        kind = str(rng.choice(["LIF", "LIF", "CubaLIF", "IF", "LI", "CubaLI"]))
        uniform = bool(rng.integers(0, 2))

        def parameter(low: float, high: float) -> np.ndarray:
            return np.full(count, rng.uniform(low, high)) if uniform else rng.uniform(low, high, count)

        fields: dict[str, Any] = {"type": kind, "r": np.full(count, 1.0) if uniform else parameter(0.5, 2.0)}
        if kind in ("LIF", "LI"):
            fields |= {"tau": parameter(0.0011, 0.03), "v_leak": parameter(-0.2, 0.2)}
        if kind.startswith("Cuba"):
            fields |= {"tau_syn": parameter(0.001, 0.01), "tau_mem": parameter(0.001, 0.03), "v_leak": parameter(0, 0)}
            fields["w_in"] = parameter(1.0, 3.0)
        if kind.endswith("IF"):
            fields |= {"v_threshold": parameter(0.05, 1.0), "v_reset": parameter(-0.1, 0.0)}
        return fields

    def inputs(self) -> dict[str, np.ndarray]:
        shape = (2, 6, self.sizes[0])
        fired = self.rng.random(shape) < self.density
        values = self.rng.integers(-128, 128, shape) if self.graded else 1
        return {"input": (fired * values).astype(np.float32)}


@pytest.mark.parametrize("seed", range(200 if FULL else 25))
def test_random_networks(seed: int, tmp_path: Path) -> None:
    network = Random(seed)
    nir = write_nir(tmp_path / "random.nir", network.nodes, network.edges)
    inputs = network.inputs()
    for quantize in (True, False):
        for form in ("packed", "column"):
            options = Options(quantize=quantize, kernel="event", form=form, dt=0.001)
            check(nir, options, inputs, tmp_path)


def mlp(path: Path, sizes: list[int], spread: float, seed: int = 0) -> Path:
    """Linear and LIF layers."""
    rng = np.random.default_rng(seed)
    nodes: dict[str, dict[str, Any]] = {"input": terminal("Input", sizes[0])}
    edges, last = [], "input"
    for index, (inputs, outputs) in enumerate(itertools.pairwise(sizes), 1):
        nodes[f"fc{index}"] = {"type": "Linear", "weight": rng.normal(0, spread, (outputs, inputs)).astype(np.float32)}
        nodes[f"lif{index}"] = lif(outputs)
        edges += [(last, f"fc{index}"), (f"fc{index}", f"lif{index}")]
        last = f"lif{index}"
    nodes["output"] = terminal("Output", sizes[-1])
    return write_nir(path, nodes, [*edges, (last, "output")])


@pytest.mark.parametrize("options", CHOICES)
def test_lists_beyond_65535(options: Options, tmp_path: Path) -> None:
    weight = np.zeros((2, 70_000), np.float32)
    weight[0, -1], weight[1, 0] = 2, 2
    nodes = {"input": terminal("Input", 70_000), "fc": {"type": "Linear", "weight": weight}, "lif": lif(2)}
    nodes["output"] = terminal("Output", 2)
    nir = write_nir(tmp_path / "long.nir", nodes, [("input", "fc"), ("fc", "lif"), ("lif", "output")])
    data = np.zeros((1, 3, 70_000), np.float32)
    data[0, 0, -1] = data[0, 1, 0] = data[0, 2, 2] = 1
    found = check(nir, dataclasses.replace(options, dt=0.001), {"input": data}, tmp_path)
    assert found[0].tolist() == [[1, 0], [0, 1], [0, 0]]


@pytest.mark.parametrize("value", [127 / 64, -2.0])  # 127 and -128 at scale 2^-6
@pytest.mark.parametrize("count", [256, 257, 258, 514, 515])
def test_all_spike_with_extreme_weights(count: int, value: float, tmp_path: Path) -> None:
    """Lanes of 16 bits are full at 257 spikes: all weights 127, or all -128."""
    weight = np.full((5, count), value, np.float32)
    weight[0, 0] = -value / 2
    nodes = {"input": terminal("Input", count), "fc": {"type": "Linear", "weight": weight}}
    nodes |= {"i": {"type": "I", "r": np.ones(5)}, "output": terminal("Output", 5)}
    nir = write_nir(tmp_path / "full.nir", nodes, [("input", "fc"), ("fc", "i"), ("i", "output")])
    for form in ("packed", "column"):
        check(nir, dataclasses.replace(PACKED, form=form), {"input": np.ones((1, 2, count), np.float32)}, tmp_path)


def test_unaligned_input(tmp_path: Path) -> None:
    """The input may stand at any address."""
    program = program_of(mlp(tmp_path / "net.nir", [37, 9], 0.5), dataclasses.replace(PACKED, dt=0.001))
    inputs = (np.random.default_rng(3).random((1, 8, 37)) < 0.2).astype(np.float32)
    expected = simulate(program, {"input": inputs}).outputs["output"]
    run_native(program, inputs, tmp_path)
    library = ctypes.CDLL(str(tmp_path / "int8-packed.so"))
    for shift in range(1, 4):
        state, memory = np.zeros(64, np.int32), np.zeros(64, np.int8)
        library.snn_network_init(ctypes.c_void_p(state.ctypes.data))
        for step in range(8):
            memory[shift : shift + 37] = inputs[0, step]
            out = np.zeros(9, np.int8)
            pointers = (state.ctypes.data, memory.ctypes.data + shift, out.ctypes.data)
            library.snn_network_step(*map(ctypes.c_void_p, pointers))
            assert np.array_equal(out, expected[0, step])


def test_inputs_of_two_sizes(tmp_path: Path) -> None:
    nodes = {"a": terminal("Input", 12), "b": terminal("Input", 31), "lif": lif(4), "output": terminal("Output", 4)}
    edges = [("lif", "output")]
    rng = np.random.default_rng(1)
    for name, count in (("a", 12), ("b", 31)):
        nodes[f"fc_{name}"] = {"type": "Linear", "weight": rng.normal(0, 0.5, (4, count)).astype(np.float32)}
        edges += [(name, f"fc_{name}"), (f"fc_{name}", "lif")]
    nir = write_nir(tmp_path / "two.nir", nodes, edges)
    inputs = {name: (rng.random((2, 6, count)) < 0.3).astype(np.float32) for name, count in (("a", 12), ("b", 31))}
    assert check(nir, dataclasses.replace(PACKED, dt=0.001), inputs, tmp_path).any()


# Stages


def test_the_event_form_is_a_stage(tmp_path: Path) -> None:
    nir = mlp(tmp_path / "net.nir", [12, 8, 3], 0.5)
    text = texts(program_of(nir, dataclasses.replace(PACKED, dt=0.001)), Findings(nir))["snn_network.mlir"]
    with dialect.new_context() as context:
        module = dialect.parse(text, context)
        passes = PassManager("builtin.module")
        passes.add(SNNToEvent(), name="snn-to-event")
        passes.run(module.operation)
        dialect.verify(module)
        between = [op.name for op in dialect.walk(module.operation) if op.name.startswith("snn.")]
        assert between[:2] == ["snn.events", "snn.event"]  # the input is scanned, the hidden layer is not
        assert between.count("snn.event") == 2 and between.count("snn.events") == 1 and between.count("snn.emit") == 1
        again = dialect.parse(dialect.to_text(module), context)
        assert dialect.to_text(again) == dialect.to_text(module)
        passes = PassManager("builtin.module")
        passes.add(EventToLoops(), name="event-to-loops")
        passes.run(module.operation)
        assert not [op.name for op in dialect.walk(module.operation) if op.name.startswith("snn.")]


def test_no_array_where_a_list_or_a_register_will_do(tmp_path: Path) -> None:
    nir = mlp(tmp_path / "net.nir", [12, 8, 3], 0.5)
    kernel = c_files(program_of(nir, dataclasses.replace(PACKED, dt=0.001)))["snn_network.c"]
    arrays = [
        line.split()[1]
        for line in kernel.splitlines()
        if line.startswith("    ") and line.endswith("];") and "=" not in line
    ]
    assert sorted(arrays) == ["fc1_sum[8];", "fc2_sum[4];", "in_list[12];", "lif1_list[8];"]


def test_retraining_keeps_the_module(tmp_path: Path) -> None:
    """Weights times 0.99 relower nothing; past the next power of two the scale is another one."""
    rng = np.random.default_rng(5)
    weight = rng.normal(0, 0.3, (8, 12)).astype(np.float32)

    def module(factor: float) -> str:
        nodes = {"input": terminal("Input", 12), "fc": {"type": "Linear", "weight": weight * factor}, "lif": lif(8)}
        nodes["output"] = terminal("Output", 8)
        nir = write_nir(tmp_path / "net.nir", nodes, [("input", "fc"), ("fc", "lif"), ("lif", "output")])
        return texts(program_of(nir, dataclasses.replace(PACKED, dt=0.001)), Findings(nir))["snn_network.mlir"]

    assert module(0.99) == module(1.0)
    assert module(2.5) != module(1.0)


# On the RV32 core


def on_xheep(
    nir: Path, options: Options, folder: Path, given: float | np.ndarray, toolchain: str = "zig"
) -> tuple[np.ndarray, float, int]:
    """Outputs of 6 steps, instructions per step, bytes of stack that they took; `given` are the inputs, or the density of random spikes."""
    program = program_of(nir, options)
    (source,) = program.network.terminals("Input")
    inputs = given if isinstance(given, np.ndarray) else np.random.default_rng(7).random((1, 6, *source.shape)) < given
    inputs = inputs.astype(np.float32)
    expected = simulate(program, {source.name: inputs})
    (folder / "images").mkdir(exist_ok=True)
    include = folder / "images" / f"{options.mode}-{options.kernel}-{options.form}-{toolchain}"
    include.mkdir()
    for file, text in c_files(program).items():
        include.joinpath(file).write_text(text)
    layout = lay_out(program, CNames(program.network.file))
    element = {"i8": "int8_t", "f32": "float", "i32": "int32_t"}
    n_in, n_out = layout.inputs[0].shape[0], layout.outputs[0].shape[0]
    rows = ",\n".join("{" + ",".join(str(int(x)) for x in row) + "}" for row in inputs[0].reshape(6, -1))
    include.joinpath("main.c").write_text(f"""
#include "board.h"
#include "snn_network.h"
static const {element[layout.inputs[0].element]} in[6][{n_in}] = {{{rows}}};
static snn_network_state net;
static {element[layout.outputs[0].element]} out[{n_out}];
static void hex(uint32_t x) {{ for (int i = 28; i >= 0; i -= 4) board_putc("0123456789abcdef"[(x >> i) & 15u]); }}
int main(void);
int main(void)
{{
    uint32_t cycles = 0;
    board_init();
    snn_network_init(&net);
    for (int t = 0; t < 6; t++) {{
        const uint32_t begin = board_cycles();
        snn_network_step(&net, in[t], out);
        cycles += board_cycles() - begin;
        for (int i = 0; i < {n_out}; i++) hex((uint32_t)(int32_t)out[i]);
        board_putc('\\n');
    }}
    hex(cycles);
    board_exit(0);
}}
""")
    files = [include / name for name in ("main.c", "snn_network.c", "snn_network_weights.c")]
    board = board_images.board("xheep")
    elf = board_images.build(
        board, files, include, toolchain, include=[include], cflags=["-O2"], defsyms={"RAM_SIZE": 512 * 1024},
        needs_runtime=not options.quantize,
    )  # fmt: skip
    result = emulator(board, elf, ram="512k").run()
    assert result is not None
    *lines, cycles = bytes(result.output).decode().split("\n")
    words = np.array([[int(line[at : at + 8], 16) for at in range(0, len(line), 8)] for line in lines], np.uint32)
    (output,) = expected.outputs.values()
    assert np.array_equal(words.view(np.int32), output[0].reshape(6, -1).astype(np.int32))
    return output, int(cycles, 16) / 6, result.stack or 0


@pytest.mark.parametrize("options", CHOICES)
def test_on_xheep(options: Options, tmp_path: Path) -> None:
    nir = mlp(tmp_path / "net.nir", [100, 21, 7], 0.4)
    output, _, _ = on_xheep(nir, dataclasses.replace(options, dt=0.001), tmp_path, 0.2)
    assert output.any()


def test_what_it_costs_on_xheep(tmp_path: Path) -> None:
    """2.2 instructions per synaptic event at most, and 2 bytes per listed element beyond the states."""
    nir = mlp(tmp_path / "net.nir", [400, 64, 8], 0.1)
    options = dataclasses.replace(PACKED, dt=0.001)
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    _, few, stack = on_xheep(nir, options, tmp_path / "a", 0.25)
    _, many, _ = on_xheep(nir, options, tmp_path / "b", 0.5)
    spikes = [(np.random.default_rng(7).random((1, 6, 400)) < density).sum() / 6 for density in (0.25, 0.5)]
    slope = (many - few) / ((spikes[1] - spikes[0]) * 64)
    assert slope < 2.2 + 0.3  # the rest: listing the inputs, some more hidden spikes
    assert stack <= 2 * (400 + 64) + 2 * 64 + 300  # 300: registers saved, main and board


@pytest.mark.parametrize("toolchain", ["zig", "gcc"])
def test_code_is_small(toolchain: str, tmp_path: Path) -> None:
    nir = mlp(tmp_path / "net.nir", [784, 128, 10], 0.1)
    for file, text in c_files(program_of(nir, dataclasses.replace(PACKED, dt=0.001))).items():
        tmp_path.joinpath(file).write_text(text)
    board = board_images.board("xheep")
    tools = board.toolchain(toolchain)
    if tools.compiler() is None:
        pytest.skip(f"no {toolchain}")
    driver = [*board_images._ZIG, "cc"] if toolchain == "zig" else [str(tools.compiler())]
    command = [*driver, *board.cflags, *tools.cflags, *WARNINGS, "-c", "snn_network.c", "-o", "net.o"]
    subprocess.run(command, cwd=tmp_path, check=True)
    from elftools.elf.elffile import ELFFile

    with (tmp_path / "net.o").open("rb") as file:
        kept = [s for s in ELFFile(file).iter_sections() if s["sh_flags"] & 2]  # what stays in memory
        assert sum(section["sh_size"] for section in kept) <= 2560


def test_float_on_xheep_pays_for_spikes_only(tmp_path: Path) -> None:
    nir = mlp(tmp_path / "net.nir", [300, 40], 0.2)
    options = Options(kernel="event", dt=0.001)
    _, event, _ = on_xheep(nir, options, tmp_path, 0.02)
    _, dense, _ = on_xheep(nir, dataclasses.replace(options, kernel="dense"), tmp_path, 0.02)
    assert dense > 15 * event


# Convolutions and pools


class RandomWindows:
    """Convolutions of all shapes, neurons that decay or do not, pools and a Linear at the end."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = np.random.default_rng(seed)
        self.shape = (int(rng.integers(1, 5)) * 2, int(rng.integers(1, 10)), int(rng.integers(1, 10)))
        self.nodes: dict[str, dict[str, Any]] = {"input": terminal("Input", *self.shape)}
        self.names = ["input"]
        self.graded, self.density = bool(rng.integers(0, 3) == 0), float(rng.choice([0.0, 0.03, 0.2, 1.0]))
        shape = self.shape
        for _ in range(int(rng.integers(1, 4))):
            shape = self._convolution(shape)
            self._add(self._neuron(shape))
            if rng.integers(0, 2):
                shape = self._pool(shape)
        self._add({"type": "Flatten", "start_dim": 1, "end_dim": -1, "input_type": np.array([1, *shape])})
        weight = rng.normal(0, 0.5, (3, int(np.prod(shape)))).astype(np.float32)
        self._add({"type": "Linear", "weight": weight})
        self._add({"type": "I", "r": np.ones(3)})
        self._add(terminal("Output", 3), "output")

    def write(self, path: Path) -> Path:
        return write_nir(path, self.nodes, list(itertools.pairwise(self.names)))

    def _add(self, node: dict[str, Any], name: str = "") -> None:
        self.names.append(name or f"n{len(self.names)}")
        self.nodes[self.names[-1]] = node

    def _window(self, shape: tuple[int, ...], dilation: int) -> tuple[list[np.ndarray], tuple[int, ...]]:
        """Kernel, stride and padding, and the places of the output; windows may lie in the padding as a whole."""
        kernel, stride, padding = self.rng.integers(1, 4, 2), self.rng.integers(1, 4, 2), self.rng.integers(0, 4, 2)
        reach = dilation * (kernel - 1)
        padding = np.maximum(padding, -(-(reach + 1 - np.array(shape[1:])) // 2))
        places = (np.array(shape[1:]) + 2 * padding - reach - 1) // stride + 1
        return [kernel, stride, padding], tuple(map(int, places))

    def _convolution(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        rng, dilation = self.rng, int(self.rng.integers(1, 3))
        (kernel, stride, padding), places = self._window(shape, dilation)
        groups = int(rng.choice([g for g in (1, 1, 2, shape[0]) if shape[0] % g == 0]))
        outputs = groups * int(rng.choice([1, 3, 8, 9]))
        fields = {
            "type": "Conv2d", "stride": stride, "padding": padding, "dilation": np.array([dilation] * 2),
            "groups": groups, "input_shape": np.array(shape[1:]),
            "weight": rng.normal(0, rng.choice([0.1, 1.0]), (outputs, shape[0] // groups, *kernel)).astype(np.float32),
        }  # fmt: skip
        if rng.integers(0, 2):
            fields["bias"] = rng.normal(0, 0.2, outputs).astype(np.float32)
        self._add(fields)
        return (outputs, *places)

    def _pool(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        (kernel, stride, padding), places = self._window(shape, 1)
        kind = str(self.rng.choice(["SumPool2d", "AvgPool2d"]))
        self._add({"type": kind, "kernel_size": kernel, "stride": stride, "padding": padding})
        return (shape[0], *places)

    def _neuron(self, shape: tuple[int, ...]) -> dict[str, Any]:
        """Those that do not decay get resets above their thresholds and thresholds below 0 too: they go on spiking."""
        rng = self.rng
        kind = str(rng.choice(["IF", "IF", "IF", "LIF", "I"]))
        fields: dict[str, Any] = {"type": kind, "r": np.full(shape, rng.choice([1.0, 0.7]))}
        if kind == "LIF":
            fields |= {"tau": np.full(shape, 0.004), "v_leak": np.full(shape, rng.choice([0.0, 0.1]))}
        if kind != "I":
            fields["v_threshold"] = np.full(shape, rng.choice([1.0, 0.4, -0.5]))
            fields["v_reset"] = np.full(shape, rng.choice([0.0, 0.0, -0.2, 1.5]))
        return fields

    def inputs(self) -> dict[str, np.ndarray]:
        shape = (2, 5, *self.shape)
        fired = self.rng.random(shape) < self.density
        values = self.rng.integers(-128, 128, shape) if self.graded else 1
        return {"input": (fired * values).astype(np.float32)}


@pytest.mark.parametrize("seed", range(200 if FULL else 20))
def test_random_windows(seed: int, tmp_path: Path) -> None:
    network = RandomWindows(seed)
    nir = network.write(tmp_path / "random.nir")
    inputs = network.inputs()
    reset = {} if seed % 3 else {"reset": "subtract"}
    if reset:
        for node in network.nodes.values():
            node.pop("v_reset", None)
        nir = network.write(tmp_path / "random.nir")
    for quantize, form in ((True, "packed"), (False, "packed"), (seed % 2 == 0, "column")):
        check(nir, Options(quantize=quantize, kernel="event", form=form, dt=0.001, **reset), inputs, tmp_path)


@pytest.mark.parametrize("value", [127 / 64, -2.0])  # 127 and -128 at scale 2^-6
@pytest.mark.parametrize(("kernel", "channels"), [(3, 28), (3, 29), (1, 257), (1, 258), (2, 130)])
def test_windows_that_fill_the_lanes(kernel: int, channels: int, value: float, tmp_path: Path) -> None:
    """252 and 261, 257 and 258, 520 spikes in a window, all with the largest weights there are."""
    weight = np.full((5, channels, kernel, kernel), value, np.float32)
    weight[0, 0, 0, 0] = -value / 2
    shape = np.array([kernel + 1, kernel])
    window = {"stride": [1, 1], "padding": [0, 0], "dilation": [1, 1], "groups": 1, "input_shape": shape}
    nodes = {"input": terminal("Input", channels, *shape), "conv": {"type": "Conv2d", "weight": weight, **window}}
    nodes |= {"i": {"type": "I", "r": np.ones((5, 2, 1))}, "output": terminal("Output", 5, 2, 1)}
    nir = write_nir(tmp_path / "full.nir", nodes, [("input", "conv"), ("conv", "i"), ("i", "output")])
    ones = np.ones((1, 2, channels, *shape), np.float32)
    found = check(nir, PACKED, {"input": ones}, tmp_path)
    assert (
        np.abs(found).max() == 2 * 4096 * abs(value) * kernel**2 * channels
    )  # an output of equal weights, after two steps


def test_more_taps_than_65535(tmp_path: Path) -> None:
    """A small input, whose windows are mostly padding: rows of weights are counted by the kernel, not by the input."""
    channels, kernel = 8192, 3
    weight = np.zeros((1, channels, kernel, kernel), np.float32)
    weight[0, -1, -1, -1] = 2  # what the last channel meets in the only window that sees it so
    window = {"stride": [1, 1], "padding": [2, 2], "dilation": [1, 1], "groups": 1, "input_shape": np.array([1, 1])}
    nodes = {"input": terminal("Input", channels, 1, 1), "conv": {"type": "Conv2d", "weight": weight, **window}}
    nodes |= {"i": {"type": "I", "r": np.ones((1, 3, 3))}, "output": terminal("Output", 1, 3, 3)}
    nir = write_nir(tmp_path / "wide.nir", nodes, list(itertools.pairwise(nodes)))
    spike = np.zeros((1, 1, channels, 1, 1), np.float32)
    spike[0, 0, -1] = 1
    assert check(nir, PACKED, {"input": spike}, tmp_path)[0, 0].tolist() == [2 * 4096, 0, 0, 0, 0, 0, 0, 0, 0]


ONES = np.ones((1, 1, 2))
IF = {"type": "IF", "r": ONES, "v_threshold": ONES}


@pytest.mark.parametrize(
    ("neuron", "changed", "bias", "spikes"),
    [
        pytest.param(IF, {}, 0.0, [1, 0, 0, 1, 0], id="is passed over"),
        pytest.param(IF, {"reset": "subtract"}, 0.0, [1, 1, 1, 1, 1], id="subtracts"),
        pytest.param(IF, {"reset_delay": 1}, 0.0, [1, 0, 0, 1, 0], id="resets late"),
        pytest.param(IF | {"v_reset": 2 * ONES}, {}, 0.0, [1, 1, 1, 1, 1], id="resets above its threshold"),
        pytest.param(IF | {"v_threshold": -ONES}, {}, 0.0, [1, 1, 1, 1, 1], id="threshold below 0"),
        # The other neuron, which never gets anything, spikes at once: 0 is above -1.
        pytest.param(
            IF | {"v_threshold": -ONES, "v_reset": -2 * ONES}, {}, 0.0, [1, 0, 0, 1, 0], id="at rest above its threshold"
        ),
        pytest.param(IF, {}, 0.6, [1, 0, 1, 1, 0], id="bias"),
        pytest.param(
            {"type": "LIF", "r": 2 * ONES, "tau": 0.002 * ONES, "v_leak": 3 * ONES, "v_threshold": ONES}, {}, 0.0,
            [1, 1, 1, 1, 1], id="leak",
        ),
        pytest.param(
            {"type": "LIF", "r": 2 * ONES, "tau": 0.002 * ONES, "v_threshold": 4 * ONES}, {}, 0.0,
            [0, 0, 0, 0, 0], id="decay",
        ),
    ],
)  # fmt: skip
def test_neurons_that_nothing_arrives_at(
    neuron: dict[str, Any], changed: dict[str, Any], bias: float, spikes: list[int], tmp_path: Path
) -> None:
    """A spike of weight 3.5 in the first step and nothing for two steps: what the neuron does then, counted by an integrator that only a
    list of spikes reaches, and in an array of its own."""
    window = {"stride": [1, 1], "padding": [0, 0], "dilation": [1, 1], "groups": 1, "input_shape": np.array([1, 2])}
    conv = {"type": "Conv2d", "weight": np.full((1, 1, 1, 1), 3.5, np.float32), "bias": np.full(1, bias), **window}
    nodes = {"input": terminal("Input", 1, 1, 2), "conv": conv, "neuron": neuron}
    nodes["flatten"] = {"type": "Flatten", "start_dim": 1, "end_dim": -1, "input_type": np.array([1, 1, 1, 2])}
    nodes["fc"] = {"type": "Linear", "weight": np.eye(2, dtype=np.float32)}
    nodes |= {"count": {"type": "I", "r": np.ones(2)}, "output": terminal("Output", 2)}
    nir = write_nir(tmp_path / "net.nir", nodes, list(itertools.pairwise(nodes)))
    inputs = np.zeros((1, 5, 1, 1, 2), np.float32)
    inputs[0, (0, 3), 0, 0, 0] = 1
    shown = {name: nodes[name] for name in ("input", "conv", "neuron")} | {"output": terminal("Output", 1, 1, 2)}
    direct = write_nir(tmp_path / "direct.nir", shown, list(itertools.pairwise(shown)))
    for quantize in (True, False):
        options = dataclasses.replace(PACKED, quantize=quantize, dt=0.001, **changed)
        counted = check(nir, options, {"input": inputs}, tmp_path)[0, :, 0]
        assert np.diff(counted, prepend=0).tolist() == [spike * (4096 if quantize else 1) for spike in spikes]
        (tmp_path / "direct").mkdir(exist_ok=True)
        assert check(direct, options, {"input": inputs}, tmp_path / "direct")[0, :, 0].tolist() == spikes


def test_a_window_is_no_array(tmp_path: Path) -> None:
    """A convolution needs lists only: no sums of all outputs, no transposed copy that is read as a whole."""
    rng = np.random.default_rng(0)
    window = {"stride": [1, 1], "padding": [1, 1], "dilation": [1, 1], "groups": 1, "input_shape": np.array([8, 8])}
    nodes = {"input": terminal("Input", 2, 8, 8)}
    nodes["conv"] = {"type": "Conv2d", "weight": rng.normal(0, 1, (16, 2, 3, 3)).astype(np.float32), **window}
    ones = np.ones((16, 8, 8))
    nodes["if"] = {"type": "IF", "r": ones, "v_threshold": ones}
    nodes["pool"] = {"type": "SumPool2d", "kernel_size": [2, 2], "stride": [2, 2], "padding": [0, 0]}
    nodes["output"] = terminal("Output", 16, 4, 4)
    nir = write_nir(tmp_path / "net.nir", nodes, list(itertools.pairwise(nodes)))
    with dialect.new_context() as context:
        text = texts(program_of(nir, PACKED), Findings(nir))["snn_network.mlir"]
        module = dialect.parse(text, context)
        passes = PassManager("builtin.module")
        passes.add(SNNToEvent(), name="snn-to-event")
        passes.run(module.operation)
        dialect.verify(module)
        between = [op.name for op in dialect.walk(module.operation) if op.name.startswith("snn.")]
    assert between == [
        *("snn.events", "snn.places", "snn.event", "snn.gather2d", "snn.rescale", "snn.lif", "snn.emit"),
        *("snn.scatter2d", "snn.output"),
    ]
    arrays = re.findall(r"^ +\w+ (\w+)\[(\d+)\];", c_files(program_of(nir, PACKED))["snn_network.c"], re.MULTILINE)
    assert max(int(size) for name, size in arrays if "list" not in name) == 16 * 4 * 4  # pool_sum


@needs_corpus
@pytest.mark.parametrize("toolchain", ["zig", "gcc"])
def test_a_convolutional_network_pays_for_spikes(toolchain: str, tmp_path: Path) -> None:
    """scnn_mnist at 2 % of its inputs: a twentieth of what kernel=dense takes, at most."""
    nir, data = CORPUS / "scnn_mnist" / "scnn_mnist.nir", np.load(CORPUS / "scnn_mnist" / "input.npy")
    few = data * (np.random.default_rng(2).random(data.shape) < 0.02 / np.mean(data != 0))
    steps = few[None, 8:14].astype(np.float32)
    assert 0.015 < np.mean(steps != 0) < 0.025
    _, event, _ = on_xheep(nir, PACKED, tmp_path, steps, toolchain)
    _, dense, _ = on_xheep(nir, dataclasses.replace(PACKED, kernel="dense"), tmp_path, steps, toolchain)
    assert dense > 20 * event
