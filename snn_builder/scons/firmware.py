# SPDX-License-Identifier: Apache-2.0
"""From a network's library to firmware that runs: the boards, their compilers, the harness around the network."""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import importlib.util
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import SCons.Action
import SCons.Builder
import SCons.Tool.compilation_db

from ..boards import FILE, ZIG, Board, Toolchain
from ..errors import Unreadable
from ..options import Options
from .request import Model, Request
from .session import BUILD, StageFailed, action, one_line, short
from .stages import PACKAGE, SNN, flags, relative

NO_DEBUG = "-g0"  # zig's default has debug information, and that has the name of the checkout's directory
CFLAGS = [
    "-std=c11",
    NO_DEBUG,
    "-Wall",
    "-Wextra",
    "-Wpedantic",
    "-Wconversion",
    "-Wshadow",
    "-Wmissing-prototypes",
    "-Werror",
]
RUN_ZIG = "$SNN_PYTHON -m ziglang"
FORMS = ("bin", "hex", "map")
LINKER_FILES = ("*.ld", "*.inc")  # what a linker script or an assembly file may include, unseen by SCons


class _Made:
    """Images and runs so far, which boards without a toolchain come after, and what those boards need."""

    def __init__(self) -> None:
        self.images: list[Any] = []
        self.streams: list[Any] = []
        self.runs: list[Any] = []
        self.missing: list[Unreadable] = []


def add_firmware(env: Any) -> None:
    """Adds SnnBoards, for each of its environments SnnFirmware, SnnStream, SnnForms and SnnRun, for all SnnCompileCommands."""
    env["SNN_MADE"] = _Made()
    env["SNN_SIZE"] = SCons.Action.Action(f"{SNN} size $SOURCES", *([] if env["SNN_VERBOSE"] else [None]))
    env.Append(
        BUILDERS={
            "SnnImage": SCons.Builder.Builder(
                action=action(env, "LINK", "$SNN_LINKER -o $TARGET $SNN_LINKFLAGS $SOURCES $SNN_LIBS"), suffix=".elf"
            ),
            "SnnForm": SCons.Builder.Builder(action=action(env, "FORM", f"{SNN} image $SOURCE --$SNN_FORM $TARGET")),
            "SnnRunImage": SCons.Builder.Builder(
                action=action(env, "RUN", f"{SNN} run ${{TARGET.dir}} $SNN_RUN_FLAGS -- $SNN_RUNNER", "${TARGET.dir}")
            ),
            "SnnCompilerRt": SCons.Builder.Builder(
                action=action(
                    env,
                    "ZIG",
                    f"{RUN_ZIG} build-obj $( $SOURCE $) $SNN_FLAGS -O ReleaseSmall -fstrip -ffunction-sections"
                    " -fdata-sections --cache-dir ${TARGET.dir}/zig -femit-bin=$TARGET",
                ),
                suffix=".o",
            ),
        }
    )
    for method in (boards, firmware, stream, forms, run):
        env.AddMethod(one_line(method), f"Snn{method.__name__.capitalize()}")
    env.AddMethod(compile_commands, "SnnCompileCommands")


def boards(env: Any, request: Request) -> list[Any]:
    """A copy of `env` per board, as SNN_BOARD, with its compiler and flags.

    Boards whose toolchain is missing come last: their targets fail with what to install after all others are built.
    """
    return sorted(
        (_environment(env, board, request) for board in request.boards), key=lambda copy: "SNN_MISSING" in copy
    )


def firmware(env: Any, directory: str, library: Any, model: Model, options: Options) -> Any:
    """The image of a network from SnnNetwork, `library`, with the harness and the model's input baked in."""
    out = env.Dir(directory)
    files = {"--input": model.input, "--labels": model.labels}
    given = {flag: file for flag, file in files.items() if file is not None}
    words = [word for index, flag in enumerate(given, 1) for word in (flag, f"${{SOURCES[{index}]}}")]
    _, source, check, _ = env.SnnBake(
        out.File("baked.h"),
        [model.path, *given.values()],
        SNN_NAME=options.name,
        SNN_FLAGS=flags(options),
        SNN_BAKE_FLAGS=words,
    )
    objects = [
        *env["SNN_BOARD_OBJECTS"],
        *_compile(env, out.File("main.o"), env["SNN_HARNESS"].File("main.c"), out),
        *_compile(env, out.File("baked.o"), source, out),
    ]
    env.Depends(objects[-2:], out.File(f"{options.name}.h"))  # which baked.h includes, but -n cannot look into that
    # retraining changes the checks, but is to compile the weights alone: where cc links, it assembles them on the way
    checks = [check] if env["SNN_LINK"] == "$CC" else env.StaticObject(out.File("baked_check.o"), check)
    image = _image(env, out.File("firmware.elf"), [objects, checks, library])
    env["SNN_MADE"].images.extend(image)
    return image


