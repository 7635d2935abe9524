# SPDX-License-Identifier: Apache-2.0
"""Both ends of firmware/main.c: the input that is baked into an image, and the reading of what a board printed.

The format of the printout is described in firmware/main.c.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from . import __version__
from .data import arrays_as_bytes, labels_beside, load, load_inputs, load_labels, random_spikes
from .errors import Findings, Refused, Unreadable
from .exporter.layout import Layout, lay_out
from .files import write, write_all
from .glue import Glue, bits_shown, spiking
from .names import CNames
from .options import Options
from .pipeline import compile_network
from .program import Array, Program
from .reference import simulate

BAKED_INTERFACE = 1  # firmware/main.c checks it
NAN = 0x7FC00000  # what every NaN is taken for


# -- Into the image -----------------------------------------------------------------------------------------------------------


def bake(
    path: str | os.PathLike[str],
    out: str | os.PathLike[str],
    options: Options,
    input: str | os.PathLike[str] | None = None,
    labels: str | os.PathLike[str] | None = None,
    findings: Findings | None = None,
) -> None:
    """Writes `baked.h`, `baked.c` (the input for firmware/main.c), `baked_check.s` (checks of its output) and `reference.npz` (what has to
    come out). Without `input`: 32 steps of random spikes from a fixed seed. Raises `Unreadable` or `Refused`."""
    findings = Findings(path) if findings is None else findings
    program = compile_network(path, options, findings)
    layout = lay_out(program, CNames(program.network.file))
    inputs, many = load_inputs(input, program.network) if input is not None else (random_spikes(program.network), False)
    result = simulate(program, inputs)
    if result.saturated:
        findings.warn(
            "", f"{result.saturated} input values do not fit int8 and were saturated", "pass another input_scale="
        )
    outputs = joined(result.outputs)
    reference = {"outputs": outputs, "many": np.array(many), **about_outputs(program, layout)}
    if options.quantize:
        reference["float_outputs"] = float_outputs(path, options, inputs)
    found = labels_of(input, labels, len(outputs))
    if found is not None:
        reference["labels"] = found
    origin = "random spikes (seed 0)" if input is None else os.path.basename(input)
    baked = _Baked(Glue("baked", program, layout), options.quantize, result.inputs, outputs, origin)
    files: dict[str, str | bytes] = {
        "baked.h": baked.header(),
        "baked.c": baked.source(),
        "baked_check.s": baked.checks(),
        "reference.npz": arrays_as_bytes(reference),
    }
    write_all(out, files)


def joined(outputs: dict[str, Array]) -> Array:
    """(samples, steps, all outputs in name order), in one type that holds them all."""
    flat = [array.reshape(*array.shape[:2], -1) for array in outputs.values()]
    return np.concatenate(flat, axis=2)


def about_outputs(program: Program, layout: Layout) -> dict[str, Array]:
    """The part of `reference.npz` that says what the outputs are."""
    sizes = [variable.shape[0] for variable in layout.outputs]
    return {
        "layers": np.array([" + ".join(program.network.predecessors(variable.node)) for variable in layout.outputs]),
        "sizes": np.array(sizes),
        "spiking": np.array(spiking(program, layout)),
        "frac_bits": np.repeat([program.frac.get(variable.node, 0) for variable in layout.outputs], sizes),
    }


def float_outputs(path: str | os.PathLike[str], options: Options, inputs: dict[str, Array]) -> Array:
    """What the network of integer mode gives in float."""
    exact = compile_network(path, dataclasses.replace(options, quantize=False, input_scale=None), Findings(path))
    return joined(simulate(exact, inputs).outputs)


def labels_of(
    input: str | os.PathLike[str] | None, labels: str | os.PathLike[str] | None, samples: int
) -> Array | None:
    """The classes of the samples: from `labels`, or from beside the input where there are some."""
    if labels is None and input is not None and labels_beside(input).exists():
        labels = labels_beside(input)
    return None if labels is None else load_labels(labels, samples)


class _Baked:
    """The text of baked.h, baked.c and baked_check.s."""

    def __init__(self, glue: Glue, quantize: bool, inputs: Array, outputs: Array, origin: str) -> None:
        self.glue = glue
        self.inputs = inputs
        self.outputs = outputs
        self.origin = re.sub(r"[^\w .()-]", "?", origin)
        self.input_bits = 1 if np.all((inputs == 0) | (inputs == 1)) else 8 if quantize else 32

    def header(self) -> str:
        samples, steps = self.inputs.shape[:2]
        middle = f"""\
