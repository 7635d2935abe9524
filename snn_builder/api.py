# SPDX-License-Identifier: Apache-2.0
"""The stages put together, on a user's files: what the command line and `import snn_builder` offer."""

from __future__ import annotations

import os

from .data import arrays_as_bytes, load_inputs
from .errors import Findings
from .files import write, write_all
from .options import Options
from .pipeline import compile_network
from .program import Array, Program
from .reference import simulate as run_reference


def to_mlir(path: str | os.PathLike[str], quantize: bool = False, **options: object) -> str:
    """The network as text in the snn dialect; `options` as in `Options`. Raises `Unreadable` or `Refused`."""
    from .exporter import texts

    findings = Findings(path)
    chosen = Options(quantize=quantize, **options)  # type: ignore[arg-type]
    return texts(compile_network(path, chosen, findings), findings)[f"{chosen.name}.mlir"]


def export(
    path: str | os.PathLike[str],
    out: str | os.PathLike[str],
    options: Options | None = None,
    findings: Findings | None = None,
) -> None:
    """Writes `N.mlir`, `N.h`, `N_weights.c` and `N.json` into the directory `out`, all or none. Raises `Unreadable` or `Refused`;
    warnings go to `findings`."""
    from .exporter import texts

    findings = Findings(path) if findings is None else findings
    write_all(out, texts(compile_network(path, options or Options(), findings), findings))


def generate(
    path: str | os.PathLike[str],
    out: str | os.PathLike[str],
    options: Options | None = None,
    findings: Findings | None = None,
    depfile: str | os.PathLike[str] | None = None,
    stamp: str | os.PathLike[str] | None = None,
    layout: str = "plain",
) -> None:
    """All stages in one process: as `export`, and `N.lowered.mlir` and `N.c` with them.

    For other build tools: `depfile` is written in make's syntax, and says that what was written depends on the model and this package.
    `stamp` is a file that is made anew each time, and stands for all that was written: then a file whose content does not change
    keeps its time, which spares the build everything behind it, and the depfile is about the stamp.

    `layout="xheep"`: `out` is a folder below X-HEEP's sw/applications; it also gets a `main.c`, unless there is one."""
    from .depfile import compiler_files, depfile_text
    from .exporter.layout import lay_out
    from .names import CNames
    from .xheep_app import MAIN, application, check_folder

    options = options or Options()
    findings = Findings(path) if findings is None else findings
    if layout == "xheep":
        check_folder(out, options)
    program = compile_network(path, options, findings)
    contents = all_texts(program, findings)
    if layout == "xheep":
        contents = {file: text for file, text in contents.items() if not file.endswith(".mlir")}
        if not os.path.exists(os.path.join(out, MAIN)):
            contents[MAIN] = application(lay_out(program, CNames(program.network.file)), options)
    write_all(out, contents, keep_unchanged=stamp is not None)
    if depfile is not None:
        targets = [os.path.join(out, file) for file in contents] if stamp is None else [stamp]
        write(depfile, depfile_text(targets, [path, *compiler_files()]))
    if stamp is not None:
        write(stamp, "")  # last: before it, nothing is done


def all_texts(program: Program, findings: Findings) -> dict[str, str]:
    """What `generate` writes, by name."""
    from .c import emit_c
    from .exporter import texts
    from .lowering import lower

    contents = texts(program, findings)
    name = program.options.name
    contents[f"{name}.lowered.mlir"] = lower(contents[f"{name}.mlir"], f"{name}.mlir")
    contents[f"{name}.c"] = emit_c(contents[f"{name}.lowered.mlir"], f"{name}.lowered.mlir")
    return contents


def simulate(
    path: str | os.PathLike[str],
    input: str | os.PathLike[str],
    output: str | os.PathLike[str] | None = None,
    options: Options | None = None,
    trace: str | os.PathLike[str] | None = None,
    findings: Findings | None = None,
) -> dict[str, Array]:
    """Runs a network on the data of a `.npy` and returns, per Output, what the contract says comes out: (steps, *shape), with a leading
    axis of samples where the input has one. `output` and `trace` name files to write; the trace holds every node's values, and
    `<neuron>.v`, `<neuron>.i`. Raises `Unreadable` or `Refused`."""
    findings = Findings(path) if findings is None else findings
    program = compile_network(path, options or Options(), findings)
    inputs, many = load_inputs(input, program.network)
    result = run_reference(program, inputs, trace=trace is not None)
    if result.saturated:
        findings.warn(
            "", f"{result.saturated} input values do not fit int8 and were saturated", "pass another input_scale="
        )
    outputs = {name: array if many else array[0] for name, array in result.outputs.items()}
    if output is not None:
        write(output, arrays_as_bytes({"": next(iter(outputs.values()))} if len(outputs) == 1 else outputs))
    if trace is not None:
        write(trace, arrays_as_bytes({name: array if many else array[0] for name, array in result.trace.items()}))
    return outputs
