# SPDX-License-Identifier: Apache-2.0
"""From a .nir file to a static library: one builder per stage of the compiler, each a command."""

from __future__ import annotations

import argparse
import dataclasses
import functools
import importlib.metadata
import os
import shlex
import sys
from pathlib import Path
from typing import Any

import SCons.Builder
import SCons.Node.FS
import SCons.Util

from ..boards import nearest
from ..budget import amount
from ..errors import Unreadable
from ..options import DEFAULT_NAME, Options
from .session import action, one_line

PACKAGE = Path(__file__).resolve().parents[1]
# what decides about the bytes of generated files, beside the package itself
DISTRIBUTIONS = ("xtc-mlir-python-bindings", "numpy", "h5py")
SNN = "$SNN_PYTHON -m snn_builder"


def add_stages(env: Any) -> None:
    """Adds SnnExport (.nir -> .mlir, .h, _weights.c, .json), SnnLower, SnnEmitC, SnnArchive, SnnNetwork, which is these
    four, and SnnBake and SnnStreamed, the network as the programs in firmware/ see it."""
    env.SetDefault(
        SNN_PYTHON_FILE=[relative(sys.executable)],
        SNN_PYTHON="$( $SNN_PYTHON_FILE $)",  # where Python lies changes no output
        SNN_DIR="snn",
        SNN_CCFLAGS=["-ffp-contract=off", "-DSNN_FP_CONTRACT_OFF"],
        SNN_NAME=DEFAULT_NAME,
        SNN_FLAGS=[],
        SNN_BAKE_FLAGS=[],
        SNN_BUDGETS=[],
        AR="ar",
    )
    if PACKAGE.parent != Path.cwd():
        env.PrependENVPath("PYTHONPATH", str(PACKAGE.parent))

    def stage(tag: str, command: str, **kw: Any) -> Any:
        return SCons.Builder.Builder(action=action(env, tag, command), **kw)

    env.Append(
        BUILDERS={
            "SnnExport": stage(
                "NIR",
                f"{SNN} export $SOURCE -o ${{TARGET.dir}} --name ${{TARGET.filebase}} $SNN_FLAGS",
                suffix=".mlir",
                src_suffix=".nir",
                emitter=_export_emitter,
            ),
            "SnnLower": stage(
                "LOWER",
                f"{SNN} lower $SOURCE -o $TARGET",
                suffix=".lowered.mlir",
                src_suffix=".mlir",
                emitter=_compiler_emitter,
            ),
            "SnnEmitC": stage(
                "C",
                f"{SNN} emit-c $SOURCE -o $TARGET",
                suffix=".c",
                src_suffix=".lowered.mlir",
                emitter=_compiler_emitter,
            ),
            "SnnBake": stage(
                "BAKE",
                f"{SNN} bake $SOURCE -o ${{TARGET.dir}} --name $SNN_NAME $SNN_FLAGS $SNN_BAKE_FLAGS",
                suffix=".h",
                src_suffix=".nir",
                emitter=_bake_emitter,
            ),
            "SnnStreamed": stage(
                "GLUE",
                f"{SNN} bake --stream $SOURCE -o ${{TARGET.dir}} --name $SNN_NAME $SNN_FLAGS",
                suffix=".h",
                src_suffix=".nir",
                emitter=_streamed_emitter,
            ),
            # a file of its own: what broke its budget is there to be looked at, and is not linked again for another
            "SnnSize": stage(
                "SIZE",
                f"{SNN} size --json $SOURCE $SNN_BUDGETS > $TARGET",
                suffix=".size.json",
                emitter=_compiler_emitter,
            ),
            # D: no time, no user in the archive
            "SnnArchive": stage("AR", "$AR rcsD $TARGET $SOURCES", suffix=".a", src_suffix=".o"),
        }
    )
    env.AddMethod(one_line(network), "SnnNetwork")
    env.AddMethod(one_line(budget), "SnnBudget")
    env.AddMethod(check, "SnnCheck")
    env.AddMethod(caches, "SnnCaches")


class Network(SCons.Util.NodeList):  # type: ignore[misc]
    """What SnnNetwork returns: the nodes of the library, and `include`, the directory of the header, for CPPPATH."""

    def __init__(self, library: Any, include: Any) -> None:
        super().__init__(library)
        self.include = include


def network(env: Any, model: Any, directory: Any = None, options: Options | None = None, **choices: Any) -> Network:
    """The static library of `model`, and on the way to it every file of the network, in `directory`: $SNN_DIR/<name>-<f32|int8>
    unless told otherwise. Names are relative to the SConscript's directory or its variant, as for any builder.

    `options` or `choices` (name, quantize, dt, reset, reset_delay, kernel, input_scale, form,
    weights_section) are as for the command line.
    """
    known = [field.name for field in dataclasses.fields(Options)]
    for choice in choices:
        if choice not in known:
            raise Unreadable("", "SnnNetwork", f"no option is called '{choice}'", nearest(choice, known))
    options = options or Options(**choices)
    name = options.name
    out = env.Dir(directory or f"$SNN_DIR/{name}-{options.mode}")
    mlir = env.SnnExport(out.File(f"{name}.mlir"), model, SNN_FLAGS=flags(options))[0]
    lowered = env.SnnLower(out.File(f"{name}.lowered.mlir"), mlir)
    sources = [*env.SnnEmitC(out.File(f"{name}.c"), lowered), out.File(f"{name}_weights.c")]
    more = {"CCFLAGS": [*SCons.Util.CLVar(env.get("CCFLAGS")), *env["SNN_CCFLAGS"]]} if env["SNN_CCFLAGS"] else {}
    objects = [env.StaticObject(source.target_from_source("", ".o"), source, **more) for source in sources]
    env.Depends(objects, env.get("SNN_IDENTITY", []))
    return Network(env.SnnArchive(out.File(f"lib{name}.a"), objects), out)