#define BAKED_INTERFACE {BAKED_INTERFACE}
#define BAKED_SAMPLES {samples}
#define BAKED_STEPS {steps} /* of each sample */
#define BAKED_INPUT_SIZE {self.inputs.shape[2]}
#define BAKED_INPUT_BITS {self.input_bits}
#define BAKED_OUTPUT_SIZE {self.outputs.shape[2]}
#define BAKED_OUTPUT_BITS {self.glue.output_bits}
"""
        end = f"""\
extern const uint8_t baked_input[]; /* {self.origin} */
extern const uint32_t baked_check[BAKED_SAMPLES];

"""
        return self.glue.header(f"what firmware/main.c must know of {self.glue.name} and its input", middle, end)

    def source(self) -> str:
        packed = _rows((f"0x{byte:02x}" for byte in self._packed()), 20)
        return self.glue.source("input for firmware/main.c", f"const uint8_t baked_input[] = {{\n{packed}\n}};\n")

    def checks(self) -> str:
        """Not C, because retraining changes it, and is to compile the weights alone; this is assembled when the image is linked."""
        longs = "\n".join(f"    .long 0x{check:08x}" for check in checks_of(self.outputs, self.glue.output_bits))
        return f"""\
/* baked_check.s: per sample, the check of its outputs; see firmware/main.c. Generated by snn-builder {__version__}; do not edit. */
    .section .rodata.baked_check, "a", @progbits
    .globl baked_check
    .type baked_check, @object
    .balign 4
baked_check:
{longs}
    .size baked_check, . - baked_check
    .section .note.GNU-stack, "", @progbits
"""

    def _packed(self) -> bytes:
        if self.input_bits == 1:
            return np.packbits(self.inputs.astype(np.uint8), axis=2, bitorder="little").tobytes()
        return self.inputs.astype("<i1" if self.input_bits == 8 else "<f4").tobytes()


def _rows(items: Any, columns: int) -> str:
    listed = list(items) or ["0"]
    return ",\n".join("    " + ", ".join(listed[start : start + columns]) for start in range(0, len(listed), columns))


def bits_of(outputs: Array) -> Array:
    """The patterns that a board prints: of floats the 32 bits, every NaN alike; of integers two's complement."""
    if outputs.dtype == np.float32:
        bits = np.ascontiguousarray(outputs).view(np.uint32)
        return np.where(np.isnan(outputs), np.uint32(NAN), bits)
    return outputs.view(np.uint8 if outputs.dtype == np.int8 else np.uint32)


def checks_of(outputs: Array, output_bits: int) -> list[int]:
    """FNV-1a-32 per sample over its values' bytes, the lowest first; spikes (output_bits 1) are one byte each."""
    values = outputs.astype(np.uint8) if output_bits == 1 else bits_of(outputs)
    checks = []
    for sample in values:
        check = 2166136261
        for byte in sample.astype(sample.dtype.newbyteorder("<")).tobytes():
            check = ((check ^ byte) * 16777619) & 0xFFFFFFFF
        checks.append(check)
    return checks


# -- Out of the board ---------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Printout:
    """What a board printed: outputs (samples, steps, size) as in `reference.npz`, the classes it saw, and its last line."""

    outputs: Array
    classes: list[int]
    errors: int
    steps: int
    cycles: int


EMULATE = ["-m", "snn_builder", "emulate"]
LAST_LINE = re.compile(r"SNN (ok|fail) errors=(\d+) steps=(\d+) cycles=(\d+)")


