# SPDX-License-Identifier: Apache-2.0
"""From a .nir file to a static library: one builder per stage of the compiler, each a command."""

from __future__ import annotations

import functools
import importlib.metadata
import os
import shlex
import sys
from pathlib import Path
from typing import Any

import SCons.Builder

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
        SNN_NAME=DEFAULT_NAME,
        SNN_FLAGS=[],
        SNN_BAKE_FLAGS=[],
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
            # D: no time, no user in the archive
            "SnnArchive": stage("AR", "$AR rcsD $TARGET $SOURCES", suffix=".a", src_suffix=".o"),
        }
    )
    env.AddMethod(one_line(network), "SnnNetwork")
    env.AddMethod(check, "SnnCheck")
    env.AddMethod(caches, "SnnCaches")


def network(env: Any, directory: str, model: str, options: Options | None = None, **choices: Any) -> Any:
    """The static library of `model` in `directory`, and on the way to it every file of the network.

    `options` or `choices` (name, quantize, dt, reset, kernel, input_scale, form) are as for the command line.
    """
    options = options or Options(**choices)
    name = options.name
    out = env.Dir(directory)
    mlir = env.SnnExport(out.File(f"{name}.mlir"), model, SNN_FLAGS=flags(options))[0]
    lowered = env.SnnLower(out.File(f"{name}.lowered.mlir"), mlir)
    sources = [*env.SnnEmitC(out.File(f"{name}.c"), lowered), out.File(f"{name}_weights.c")]
    objects = [env.StaticObject(source.target_from_source("", ".o"), source) for source in sources]
    env.Depends(objects, env.get("SNN_IDENTITY", []))
    return env.SnnArchive(out.File(f"lib{name}.a"), objects)


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
    root = relative(str(PACKAGE))
    found = [
        os.path.join(folder, name)
        for folder, _, names in os.walk(root)
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
    return os.path.relpath(path) if path.startswith(os.getcwd() + os.sep) else path