def budget(env: Any, image: Any, ram: int | str | None = None, flash: int | str | None = None) -> Any:
    """The sizes of an image, any ELF file, beside it in `<image>.size.json`; building it fails where the image has more
    than `ram` or `flash` bytes (65536, "64k", "1M"), with what takes most. Nothing without a budget."""
    words = budget_words(ram, flash)
    if not words or "SNN_MISSING" in env:
        return []
    (image,) = env.Flatten(image)
    return env.SnnSize(image.target_from_source("", ".size.json"), image, SNN_BUDGETS=words)


def budget_words(ram: int | str | None, flash: int | str | None) -> list[str]:
    """Budgets on the command line of `size`."""
    try:
        given = [(kind, amount(str(held))) for kind, held in (("ram", ram), ("flash", flash)) if held is not None]
    except argparse.ArgumentTypeError as error:
        raise Unreadable("", "SnnBudget", str(error), "") from None
    return [word for kind, held in given for word in (f"--budget-{kind}", str(held))]


def check(env: Any, model: str, options: Options) -> Any:
    """An action that tells all about a model under these options, and fails when it cannot be built."""
    words = [SNN, "check", shlex.quote(model), *flags(options)]
    return SCons.Action.Action(" ".join(words), *([] if env["SNN_VERBOSE"] else [None]))


def flags(options: Options) -> list[str]:
    """`options`, all but the name, on the command line of a stage; what is the default there is left out."""
    default = Options()
    words = ["--quantize"] if options.quantize else []
    words += ["--dt", repr(options.dt)] if options.dt is not None else []
    words += ["--reset", options.reset] if options.reset != default.reset else []
    words += ["--reset-delay", str(options.reset_delay)] if options.reset_delay else []
    words += ["--kernel", options.kernel] if options.kernel != default.kernel else []
    words += ["--form", options.form] if options.form != default.form else []
    words += ["--weights-section", options.weights_section] if options.weights_section is not None else []
    # one word: argparse takes a negative number behind a space for an option
    words += [f"--input-scale={options.input_scale}"] if options.input_scale is not None else []
    return words


def caches(env: Any) -> list[Any]:
    """What Python leaves beside the modules when the stages run."""
    return [env.Dir(str(path)) for path in sorted(Path(relative(str(PACKAGE))).rglob("__pycache__"))]


def _export_emitter(target: list[Any], source: list[Any], env: Any) -> tuple[list[Any], list[Any]]:
    mlir = target[0]
    name = str(mlir.name).removesuffix(".mlir")
    target = [mlir, *(mlir.dir.File(name + suffix) for suffix in (".h", "_weights.c", ".json"))]
    return _compiler_emitter(target, source, env)


def _bake_emitter(target: list[Any], source: list[Any], env: Any) -> tuple[list[Any], list[Any]]:
    target = [target[0].dir.File(name) for name in ("baked.h", "baked.c", "baked_check.s", "reference.npz")]
    return _compiler_emitter(target, source, env)


def _streamed_emitter(target: list[Any], source: list[Any], env: Any) -> tuple[list[Any], list[Any]]:
    return _compiler_emitter([target[0].dir.File(name) for name in ("streamed.h", "streamed.c")], source, env)


def _compiler_emitter(target: list[Any], source: list[Any], env: Any) -> tuple[list[Any], list[Any]]:
    """Every stage depends on the whole compiler: nobody has to keep a list, and nothing is ever stale."""
    env.Depends(target, [env.File(name) for name in _compiler_files()])
    env.Depends(target, env.Value(_versions()))
    return target, source


@functools.cache
def _compiler_files() -> tuple[str, ...]:
    found = [
        below_top(os.path.join(folder, name))
        for folder, _, names in os.walk(PACKAGE)
        for name in names
        if name.endswith((".py", ".mlir"))
    ]
    return tuple(sorted(found))


@functools.cache
def _versions() -> str:
    words = []
    for name in DISTRIBUTIONS:
        try:
            words.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:  # the stage that needs it says so
            words.append(f"{name} missing")
    return ", ".join(words)


def relative(path: str) -> str:
    """Relative to the top directory when `path` is below it: commands read better and do not tell where it lies."""
    top = SCons.Node.FS.get_default_fs().Top.get_abspath()
    return os.path.relpath(path, top) if path.startswith(top + os.sep) else path


def below_top(path: str) -> str:
    """The same, as SCons writes it: an SConscript may be anywhere."""
    name = relative(path)
    return name if os.path.isabs(name) else f"#{name}"