def stream(env: Any, directory: str, library: Any, model: Model, options: Options) -> Any:
    """The image of a network from SnnNetwork, `library`, that waits at the UART for its input: docs/streaming.md."""
    out = env.Dir(directory)
    _, source = env.SnnStreamed(out.File("streamed.h"), model.path, SNN_NAME=options.name, SNN_FLAGS=flags(options))
    listed = len(_compiled())
    harness = env["SNN_HARNESS"]
    objects = [
        *_compile(env, out.File("stream.o"), harness.File("stream.c")),
        *_compile(env, out.File("stream_main.o"), harness.File("stream_main.c"), out),
        *_compile(env, out.File("streamed.o"), source, out),
    ]
    del _compiled()[
        listed:
    ]  # compile_commands.json tells of what a build leaves, and of this nothing is there unless asked for
    env.Depends(objects, out.File(f"{options.name}.h"))  # as for baked.h
    image = _image(env, out.File("stream.elf"), [env["SNN_BOARD_OBJECTS"], objects, library])
    env["SNN_MADE"].streams.extend(image)
    return image


def forms(env: Any, image: Any) -> dict[str, Any]:
    """What programmers and simulators load instead of the ELF file, by suffix; none of a native program."""
    if not env["SNN_BOARD"].freestanding or "SNN_MISSING" in env:
        return {form: [] for form in FORMS}
    return {form: env.SnnForm(image[0].target_from_source("", f".{form}"), image, SNN_FORM=form) for form in FORMS}


def run(env: Any, directory: str, image: Any) -> Any:
    """Runs an image from SnnFirmware, every time it is asked for: result.json and outputs.npy in `directory`."""
    out = env.Dir(directory)
    targets = [out.File(name) for name in ("result.json", "outputs.npy")]
    for target in targets:
        target.attributes.snn_whole = True  # tells of a mismatch, so it stays when the run fails
    result = env.SnnRunImage(targets, [image, out.File("reference.npz")])
    env["SNN_MADE"].runs.extend(result)
    env.NoCache(result)  # a result from a CacheDir would tell of another run
    return env.AlwaysBuild(result)


def compile_commands(env: Any, path: str) -> Any:
    """compile_commands.json of everything compiled so far, but for SnnStream; rewritten when a command changes."""
    env["COMPILATIONDB_COMSTR"] = short(env, "JSON") or "Building $TARGET"
    database = env.CompilationDatabase(path)
    commands = hashlib.sha256()
    for target, source, entry, _ in _compiled():
        words = [target, source, entry["CC"], *entry["CCFLAGS"], *entry["ASFLAGS"], *entry["ASPPFLAGS"]]
        words += [*entry.get("CPPPATH", ()), entry.get("CPPDEFINES")]
        commands.update("\0".join(map(str, words)).encode())
    for node in database:
        node.set_always_build(False)
    env.Depends(database, env.Value(f"commands {commands.hexdigest()[:16]}"))
    return database


def _compiled() -> list[Any]:
    """What compile_commands.json is made of: SCons adds to it with each object."""
    entries: list[Any] = vars(SCons.Tool.compilation_db)["__COMPILATION_DB_ENTRIES"]
    return entries


def _environment(env: Any, board: Board, request: Request) -> Any:
    copy = env.Clone(SNN_BOARD=board)
    path = env["ENV"].get("PATH")
    try:
        toolchain = board.toolchain(request.toolchain, path)
    except Unreadable as error:
        return _without_toolchain(copy, error)
    compiler = toolchain.compiler(path) or ""
    archiver = toolchain.archiver(compiler, path)
    asflags = [NO_DEBUG, *board.asflags, *toolchain.asflags]
    options = [(option, request.board_options[board.name][name]) for name, option in board.options.items()]
    defines = {"BOARD_UART_BAUD": board.uart_baud} if board.uart_baud else {}
    defines |= {option.define: value for option, value in options if option.define}
    defsym = "--defsym=" if toolchain.link else "-Wl,--defsym="
    script = ["-T", copy.File(str(board.path / board.linker_script))] if board.linker_script else []
    copy.Replace(
        SNN_IDENTITY=copy.Value(_identity(compiler)),
        SNN_HARNESS=copy.Dir(relative(str(PACKAGE.parent / "firmware"))),
        SNN_DEFINES=defines,
        CC=f"{RUN_ZIG} cc" if compiler == ZIG else compiler,
        CFLAGS=CFLAGS,
        CCFLAGS=[*board.cflags, *toolchain.cflags],
        CCCOMSTR=short(env, "CC"),
        AS="$CC",
        ASFLAGS=["-c", *asflags],
        ASCOMSTR=short(env, "AS"),
        ASPP="$CC",
        ASPPFLAGS=asflags,
        ASPPCOMSTR=short(env, "AS"),
        AR=f"{RUN_ZIG} ar" if archiver == ZIG else archiver,
        SNN_LINK=_linker(toolchain, compiler),
        # where memory is an option, an image that does not fit is explained
        SNN_LINKER=[*(_snn("link", board) if any(option.defsym for option, _ in options) else []), "$SNN_LINK"],
        SNN_LINKFLAGS=[
            *board.linkflags,
            *toolchain.linkflags,
            *(f"{defsym}{option.defsym}={value}" for option, value in options if option.defsym),
            *script,
        ],
        SNN_LIBS=[*board.libs, *toolchain.libs],
        SNN_RUN_FLAGS=["--instructions"] if board.run == "emulator" else [],
        SNN_RUNNER=[*(_snn("emulate", board)[:-1] if board.run == "emulator" else []), "${SOURCES[0]}"],
    )
    if compiler == ZIG and "HOME" not in copy["ENV"]:
        copy["ENV"].setdefault("ZIG_GLOBAL_CACHE_DIR", copy.Dir(f"{BUILD}/zig").get_abspath())
    place = copy.Dir(f"{BUILD}/{board.name}")
    sources = [copy.File(str(board.path / source)) for source in board.sources]
    if board.freestanding:
        sources.append(copy["SNN_HARNESS"].File("mem.c"))
    copy["SNN_BOARD_OBJECTS"] = [
        node for source in sources for node in _compile(copy, place.File(Path(source.name).stem + ".o"), source)
    ]
    copy["SNN_COMPILER_RT"] = _compiler_rt(copy, place, toolchain)
    return copy