def decode(text: str, reference: Array, output_bits: int) -> Printout:
    """Raises ValueError, naming the line, where the printout is not one of this image."""
    samples, steps, count = reference.shape
    lines = text.splitlines()
    last = LAST_LINE.fullmatch(lines[-1]) if lines else None
    if last is None:
        raise ValueError(
            f"it stopped after {len(lines)} lines without its last line 'SNN ...'"
            + (f": '{lines[-1][:60]}'" if lines else "")
        )
    if len(lines) - 1 != samples:
        raise ValueError(f"it printed {len(lines) - 1} samples, not {samples}")
    width = steps * (2 * -(-count // 8) if output_bits == 1 else count * output_bits // 4)
    outputs = np.zeros_like(reference)
    classes = []
    for index, line in enumerate(lines[:-1]):
        match = re.fullmatch(rf"{index} ([0-9a-f]{{{width}}}) (\d+)", line)
        if match is None:
            raise ValueError(f"line {index + 1} is not a sample's: '{line[:60]}'")
        raw = np.frombuffer(bytes.fromhex(match[1]), np.uint8)
        if output_bits == 1:
            bits = np.unpackbits(raw.reshape(steps, -1), axis=1, bitorder="little")[:, :count]
            outputs[index] = bits.astype(reference.dtype)
        else:
            pattern = raw.view(f">u{output_bits // 8}").astype(f"u{output_bits // 8}")
            outputs[index] = pattern.view(reference.dtype).reshape(steps, count)
        classes.append(int(match[2]))
    return Printout(outputs, classes, int(last[2]), int(last[3]), int(last[4]))


def run(
    directory: str | os.PathLike[str],
    command: list[str],
    counts_instructions: bool = False,
    say: Callable[[str], None] = print,
) -> int:
    """Runs an image built in `directory` and holds what it prints against `reference.npz` there. Writes `outputs.npy` and `result.json`;
    returns 0 where all is right and 1 where not. `counts_instructions`: what the board calls cycles are instructions, as in an emulator.
    Our own emulator is also asked for the stack. Raises `Unreadable` or `Refused` where there is nothing to compare."""
    folder = Path(directory)
    reference = load(folder / "reference.npz")
    for stale in ("outputs.npy", "result.json"):
        (folder / stale).unlink(missing_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        stats = Path(scratch) / "stats.json"
        if command[1:4] == EMULATE:
            command = [*command[:4], "--stats", str(stats), *command[4:]]
        printed, status = _printout(folder, command, reference)
        stack = json.loads(stats.read_text())["stack"] if stats.exists() else None
    expected = reference["outputs"]
    result: dict[str, Any] = {"samples": len(expected), "steps": printed.steps, "cycles": printed.cycles}
    complaint = compare(printed.outputs, printed.classes, reference, result, say)
    if counts_instructions:
        result["instructions_per_step"] = printed.cycles / max(printed.steps, 1)
        say(f"{result['instructions_per_step']:.0f} instructions per step")
    image = folder / "firmware.elf"
    if image.exists():
        from .elf import footprint

        found = footprint(image)
        if stack is not None:
            reserved = found.parts["stack"][1]
            result |= {"stack": stack, "stack_reserved": reserved}
            say(f"stack: {stack} bytes of {reserved}")
        sizes = dataclasses.asdict(found.sizes)
        result |= sizes
        say("bytes: " + ", ".join(f"{part} {count}" for part, count in sizes.items()))
    wrong_classes = [index for index, seen in enumerate(printed.classes) if seen != class_of(expected[index])]
    if not complaint and wrong_classes:
        complaint = f"sample {wrong_classes[0]}: the outputs agree, but not the class that the board made of them"
    elif not complaint and (printed.errors or status):
        complaint = f"outputs agree, but the board reported {printed.errors} errors and exit status {status}"
    outputs = printed.outputs if bool(reference["many"]) else printed.outputs[0]
    write(folder / "outputs.npy", arrays_as_bytes({"": outputs}))
    write(folder / "result.json", json.dumps(result, indent=1) + "\n")
    if complaint:
        say(f"error: {folder}: {complaint}")
    return 1 if complaint else 0


def compare(
    outputs: Array, classes: list[int], reference: dict[str, Array], result: dict[str, Any], say: Callable[[str], None]
) -> str:
    """Says what a board gave, (samples, steps, size), and how it agrees with what of "labels", "outputs" and "float_outputs" is in
    `reference`; puts the figures into `result`. Returns where the first value differs from the reference, "" where none does."""
    labels, spikes = reference.get("labels"), bool(reference["spiking"])
    for index, seen in enumerate(classes):
        label = "" if labels is None else f", label {labels[index]}" + ("" if labels[index] == seen else "  <- wrong")
        say(f"sample {index}: class {seen}{label}")
    result["spikes"] = int(np.count_nonzero(outputs)) if spikes else None
    if labels is not None:
        result["accuracy"] = float(np.mean(np.array(classes) == labels))
        say(f"accuracy {100 * result['accuracy']:.1f} % of {len(labels)} samples")
    complaint = ""
    if "outputs" in reference:
        different = bits_of(outputs) != bits_of(reference["outputs"])
        result["mismatches"] = int(np.count_nonzero(different))
        say(_agreement("reference", outputs, reference["outputs"], spikes, result))
        if different.any():
            complaint = _first_difference(different, outputs, reference["outputs"], reference)
    if "float_outputs" in reference:
        ours = np.ldexp(outputs.astype(np.float64), -reference["frac_bits"])
        say(_agreement("float", ours, reference["float_outputs"], spikes, result))
    return complaint


def _printout(folder: Path, command: list[str], reference: dict[str, Array]) -> tuple[Printout, int]:
    """What the board printed, and its exit status."""
    try:
        process = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=False)
    except OSError as error:
        raise Unreadable(command[0], "", f"cannot be run ({error.strerror})", "build it first") from None
    expected = reference["outputs"]
    output_bits = bits_shown(bool(reference["spiking"]), expected.dtype == np.int8)
    try:
        return decode(process.stdout.decode("ascii", "replace"), expected, output_bits), process.returncode
    except ValueError as problem:
        what = f"the board's printout is wrong: {problem} (exit status {process.returncode})"
        raise Refused(folder, "", what, "run the image by itself to see all of it") from None


def class_of(outputs: Array) -> int:
    """Argmax of the outputs (steps, size) summed over the steps, lowest index on ties; floats in float64, step by step, as on the board."""
    sums = np.zeros(outputs.shape[1], np.float64 if outputs.dtype == np.float32 else np.int64)
    for step in outputs:
        sums += step
    return int(np.argmax(sums))


def _agreement(with_what: str, ours: Array, theirs: Array, spiking: bool, result: dict[str, Any]) -> str:
    """Never the share of equal entries alone: outputs are sparse (DESIGN 4.6)."""
    if not spiking:
        largest = float(np.max(np.abs(ours.astype(np.float64) - theirs.astype(np.float64)), initial=0.0))
        result[f"{with_what}_largest_difference"] = largest
        return f"against {with_what}: largest difference {largest:.6g}"
    a, b = ours != 0, theirs != 0
    both = int(np.count_nonzero(a & b))
    total = int(np.count_nonzero(a)) + int(np.count_nonzero(b))
    f1 = 2 * both / total if total else 1.0
    result[f"{with_what}_spikes"] = int(np.count_nonzero(b))
    result[f"{with_what}_f1"] = f1
    return f"against {with_what}: {np.count_nonzero(a)} spikes to {np.count_nonzero(b)}, F1 {f1:.4f}"


def _first_difference(different: Array, ours: Array, theirs: Array, reference: dict[str, Array]) -> str:
    sample, step, index = (int(i) for i in np.argwhere(different)[0])
    offset = index
    for layer, count in zip(reference["layers"], reference["sizes"], strict=True):  # noqa: B007
        if offset < count:
            break
        offset -= int(count)
    return (
        f"sample {sample}, step {step}, layer {layer}, neuron {offset}: board {ours[sample, step, index]}, "
        f"reference {theirs[sample, step, index]} ({np.count_nonzero(different)} values differ)"
    )
