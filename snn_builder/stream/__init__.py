# SPDX-License-Identifier: Apache-2.0
"""A network on a board, fed over its UART: `python -m snn_builder stream`. docs/streaming.md describes the line."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ..data import arrays_as_bytes, load_inputs
from ..errors import Findings, Refused
from ..exporter.layout import lay_out
from ..files import write
from ..glue import Glue, numeric_options
from ..harness import about_outputs, class_of, compare, float_outputs, joined, labels_of
from ..names import CNames
from ..options import Options
from ..pipeline import compile_network
from ..program import Array, Program
from ..progress import Progress
from ..reference import kernel_inputs, simulate
from .board import Description, Streamed
from .ports import Port, SerialPort, emulated

__all__ = ["Streamed", "open_port", "stream"]

EMULATOR = "emulator:"


def stream(
    path: str | os.PathLike[str],
    input: str | os.PathLike[str],
    port: Port | str,
    options: Options | None = None,
    *,
    baud: int = 115200,
    build: list[str] | None = None,
    output: str | os.PathLike[str] | None = None,
    labels: str | os.PathLike[str] | None = None,
    reference: bool = True,
    patience: float | None = None,
    progress: bool | None = None,
    findings: Findings | None = None,
    say: Callable[[str], None] = print,
) -> dict[str, Any]:
    """Sends the data of a `.npy` to a board step by step and says what came back, and how that agrees with the reference. `port` is a
    `Port`, or as for `open_port`, with `baud` and `build`. `output` names a file for what comes out. Returns the figures; "complaint"
    is "" where all is right. Raises `Unreadable` or `Refused`."""
    options = options or Options()
    findings = Findings(path) if findings is None else findings
    program = compile_network(path, options, findings)
    inputs, many = load_inputs(input, program.network)
    numbers, saturated = kernel_inputs(program, inputs)
    if saturated:
        findings.warn("", f"{saturated} input values do not fit int8 and were saturated", "pass another input_scale=")
    samples, steps = numbers.shape[:2]
    about = about_outputs(program, lay_out(program, CNames(program.network.file)))
    found = labels_of(input, labels, samples)
    if found is not None:
        about["labels"] = found
    line = open_port(port, path, options, baud, build) if isinstance(port, str) else port
    try:
        board = Streamed(line, patience)
        check(board.description, program, line.name)
        outputs = np.zeros((samples, steps, board.description.output_size), board.description.output_type)
        cycles = np.zeros((samples, steps), np.uint32)
        with Progress(samples * steps, "steps", progress) as shown:
            for sample in range(samples):
                for step in range(steps):
                    outputs[sample, step], cycles[sample, step] = board.step(numbers[sample, step], first=step == 0)
                    shown.advance(1)
    finally:
        line.close()
    if reference:
        about["outputs"] = joined(simulate(program, inputs).outputs)
        if options.quantize:
            about["float_outputs"] = float_outputs(path, options, inputs)
    result: dict[str, Any] = {"samples": samples, "steps": board.steps, "repeated": board.repeated}
    result["cycles"] = int(cycles.sum(dtype=np.uint64))
    classes = [class_of(sample) for sample in outputs]
    result["complaint"] = compare(outputs, classes, about, result, say)
    if not reference and result["spikes"] is not None:
        say(f"{result['spikes']} spikes")
    say(f"{cycles.mean():.0f} {line.unit} per step, {cycles.min()} to {cycles.max()}")
    say(f"{board.steps} steps, each computed once; {board.repeated} of {board.sent} frames were sent again")
    if output is not None:
        write(output, arrays_as_bytes(_by_name(program, outputs if many else outputs[0])))
    return result


def open_port(
    port: str,
    path: str | os.PathLike[str],
    options: Options,
    baud: int = 115200,
    build: list[str] | None = None,
) -> Port:
    """A serial port; for "emulator:BOARD" the streaming firmware for that board, built and running, with `build` as more options of the
    build ("ram=128k"). Raises `Unreadable` or `Refused`."""
    if not port.startswith(EMULATOR):
        return SerialPort(port, baud)
    words = {
        "quantize": str(int(options.quantize)),
        "name": options.name,
        "kernel": options.kernel,
        "reset": options.reset,
        "reset_delay": str(options.reset_delay),
    }
    words |= {"dt": repr(options.dt)} if options.dt is not None else {}
    words |= {"input_scale": str(options.input_scale)} if options.input_scale is not None else {}
    return emulated(port.removeprefix(EMULATOR), words, Path(path), "int8" if options.quantize else "f32", build or [])


def check(said: Description, program: Program, port: str) -> None:
    """Raises `Refused` unless the board runs this very network."""
    layout = lay_out(program, CNames(program.network.file))
    file, sha256 = os.path.basename(program.network.file), program.network.sha256
    if not said.model.endswith(sha256):
        other = said.model.split(" sha256:")[0]
        what = f"the board at {port} runs {said.name} from {other}" + (" of another training" if other == file else "")
        raise Refused(file, "", what, "load the board with the stream.elf of this file")
    wanted = numeric_options(program)
    if said.options != wanted:
        what = f"the board at {port} runs it with {said.options}, not {wanted}"
        raise Refused(file, "", what, "pass the same options, or load the board with another stream.elf")
    sizes = [sum(variable.shape[0] for variable in side) for side in (layout.inputs, layout.outputs)]
    bits = Glue("streamed", program, layout).output_bits
    if [said.input_size, said.output_size, said.output_bits] != [*sizes, bits]:
        raise Refused(
            file, "", f"the board at {port} has other inputs or outputs", "build stream.elf with this snn-builder"
        )


def _by_name(program: Program, outputs: Array) -> dict[str, Array]:
    """As `simulate` writes them: per Output in its own shape and type; the only one without a name."""
    layout = lay_out(program, CNames(program.network.file))
    arrays, at = {}, 0
    for variable in layout.outputs:
        part = outputs[..., at : at + variable.shape[0]]
        at += variable.shape[0]
        types = {"i8": np.int8, "i32": np.int32, "f32": np.float32}
        shape = program.network.nodes[variable.node].output_shape
        arrays[variable.node] = part.reshape(*part.shape[:-1], *shape).astype(types[variable.element])
    return arrays if len(arrays) > 1 else {"": next(iter(arrays.values()))}