def _snn(command: str, board: Board) -> list[str]:
    return ["$SNN_PYTHON", "-m", "snn_builder", command, str(board.path), "--"]


def _image(env: Any, target: Any, parts: list[Any]) -> Any:
    board: Board = env["SNN_BOARD"]
    image = env.SnnImage(target, [*parts, env["SNN_COMPILER_RT"]])
    beside = [path for pattern in LINKER_FILES for path in sorted(board.path.glob(pattern))]
    env.Depends(image, [*map(env.File, map(str, [*beside, board.path / FILE])), env["SNN_IDENTITY"]])
    return image


def _compile(env: Any, target: Any, source: Any, *include: Any) -> Any:
    """An object of the harness or the board, not of the network."""
    board: Board = env["SNN_BOARD"]
    node = env.StaticObject(
        target,
        source,
        CCFLAGS=[*env["CCFLAGS"], *board.firmware_cflags],
        CPPDEFINES=env["SNN_DEFINES"],
        CPPPATH=[*include, env["SNN_HARNESS"], env.Dir(str(board.path))],
    )
    env.Depends(node, env["SNN_IDENTITY"])
    return node


def _compiler_rt(env: Any, place: Any, toolchain: Toolchain) -> list[Any]:
    if not toolchain.compiler_rt:
        return []
    spec = importlib.util.find_spec("ziglang")
    assert spec is not None and spec.origin is not None
    source = env.File(relative(str(Path(spec.origin).parent / "lib" / "compiler_rt.zig")))
    node = env.SnnCompilerRt(place.File("compiler_rt.o"), source, SNN_FLAGS=toolchain.compiler_rt)
    env.Depends(node, env["SNN_IDENTITY"])
    # zig's own archives have the path of its cache in them
    return list(env.SnnArchive(place.File("libcompiler_rt.a"), node))


def _linker(toolchain: Toolchain, compiler: str) -> str:
    if toolchain.link is None:
        return "$CC"
    return f"{RUN_ZIG} {toolchain.link}" if compiler == ZIG else shlex.join(shlex.split(toolchain.link))


@functools.cache
def _identity(compiler: str) -> str:
    """Which compiler it is, wherever it lies."""
    if compiler == ZIG:
        return f"ziglang {importlib.metadata.version('ziglang')}"
    try:
        said = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=False).stdout
    except OSError as error:
        return f"{compiler}: {error.strerror}"
    return said.partition("\n")[0]


def _without_toolchain(env: Any, error: Unreadable) -> Any:
    """An environment that plans the same targets, all of which fail."""
    env["SNN_MISSING"] = error
    made: _Made = env["SNN_MADE"]
    made.missing.append(error)

    def fail(target: Any, source: Any, env: Any) -> None:
        # all boards' lines at once, because the first failure ends the build
        while made.missing:
            print(f"error: {made.missing.pop(0)}", file=sys.stderr)
        raise StageFailed(error.status)

    def failing(env: Any, targets: list[Any], after: list[Any]) -> Any:
        nodes = env.Command(targets, [], SCons.Action.Action(fail, None))
        env.Depends(nodes, after)
        return nodes

    env.AddMethod(lambda env, directory, model, options: [], "SnnNetwork")
    env.AddMethod(
        lambda env, directory, library, model, options: failing(
            env,
            [env.Dir(directory).File(name) for name in ("firmware.elf", f"lib{options.name}.a")],
            made.images,
        ),
        "SnnFirmware",
    )
    env.AddMethod(
        lambda env, directory, library, model, options: failing(
            env, [env.Dir(directory).File("stream.elf")], made.streams
        ),
        "SnnStream",
    )
    env.AddMethod(
        lambda env, directory, image: failing(env, [env.Dir(directory).File("result.json")], made.runs),
        "SnnRun",
    )
    return env
