# SPDX-License-Identifier: Apache-2.0
"""The command line: one command per stage. Exit status: 0 fine, 1 refused or wrong, 2 unreadable file or bad usage."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from . import __version__
from .errors import Findings, Refused, SnnError, Unreadable
from .options import DEFAULT_NAME, FORMS, KERNELS, LAYOUTS, RESETS, Options


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; `arguments` without the program's name."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        chosen = _parser(words).parse_args(words)
        command: Callable[[argparse.Namespace], int] = chosen.command
        return command(chosen)
    except SnnError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.status
    except BrokenPipeError:
        return 1
    except KeyboardInterrupt:
        return 130


class _Parser(argparse.ArgumentParser):
    """argparse, with its errors in our one line."""

    def error(self, message: str) -> None:  # type: ignore[override]
        raise Unreadable("", "", message, f"see {self.prog} --help")


def _parser(words: Sequence[str]) -> argparse.ArgumentParser:
    parser = _Parser(
        prog="python -m snn_builder",
        description="Trained spiking networks (NIR) to C for small cores.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"snn-builder {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND", parser_class=_Parser)

    def add(name: str, command: Callable[[argparse.Namespace], int], text: str) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=text, description=text, allow_abbrev=False)
        sub.set_defaults(command=command)
        return sub

    for name, run, text in (
        ("generate", _generate, "all stages: .nir to C"),
        ("export", _export, "first stage: .nir to N.mlir, N.h, N_weights.c, N.json"),
    ):
        stage = add(name, run, text)
        _network_arguments(stage)
        stage.add_argument("-o", dest="out", metavar="DIR", required=True, help="where to write; made if needed")
        if name == "generate":
            stage.add_argument(
                "--depfile", metavar="FILE", help="also write what the files depend on, as make reads it"
            )
            stage.add_argument(
                "--stamp", metavar="FILE", help="make FILE last, and leave files alone whose content does not change"
            )
            stage.add_argument(
                "--layout", choices=LAYOUTS, default="plain", help="xheep: DIR is an application of X-HEEP's own build"
            )

    stage = add("check", _check, "what generate would say of networks, and how they would run")
    _network_arguments(stage, several=True)
    stage.add_argument("--json", action="store_true")

    for name, run, text in (
        ("lower", _lower, "N.mlir to N.lowered.mlir"),
        ("emit-c", _emit_c, "N.lowered.mlir to N.c"),
    ):
        stage = add(name, run, text)
        stage.add_argument("file", metavar="FILE")
        stage.add_argument("-o", dest="out", metavar="FILE", required=True)

    stage = add("simulate", _simulate, "run the NumPy reference on a .npy")
    _network_arguments(stage)
    stage.add_argument("--input", required=True, metavar="NPY", help="steps x shape, or samples x steps x shape")
    stage.add_argument("--output", required=True, metavar="NPY")
    stage.add_argument("--trace", metavar="NPZ", help="also write what every inner layer did")

    stage = add("bake", _bake, "input data to C for firmware/main.c; the network for firmware/stream_main.c")
    _network_arguments(stage)
    stage.add_argument("-o", dest="out", metavar="DIR", required=True)
    stage.add_argument("--input", metavar="NPY", help="default: random spikes")
    stage.add_argument("--labels", metavar="NPY", help="default: INPUT.labels.npy where it exists")
    stage.add_argument("--stream", action="store_true", help="for firmware/stream_main.c, which gets its input later")

    stage = add("run", _run, "run an image and compare what it prints with the reference")
    stage.add_argument(
        "directory", metavar="DIR", help="the build directory: has reference.npz, gets result.json and outputs.npy"
    )
    stage.add_argument("--instructions", action="store_true", help="the board's cycles are instructions (emulators)")
    stage.add_argument("run_command", metavar="COMMAND", nargs="+", help="after --: what runs the image")

    stage = add("stream", _stream, "send input to a board step by step, and compare what it answers with the reference")
    _network_arguments(stage)
    stage.add_argument("input", metavar="NPY", help="steps x shape, or samples x steps x shape")
    stage.add_argument(
        "--port", required=True, help="of a board that runs stream.elf; emulator:BOARD builds and emulates that"
    )
    stage.add_argument("--baud", type=int, default=115200, metavar="N", help="speed of the port (%(default)s)")
    stage.add_argument("--timeout", type=float, metavar="S", help="seconds before a frame is sent again (0.25)")
    stage.add_argument("--output", metavar="NPY", help="where to write what comes out")
    stage.add_argument("--labels", metavar="NPY", help="default: INPUT.labels.npy where it exists")
    stage.add_argument("--no-reference", action="store_true", help="do not compare")
    stage.add_argument(
        "--build", action="append", default=[], metavar="OPTION=VALUE", help="for emulator:BOARD, such as ram=128k"
    )

    stage = add("emulate", _emulate, "run an image on the machine of a board")
    if words[:1] == ["emulate"]:  # its arguments come with the emulator, which nothing else needs
        from .emulator import add_arguments

        add_arguments(stage)

    stage = add("link", _link, "run a linker; say what would do where an image does not fit")
    if words[:1] == ["link"]:
        from .link import add_arguments as link_arguments

        link_arguments(stage)

    stage = add("image", _image, "write an image as .bin, .hex or .map")
    if words[:1] == ["image"]:
        from .image import add_arguments as image_arguments

        image_arguments(stage)

    add("cmake-dir", _cmake_dir, "the directory of snn_builder.cmake")

    stage = add("size", _size, "bytes of images by section")
    stage.add_argument("files", metavar="ELF", nargs="+")
    stage.add_argument("--json", action="store_true")
    if words[:1] == ["size"]:
        from .budget import amount

        for kind, text in (
            ("ram", "an image has more ram"),
            ("flash", "an image has more flash"),
            ("stack", "a step of the network takes more stack"),
        ):
            stage.add_argument(f"--budget-{kind}", type=amount, metavar="BYTES", help=f"fail where {text} (64k, 1M)")
    return parser


def _network_arguments(parser: argparse.ArgumentParser, several: bool = False) -> None:
    if several:
        parser.add_argument("files", metavar="FILE", nargs="+", help="networks: .nir files")
    else:
        parser.add_argument("file", metavar="FILE", help="the network: a .nir file")
    parser.add_argument(
        "--name", default=DEFAULT_NAME, metavar="N", help=f"prefix of files and C symbols (default {DEFAULT_NAME})"
    )
    parser.add_argument("--quantize", action="store_true", help="integer mode: int8 weights, Q12 state")
    parser.add_argument("--dt", type=float, metavar="S", help="timestep, in the file's unit of time")
    parser.add_argument(
        "--reset", choices=RESETS, default="zero", help="what a spike does to v: v_reset, or v - v_threshold"
    )
    parser.add_argument(
        "--reset-delay", type=int, choices=(0, 1), default=0, help="steps between a spike and its reset"
    )
    parser.add_argument("--kernel", choices=KERNELS, default="event", help="pay for spikes, or for weights")
    parser.add_argument(
        "--form", choices=FORMS, default="packed", help="of the event kernel: for 32-bit cores, or for hosts with SIMD"
    )
    parser.add_argument("--input-scale", type=int, metavar="E", help="integer mode: input value = q * 2^-E")
    parser.add_argument("--weights-section", metavar="NAME", help="section of weights and tables in the object file")


def _options(chosen: argparse.Namespace) -> Options:
    return Options(
        name=chosen.name,
        quantize=chosen.quantize,
        dt=chosen.dt,
        reset=chosen.reset,
        kernel=chosen.kernel,
        input_scale=chosen.input_scale,
        form=chosen.form,
        reset_delay=chosen.reset_delay,
        weights_section=chosen.weights_section,
    )


def _report(findings: Findings) -> None:
    for item in findings.items:
        if item.level == "warning":
            print(
                f"warning: {': '.join(part for part in (findings.file, item.node, item.problem) if part)}",
                end="",
                file=sys.stderr,
            )
            print(f"; {item.remedy}" if item.remedy else "", file=sys.stderr)


def _generate(chosen: argparse.Namespace) -> int:
    from .api import generate

    findings = Findings(chosen.file)
    generate(chosen.file, chosen.out, _options(chosen), findings, chosen.depfile, chosen.stamp, chosen.layout)
    _report(findings)
    return 0


def _export(chosen: argparse.Namespace) -> int:
    from .api import export

    findings = Findings(chosen.file)
    export(chosen.file, chosen.out, _options(chosen), findings)
    _report(findings)
    return 0


def _check(chosen: argparse.Namespace) -> int:
    from .checker import check, report_json, report_text

    reports = [check(file, _options(chosen)) for file in chosen.files]
    print(report_json(reports) if chosen.json else "\n\n".join(map(report_text, reports)))
    return max(report.status for report in reports)


def _lower(chosen: argparse.Namespace) -> int:
    from .files import read_text, write
    from .lowering import lower

    write(chosen.out, lower(read_text(chosen.file), chosen.file))
    return 0


def _emit_c(chosen: argparse.Namespace) -> int:
    from .c import emit_c
    from .files import read_text, write

    write(chosen.out, emit_c(read_text(chosen.file), chosen.file))
    return 0


def _simulate(chosen: argparse.Namespace) -> int:
    from .api import simulate

    findings = Findings(chosen.file)
    simulate(chosen.file, chosen.input, chosen.output, _options(chosen), chosen.trace, findings)
    _report(findings)
    return 0


def _bake(chosen: argparse.Namespace) -> int:
    if chosen.stream:
        from .glue import write_streamed

        write_streamed(chosen.file, chosen.out, _options(chosen))
        return 0
    from .harness import bake

    findings = Findings(chosen.file)
    bake(chosen.file, chosen.out, _options(chosen), chosen.input, chosen.labels, findings)
    return 0


def _run(chosen: argparse.Namespace) -> int:
    from .harness import run

    return run(chosen.directory, chosen.run_command, chosen.instructions)


def _stream(chosen: argparse.Namespace) -> int:
    from .stream import stream

    if chosen.baud <= 0:
        raise Unreadable("", "", f"--baud {chosen.baud} is no speed", "use what the board has, such as 115200")
    if chosen.timeout is not None and not 0 < chosen.timeout < 1e6:
        raise Unreadable("", "", f"--timeout {chosen.timeout} is no time", "use seconds, such as 0.25")
    findings = Findings(chosen.file)
    result = stream(
        chosen.file,
        chosen.input,
        chosen.port,
        _options(chosen),
        baud=chosen.baud,
        build=chosen.build,
        output=chosen.output,
        labels=chosen.labels,
        reference=not chosen.no_reference,
        patience=chosen.timeout,
        findings=findings,
    )
    _report(findings)
    if result["complaint"]:
        raise Refused(chosen.file, "", result["complaint"], "")
    return 0


def _emulate(chosen: argparse.Namespace) -> int:
    from .emulator import main as emulate

    return emulate(chosen)


def _cmake_dir(_: argparse.Namespace) -> int:
    print(Path(__file__).resolve().parent / "cmake")
    return 0


def _link(chosen: argparse.Namespace) -> int:
    from .link import main as link

    return link(chosen)


def _image(chosen: argparse.Namespace) -> int:
    from .image import main as image

    return image(chosen)


def _size(chosen: argparse.Namespace) -> int:
    from .budget import check
    from .elf import main

    status = main(chosen.files, chosen.json)
    for error in check(chosen.files, chosen.budget_ram, chosen.budget_flash, chosen.budget_stack):
        print(f"error: {error}", file=sys.stderr)
        status = error.status
    return status


if __name__ == "__main__":
    sys.exit(main())
