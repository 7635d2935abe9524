# SPDX-License-Identifier: Apache-2.0
"""The build graph, by real runs of SCons on copies of this checkout: what is rebuilt when, and what is left behind."""

from __future__ import annotations

import json
import os
import pty
import re
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from elftools.elf.elffile import ELFFile
from scons_tree import SMALL, UP_TO_DATE, Tree, make_tree, small_network

OUT = "build/host-f32/small"
GENERATORS = ["BAKE", "C", "LOWER", "NIR"]
FIRST = sorted(["CC", "CC", "CC", "CC", "CC", "AR", "LINK", "JSON", *GENERATORS])


@pytest.fixture(scope="session")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Tree:
    return make_tree(tmp_path_factory.mktemp("scons") / "pristine")


@pytest.fixture(scope="session")
def built_once(pristine: Tree, tmp_path_factory: pytest.TempPathFactory) -> Tree:
    tree = pristine.copy(tmp_path_factory.mktemp("scons") / "built")
    assert tree.build().steps() == FIRST
    return tree


@pytest.fixture
def tree(built_once: Tree, tmp_path: Path) -> Tree:
    """A checkout of its own, with the small network built in float for the host."""
    return built_once.copy(tmp_path / "tree")


def test_what_a_build_leaves(built_once: Tree) -> None:
    names = {Path(name).name for name in built_once.files() if name.startswith(OUT)}
    network = ("mlir", "lowered.mlir", "c", "h", "json", "o")
    assert {f"snn_network.{suffix}" for suffix in network} <= names
    assert {"snn_network_weights.c", "libsnn_network.a", "firmware.elf", "baked.h", "baked.c", "reference.npz"} <= names
    assert not [name for name in names if name.startswith(".")], "a temporary file was left"


def test_without_a_change_nothing_runs_and_nothing_heavy_is_imported(tree: Tree) -> None:
    command = [sys.executable, "-X", "importtime", "-m", "SCons", "-Q", f"model={SMALL}"]
    took = []
    for _ in range(3):
        start = time.monotonic()
        done = subprocess.run(command, cwd=tree.path, capture_output=True, text=True, check=True)
        took.append(time.monotonic() - start)
        assert done.stdout == f"{UP_TO_DATE}\n"
    imported = {line.rpartition("|")[2].strip().partition(".")[0] for line in done.stderr.splitlines()}
    assert "SCons" in imported
    assert not imported & {"numpy", "mlir", "nir", "h5py", "elftools", "unicorn"}
    assert min(took) < 1.5


@pytest.mark.parametrize("precision", ["f32", "int8"])
def test_new_weights_of_the_same_scale_compile_one_file(tree: Tree, tmp_path: Path, precision: str) -> None:
    options = ["quantize=1"] if precision == "int8" else []
    tree.build(*options)
    before = tree.files()
    small_network(tree.path / SMALL, seed=7)
    log = tmp_path / "log"
    result = tree.build(*options, env=logged_compiler(tmp_path, log))
    out = f"build/host-{precision}/small"
    assert result.done() == sorted(
        [
            f"[BAKE] {out}/baked.h",
            f"[NIR] {out}/snn_network.mlir",
            f"[CC] {out}/snn_network_weights.o",
            f"[AR] {out}/libsnn_network.a",
            f"[LINK] {out}/firmware.elf",
        ]
    )
    compiled = [line for line in log.read_text().splitlines() if line != "--version"]
    assert [" -c " in f" {line} " for line in compiled] == [True, False], "one compilation, one link"
    changed = {Path(name).name for name, content in tree.files().items() if before.get(name) != content}
    unchanged = {f"snn_network.{suffix}" for suffix in ("mlir", "lowered.mlir", "c", "h", "o")} | {"baked.h", "baked.c"}
    assert not changed & unchanged
    assert {"snn_network_weights.c", "snn_network.json", "firmware.elf"} <= changed


def logged_compiler(folder: Path, log: Path) -> dict[str, str]:
    """An environment whose gcc writes down what it is asked."""
    real = shutil.which("gcc")
    if real is None:
        pytest.skip("gcc is not installed")
    (folder / "bin").mkdir()
    script = folder / "bin" / "gcc"
    script.write_text(f'#!/bin/sh\necho "$*" >> {shlex.quote(str(log))}\nexec {real} "$@"\n')
    script.chmod(0o755)
    return {"PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}"}


def test_an_option_rebuilds_exactly_its_network(tree: Tree) -> None:
    tree.build("quantize=both")
    result = tree.build("quantize=both", "input_scale=1")
    assert result.done() and all("build/host-int8/small/" in line for line in result.done())
    assert {"NIR", "LOWER", "C", "BAKE", "LINK"} <= set(result.steps())


def test_another_name_makes_other_files(tree: Tree) -> None:
    tree.build("name=brain")
    assert (tree.path / OUT / "libbrain.a").exists() and (tree.path / OUT / "brain_weights.c").exists()


@pytest.mark.parametrize("module", ["snn_builder/c/__init__.py", "snn_builder/dialect/snn.irdl.mlir"])
def test_an_edited_compiler_runs_again_and_stops_where_nothing_differs(tree: Tree, module: str) -> None:
    tree.edit(module, "\n// a comment\n" if module.endswith(".mlir") else "\n# a comment\n")
    result = tree.build("--debug=explain")
    assert result.steps() == GENERATORS
    assert f"`{module}' changed" in "\n".join(result.out)


def test_a_new_module_counts_too(tree: Tree) -> None:
    tree.edit("snn_builder/brand_new.py", "# nothing yet\n")
    assert tree.build().steps() == GENERATORS


def test_only_what_differs_goes_on(tree: Tree) -> None:
    """The printer's comment changes the .c, not the header: one object of the network, and what is linked of it."""
    tree.edit("snn_builder/__main__.py", "")
    main = tree.path / "snn_builder" / "__main__.py"
    text = main.read_text()
    assert "write(chosen.out, emit_c(" in text
    main.write_text(text.replace("write(chosen.out, emit_c(", 'write(chosen.out, "static int extra;\\n" * 0 + emit_c('))
    assert tree.build().steps() == GENERATORS
    main.write_text(text.replace("write(chosen.out, emit_c(", 'write(chosen.out, "extern int unused;\\n" + emit_c('))
    assert tree.build().steps() == sorted(["CC", *GENERATORS]), "the object is the same, so nothing is archived"


def test_another_compiler_compiles_again_but_generates_nothing(tree: Tree) -> None:
    result = tree.build("toolchain=zig")
    assert set(result.steps()) == {"CC", "AR", "LINK", "JSON"}


def test_another_version_of_the_compiler_compiles_again(tree: Tree, tmp_path: Path) -> None:
    env = logged_compiler(tmp_path, tmp_path / "log")
    tree.build(env=env)
    script = tmp_path / "bin" / "gcc"
    script.write_text(
        script.read_text().replace("exec ", '[ "$1" = --version ] && echo "gcc (a later one) 99" && exit\nexec ')
    )
    assert tree.build(env=env).steps().count("CC") == 5


def test_another_version_of_a_library_generates_again(tree: Tree, tmp_path: Path) -> None:
    folder = tmp_path / "libraries" / "h5py-99.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: h5py\nVersion: 99\n")
    assert tree.build(env={"PYTHONPATH": str(folder.parent)}).steps() == GENERATORS


def test_files_of_the_harness_and_the_board_are_dependencies(tree: Tree) -> None:
    tree.edit(
        "firmware/main.c",
        "static const int unused_here = 1;\nint main2(void);\nint main2(void) { return unused_here; }\n",
    )
    assert tree.build().done() == [f"[CC] {OUT}/main.o", f"[LINK] {OUT}/firmware.elf"]
    tree.edit("boards/host/uart.c", "int extra(void);\nint extra(void) { return 1; }\n")
    assert tree.build().done() == ["[CC] build/host/uart.o", f"[LINK] {OUT}/firmware.elf"]
    tree.edit("boards/host/board.py", "# a comment\n")
    assert tree.build().done() == [f"[LINK] {OUT}/firmware.elf"]
    tree.edit("firmware/board.h", "/* a comment */\n")
    assert tree.build().steps() == ["CC", "CC"], "uart.c and main.c include it, baked.c does not"


def test_new_input_bakes_and_compiles_it_again(tree: Tree) -> None:
    folder = tree.path / "models" / "small"
    np.save(folder / "input.npy", np.ones((3, 5, 11), np.float32))
    assert set(tree.build().steps()) == {"BAKE", "CC", "LINK"}
    np.save(folder / "input.labels.npy", np.array([2, 2, 2]))
    assert tree.build().steps() == ["BAKE"]
    (folder / "input.labels.npy").unlink()
    (folder / "input.npy").unlink()
    assert "BAKE" in tree.build().steps(), "without a file it is random spikes"


def test_clean_leaves_the_tree_as_it_was(pristine: Tree, tree: Tree) -> None:
    assert tree.scons(f"model={SMALL}", "quantize=both", "run").status == 0
    assert tree.scons(f"model={SMALL}", "-c").status == 0
    assert sorted(tree.files()) == sorted(pristine.files())
    assert not (tree.path / "build").exists() and not list(tree.path.rglob("__pycache__"))


def test_clean_of_one_target_leaves_the_others(tree: Tree) -> None:
    assert tree.scons(f"model={SMALL}", "-c", f"{OUT}/snn_network.c").out == [
        f"Removed {OUT}/snn_network.mlir",
        f"Removed {OUT}/snn_network.h",
        f"Removed {OUT}/snn_network_weights.c",
        f"Removed {OUT}/snn_network.json",
        f"Removed {OUT}/snn_network.lowered.mlir",
        f"Removed {OUT}/snn_network.c",
    ]
    assert tree.build().steps() == ["C", "LOWER", "NIR"], "what comes out is the same, so no more than that"


@pytest.mark.parametrize(
    "words", [["-n"], ["-n", "-c"], ["-h"], ["-q"], ["-n", "run", "size", "board=all", "quantize=both"]]
)
def test_a_dry_run_touches_nothing(pristine: Tree, words: list[str]) -> None:
    before = {path: path.stat().st_mtime_ns for path in pristine.path.rglob("*")}
    result = pristine.scons(f"model={SMALL}", *words)
    assert result.status == (1 if words == ["-q"] else 0)
    assert {path: path.stat().st_mtime_ns for path in pristine.path.rglob("*")} == before


def test_a_dry_run_of_a_built_tree_touches_nothing(tree: Tree) -> None:
    small_network(tree.path / SMALL, seed=3)
    before = {path: path.stat().st_mtime_ns for path in tree.path.rglob("*")}
    assert "NIR" in tree.scons(f"model={SMALL}", "-n").steps()
    assert {path: path.stat().st_mtime_ns for path in tree.path.rglob("*")} == before


def test_in_another_folder_and_in_parallel_the_bytes_are_the_same(
    pristine: Tree, built_once: Tree, tmp_path: Path
) -> None:
    other = pristine.copy(tmp_path / "another place")
    other.build("-j2")
    assert other.built() == built_once.built()


def test_zig_gives_the_same_bytes_in_every_folder(pristine: Tree, tmp_path: Path) -> None:
    one, two = pristine.copy(tmp_path / "one"), pristine.copy(tmp_path / "another place")
    for tree in (one, two):
        tree.build("toolchain=zig")
    assert one.built() == two.built()


def without_heavy_modules(folder: Path) -> str:
    """PYTHONPATH that ends every stage of the compiler."""
    folder.mkdir()
    for module in ("mlir", "numpy", "nir", "h5py"):
        (folder / f"{module}.py").write_text(f"raise SystemExit('{module} is imported')\n")
    return str(folder)


@pytest.mark.parametrize("words", [["quantize=both"], ["toolchain=zig"]], ids=["gcc", "zig"])
def test_a_second_checkout_takes_everything_from_the_shared_cache(
    pristine: Tree, tmp_path: Path, words: list[str]
) -> None:
    words = [*words, f"cache={tmp_path / 'shared' / 'cache'}"]
    one, two = pristine.copy(tmp_path / "one"), pristine.copy(tmp_path / "another place")
    first = one.build(*words)
    assert {"NIR", "CC", "LINK"} <= set(first.steps())
    log = tmp_path / "log"
    heavy = without_heavy_modules(tmp_path / "heavy")
    env = logged_compiler(tmp_path, log) | {"PYTHONPATH": heavy}
    second = two.build(*words, env=env)
    assert second.steps() == ["JSON"], "the file that names the directory is made anew"
    assert not log.exists() or set(log.read_text().splitlines()) == {"--version"}, "no compiler ran"
    assert {line.split("'")[0] for line in second.out} >= {f"Retrieved `{OUT}/firmware.elf"} | {
        f"Retrieved `{OUT}/snn_network.{suffix}" for suffix in ("mlir", "lowered.mlir", "c", "h", "json", "o")
    }
    assert two.built() == one.built() and f"{OUT}/firmware.elf" in two.built()
    for entry in json.loads((two.path / "build/compile_commands.json").read_text()):
        assert entry["directory"] == str(two.path)
    result = pristine.copy(tmp_path / "three").scons(f"model={SMALL}", *words[:-1], env=env)
    assert result.status != 0 and "is imported" in "\n".join(result.err), "without the cache it is another matter"


def test_a_shared_cache_serves_only_what_is_the_same(pristine: Tree, tmp_path: Path) -> None:
    cache = f"cache={tmp_path / 'cache'}"
    one, two, alone = (pristine.copy(tmp_path / name) for name in ("one", "two", "alone"))
    one.build(cache)
    for tree in (two, alone):
        small_network(tree.path / SMALL, seed=7)
    assert two.build(cache).done() == sorted(
        [
            f"[BAKE] {OUT}/baked.h",
            f"[NIR] {OUT}/snn_network.mlir",
            f"[CC] {OUT}/snn_network_weights.o",
            f"[AR] {OUT}/libsnn_network.a",
            f"[LINK] {OUT}/firmware.elf",
            "[JSON] build/compile_commands.json",
        ]
    )
    alone.build()
    assert two.built() == alone.built()
    assert one.scons(f"model={SMALL}", cache, "run").steps() == ["RUN"]
    again = pristine.copy(tmp_path / "again").scons(f"model={SMALL}", cache, "run")
    assert again.steps() == ["RUN"], "a result is not taken from another checkout, all else is"


def test_a_cache_of_another_machine_has_no_native_programs_for_this(tree: Tree, tmp_path: Path) -> None:
    """GCC says the same --version on x86-64 and aarch64."""
    folder = tmp_path / "modules"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text("import platform\nplatform.machine = lambda: 'pdp11'\n")
    assert tree.build(env={"PYTHONPATH": str(folder)}).steps().count("CC") == 5


def test_a_dry_run_makes_no_cache_and_cleaning_leaves_it(pristine: Tree, tree: Tree, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    for words in (["-n"], ["-q"], ["-h"], ["-c", "nothing"]):
        pristine.scons(f"model={SMALL}", f"cache={cache}", *words)
        assert not cache.exists()
    (tree.path / "build/host/uart.o").unlink()
    assert tree.build(f"cache={cache}").steps() == ["CC"]
    kept = sorted(cache.rglob("*"))
    assert kept and tree.scons(f"model={SMALL}", f"cache={cache}", "-c").status == 0
    assert sorted(cache.rglob("*")) == kept


def test_a_cache_that_cannot_be_is_one_line(pristine: Tree, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    result = pristine.scons(f"model={SMALL}", f"cache={file}")
    assert (result.err, result.status) == ([f"error: cache={file}: no folder; name a folder for what is built"], 2)
    result = pristine.scons(f"model={SMALL}", f"cache={file}/below")
    assert (result.err, result.status) == (
        [f"error: cache={file}/below: cannot be used (Not a directory); name a folder that you may write to"],
        2,
    )


def logged_launcher(folder: Path) -> tuple[str, Path]:
    """A ccache that writes down what it starts."""
    script, log = folder / "fake-cache", folder / "launched"
    script.write_text(f'#!/bin/sh\necho "$*" >> {shlex.quote(str(log))}\n[ "$1" = -v ] && shift\nexec "$@"\n')
    script.chmod(0o755)
    return str(script), log


def test_a_launcher_starts_the_compiler_and_rebuilds_nothing(tree: Tree, built_once: Tree, tmp_path: Path) -> None:
    launcher, log = logged_launcher(tmp_path)
    assert tree.build(f"launcher={launcher} -v").steps() == ["JSON"], "which names the command"
    assert not log.exists()
    entry = json.loads((tree.path / "build/compile_commands.json").read_text())[0]
    assert entry["command"].startswith(f"{launcher} -v gcc ")
    shutil.rmtree(tree.path / "build")
    assert tree.build(f"launcher={launcher} -v").steps() == FIRST
    started = log.read_text().splitlines()
    assert len(started) == 5 and all(line.startswith("-v gcc -o build/host") and " -c " in line for line in started)
    assert tree.built() == built_once.built()
    assert tree.build().steps() == ["JSON"]


def test_zig_has_a_cache_of_its_own_and_no_launcher(tree: Tree, tmp_path: Path) -> None:
    launcher, log = logged_launcher(tmp_path)
    assert "CC" in tree.build("toolchain=zig", f"launcher={launcher}").steps()
    assert not log.exists()


@pytest.mark.parametrize(
    ("launcher", "line"),
    [
        ("no-such-cache", "launcher=no-such-cache: no program no-such-cache; install it or leave launcher= out"),
        ("'ccache", "launcher='ccache: a quotation mark is missing; write it as in a shell"),
    ],
)
def test_a_missing_launcher_is_one_line(pristine: Tree, launcher: str, line: str) -> None:
    result = pristine.scons(f"model={SMALL}", f"launcher={launcher}")
    assert (result.out, result.err, result.status) == ([], [f"error: {line}"], 2)


def test_printed_commands_can_be_pasted(pristine: Tree, built_once: Tree, tmp_path: Path) -> None:
    tree = pristine.copy(tmp_path / "tree")
    commands = [
        line for line in tree.scons(f"model={SMALL}", "-n", "--verbose").out if not line.startswith("Building ")
    ]
    assert len(commands) == len(FIRST) - 1
    (tree.path / "build" / "host").mkdir(parents=True)
    subprocess.run("set -e\n" + "\n".join(commands), shell=True, cwd=tree.path, check=True, stderr=subprocess.DEVNULL)
    assert tree.built() == built_once.built()


def test_compile_commands_are_those_that_ran(built_once: Tree) -> None:
    entries = json.loads((built_once.path / "build/compile_commands.json").read_text())
    assert [entry["output"] for entry in entries] == [
        "build/host/uart.o", f"{OUT}/snn_network.o", f"{OUT}/snn_network_weights.o", f"{OUT}/main.o", f"{OUT}/baked.o",
    ]  # fmt: skip
    assert all(entry["directory"] == str(built_once.path) for entry in entries)
    for entry in entries:
        again = shlex.split(entry["command"])
        again[again.index("-o") + 1] = os.devnull
        subprocess.run(again, cwd=built_once.path, check=True)


def test_compile_commands_cover_all_boards_and_follow_the_flags(tree: Tree) -> None:
    mine = tree.path / "boards" / "mine"
    shutil.copytree(tree.path / "boards" / "host", mine)
    words = [f"model={SMALL}", "board=host,mine", "build/compile_commands.json"]
    assert tree.scons(*words).steps() == ["JSON"]
    path = tree.path / "build/compile_commands.json"
    assert {entry["output"].split("/")[1] for entry in json.loads(path.read_text())} == {
        "host",
        "host-f32",
        "mine",
        "mine-f32",
    }
    (mine / "board.py").write_text((mine / "board.py").read_text().replace("-O2", "-O1"))
    assert tree.scons(*words).steps() == ["JSON"]
    assert "-O1" in path.read_text()
    assert tree.scons(*words).out == ["scons: `build/compile_commands.json' is up to date."]


def test_run_always_runs(tree: Tree) -> None:
    for _ in range(2):
        result = tree.scons(f"model={SMALL}", "run")
        assert (result.status, result.steps()) == (0, ["RUN"])
    found = json.loads((tree.path / OUT / "result.json").read_text())
    assert (found["mismatches"], found["steps"]) == (0, 15)
    assert found["text"] > 0 and "accuracy" in found
    assert np.load(tree.path / OUT / "outputs.npy").shape == (3, 5, 4)


def test_a_mismatch_fails_the_build_and_leaves_the_result(tree: Tree) -> None:
    """A board whose UART turns one digit of the first sample."""
    uart = tree.path / "boards" / "host" / "uart.c"
    uart.write_text(
        uart.read_text().replace("putchar(c);", "static int n; putchar(n++ == 3 ? (c == '0' ? '1' : '0') : c);")
    )
    result = tree.scons(f"model={SMALL}", "run")
    assert result.status == 1
    assert any("sample 0, step 0" in line for line in [*result.out, *result.err])
    assert json.loads((tree.path / OUT / "result.json").read_text())["mismatches"] > 0


def test_size_lists_the_images(tree: Tree) -> None:
    result = tree.scons(f"model={SMALL}", "size")
    assert result.status == 0
    assert any(f"{OUT}/firmware.elf" in line for line in result.out)


def test_the_status_of_the_tests_is_the_status_of_scons(tree: Tree) -> None:
    (tree.path / "tests").mkdir()
    (tree.path / "tests" / "test_it.py").write_text("def test_it(): assert False\n")
    assert tree.scons("test", f"model={SMALL}").status == 1
    (tree.path / "tests" / "test_it.py").unlink()
    assert tree.scons("test", f"model={SMALL}").status == 5, "pytest's own: no tests"


def test_several_models_in_one_graph(tree: Tree) -> None:
    other = tree.path / "models" / "other.nir"
    small_network(other, seed=5)
    words = [f"model={SMALL},models/other.nir"]
    assert all("/other/" in line or "JSON" in line for line in tree.scons(*words).done()), "the first is built already"
    assert (tree.path / "build/host-f32/other/firmware.elf").exists()
    assert tree.scons(*words).out == [UP_TO_DATE]
    small_network(other, seed=6)
    done = tree.scons(*words).done()
    assert done and all("/other/" in line for line in done)


def test_all_boards_in_both_precisions(tree: Tree) -> None:
    tree.build("board=all", "quantize=both", "-j2")
    boards = sorted(path.parent.name for path in (tree.path / "boards").glob("*/board.py"))
    for board in boards:
        for precision in ("f32", "int8"):
            assert (tree.path / f"build/{board}-{precision}/small/firmware.elf").exists()


def test_a_board_from_elsewhere_and_its_files(tree: Tree, tmp_path: Path) -> None:
    """A copy of a bare-metal board, outside the checkout: each of its files rebuilds its images, and no other board's."""
    board = tmp_path / "elsewhere" / "fourth"
    shutil.copytree(tree.path / "boards" / "x86", board)
    text = (board / "board.py").read_text()
    assert '"compiler_rt": _zig,' in text
    (board / "board.py").write_text(text.replace('"compiler_rt": _zig,', ""))  # seconds, and nothing here needs it
    words = ["board=host,fourth", f"board_path={board}"]
    tree.build(*words, "-j2")
    out = "build/fourth-f32/small"

    def after(name: str, text: str) -> list[str]:
        with (board / name).open("a") as stream:
            stream.write(text)
        return tree.build(*words).done()

    assert tree.scons(f"model={SMALL}", *words, "hex", "bin").done() == [
        f"[FORM] {out}/firmware.bin", f"[FORM] {out}/firmware.hex",
    ]  # fmt: skip
    assert after("link.ld", "/* a comment */\n") == [f"[LINK] {out}/firmware.elf"]
    assert after("board.py", "# a comment\n") == [f"[LINK] {out}/firmware.elf"]
    assert after("start.S", "/* a comment */\n") == ["[AS] build/fourth/start.o"]
    assert after("uart.c", "int extra(void);\nint extra(void) { return 1; }\n") == [
        "[CC] build/fourth/uart.o", f"[LINK] {out}/firmware.elf",
    ]  # fmt: skip
    changed = after("board.py", "uart_baud = 9600\n")
    assert changed and all("fourth" in line or "JSON" in line for line in changed)


def test_a_board_option_links_again(tree: Tree) -> None:
    board = tree.path / "boards" / "host" / "board.py"
    option = {"default": "64k", "values": {"64k": 1, "128k": 2}, "help": "size", "defsym": "RAM_SIZE"}
    board.write_text(board.read_text() + f"options = {{'ram': {option}}}\n")
    tree.build()
    assert tree.build("ram=128k").done() == [f"[LINK] {OUT}/firmware.elf"]


@pytest.mark.parametrize("form", ["bin", "hex", "map"])
def test_a_native_program_has_no_other_forms(pristine: Tree, form: str) -> None:
    result = pristine.scons(f"model={SMALL}", form)
    line = f"error: {form}: a native program has only its ELF file; name a bare-metal board with board="
    assert (result.out, result.err, result.status) == ([], [line, f"scons: *** [{form}] Error 2"], 2)
    assert pristine.scons(f"model={SMALL}", "-n", "board=host,x86", form).status == 0, "x86 has them"


def test_other_forms_of_a_missing_toolchain_say_what_is_missing(pristine: Tree, tmp_path: Path) -> None:
    where = ghost(tmp_path)
    with (tmp_path / "ghosts" / "ghost" / "board.py").open("a") as stream:
        stream.write('cflags = ["-ffreestanding"]\n')
    result = pristine.scons(f"model={SMALL}", where, "board=ghost", "hex")
    assert (result.status, result.err[0]) == (2, "error: board ghost needs ghost-gcc; apt-get install gcc-ghost")


def test_a_budget_fails_the_build_and_says_what_is_largest(tree: Tree) -> None:
    assert tree.build("budget_ram=1M", "budget_flash=1M").done() == [f"[SIZE] {OUT}/firmware.size.json"]
    (row,) = json.loads((tree.path / OUT / "firmware.size.json").read_text()).values()
    assert tree.build(f"budget_flash={row['flash']}").steps() == ["SIZE"], "nothing is linked again"
    for words in (["all"], ["size"], ["run"]):
        result = tree.scons(f"model={SMALL}", f"budget_flash={row['flash'] - 1}", "budget_ram=100", *words)
        assert result.status == 1
        flash, ram, last = result.err
        assert flash.startswith(
            f"error: {OUT}/firmware.elf: flash: {row['flash']:,d} bytes, 1 more than the budget of {row['flash'] - 1:,d}: "
        )
        assert "(most of all " in flash and flash.endswith("; make what is largest smaller, or raise the budget")
        assert ram.startswith(f"error: {OUT}/firmware.elf: ram: ") and last.startswith("scons: *** [")
        assert (tree.path / OUT / "firmware.elf").exists(), "to be looked at"
        assert not (tree.path / OUT / "firmware.size.json").exists() or words == ["size"]
    (tree.path / OUT / "firmware.size.json").unlink(missing_ok=True)
    result = tree.scons(f"model={SMALL}", "budget_flash=100", "stream")
    assert result.status == 1 and result.err[0].startswith(f"error: {OUT}/stream.elf: flash: ")


def test_weights_go_to_the_section_of_the_option(tree: Tree) -> None:
    steps = tree.build("weights_section=.slow").steps()
    assert {"NIR", "CC", "LINK"} <= set(steps) and "LOWER" not in steps, "the kernel is the same"
    assert places(tree.path / OUT / "firmware.elf")["snn_network_fc_w"] == ".slow"
    assert tree.scons(f"model={SMALL}", "weights_section=.slow", "run").status == 0
    result = tree.scons(f"model={SMALL}", "weights_section=1st")
    line = "error: weights_section '1st' cannot name a section; use letters, digits and . _ $ -, not a digit first"
    assert (result.err, result.status) == ([line], 2)


def test_weights_in_the_flash_of_xheep(tree: Tree, tmp_path: Path) -> None:
    """With the very lines of docs/boards/xheep.md in a copy of the board."""
    text = (Path(__file__).resolve().parent.parent / "docs" / "boards" / "xheep.md").read_text()
    block = re.search(r"builds a board with them -->\n```\n(.*?)```", text, re.DOTALL)
    assert block
    lines = {where: line for line, where in re.findall(r"^ +(\S.*?) +in (\w+).*$", block[1], re.MULTILINE)}
    board = tmp_path / "flashed"
    shutil.copytree(tree.path / "boards" / "xheep", board)
    script = (board / "link.ld").read_text()
    script = script.replace("MEMORY\n{\n", "MEMORY\n{\n" + lines["MEMORY"] + "\n")
    script = script.replace("PHDRS\n{\n", "PHDRS\n{\n" + lines["PHDRS"] + "\n")
    script = script.replace("    /DISCARD/", lines["SECTIONS"] + "\n    /DISCARD/")
    (board / "link.ld").write_text(script)
    words = [f"model={SMALL}", f"board_path={board}", "quantize=1", "weights_section=.flash_weights"]
    result = tree.scons(*words, "board=flashed", "hex")
    assert result.status == 0, result.err
    out = tree.path / "build/flashed-int8/small"
    with (out / "firmware.elf").open("rb") as stream:
        section = ELFFile(stream).get_section_by_name(".flash_weights")
        assert (section["sh_addr"], section["sh_size"] >= 44) == (0x40000000, True)
    assert places(out / "firmware.elf")["snn_network_fc_w"] == ".flash_weights"
    assert "@40000000" in (out / "firmware.hex").read_text()
    result = tree.scons(*words, "board=xheep")
    assert result.status == 1 and ".flash_weights" in "\n".join(result.err), "the board itself knows no such section"


def places(file: Path) -> dict[str, str]:
    """Variable of an ELF file -> section."""
    with file.open("rb") as stream:
        elf = ELFFile(stream)
        return {
            symbol.name: elf.get_section(symbol["st_shndx"]).name
            for symbol in elf.get_section_by_name(".symtab").iter_symbols()
            if symbol["st_info"]["type"] == "STT_OBJECT" and isinstance(symbol["st_shndx"], int)
        }


def ghost(folder: Path) -> str:
    """board_path= for a board whose compiler nobody has."""
    board = folder / "ghosts" / "ghost"
    board.mkdir(parents=True)
    (board / "board.py").write_text(
        'description = "nowhere"\ntoolchains = {"gcc": {"cc": ["ghost-gcc"], "install": "apt-get install gcc-ghost"}}\n'
    )
    return f"board_path={board.parent}"


@pytest.mark.parametrize(("words", "last"), [([], "firmware.elf"), (["run"], "result.json")])
def test_a_missing_toolchain_stops_only_its_own_board(tree: Tree, tmp_path: Path, words: list[str], last: str) -> None:
    (tree.path / OUT / "firmware.elf").unlink()
    options = [f"model={SMALL}", ghost(tmp_path)]
    result = tree.scons(*options, "board=ghost,host", *words)
    assert result.status == 2
    assert (tree.path / OUT / last).exists(), "the other board is done"
    missing = "error: board ghost needs ghost-gcc; apt-get install gcc-ghost"
    assert [line for line in result.err if line.startswith("error:")] == [missing]
    result = tree.scons(*options, "board=ghost", f"build/ghost-f32/small/{last}")
    assert (result.status, result.err[0]) == (2, missing)


@pytest.mark.parametrize(
    ("weight", "status", "line"),
    [
        (None, 2, "error: bad.nir: not an HDF5 file, so not a NIR file; export the network with nir.write"),
        (np.nan, 1, "error: bad.nir: fc: "),
    ],
)
def test_a_refused_network_is_one_line_and_leaves_nothing(
    tree: Tree, weight: float | None, status: int, line: str
) -> None:
    path = tree.path / "bad.nir"
    if weight is None:
        path.write_text("no network")
    else:
        small_network(path, weight=weight)
    words = ["model=bad.nir", "build/host-f32/bad/snn_network.c"]
    result = tree.scons(*words)
    assert result.status == status
    assert result.err[0].startswith(line)
    assert result.err[1:] == [f"scons: *** [build/host-f32/bad/snn_network.mlir] Error {status}"]
    assert not [name for name in tree.files() if name.startswith("build/host-f32/bad/")]
    small_network(path)
    assert tree.scons(*words).status == 0
    assert tree.scons(*words).out == ["scons: `build/host-f32/bad/snn_network.c' is up to date."]


def test_half_an_object_of_a_killed_compiler_is_removed(tree: Tree, tmp_path: Path) -> None:
    env = logged_compiler(tmp_path, tmp_path / "log")
    script = tmp_path / "bin" / "gcc"
    good = script.read_text()
    script.write_text(
        good.replace("exec ", f'case "$*" in *main.o*) echo half > {OUT}/main.o; kill -9 $$;; esac\nexec ')
    )
    tree.edit("firmware/main.c", "/* a comment */\n")
    result = tree.scons(f"model={SMALL}", env=env)
    assert result.status != 0 and not (tree.path / OUT / "main.o").exists()
    script.write_text(good)
    tree.build(env=env)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["bord=host"], "error: bord=host: unknown option; did you mean board?"),
        (["board=hots"], "error: board=hots: no such board; did you mean host?"),
        (["model=nowhere.nir"], "error: model=nowhere.nir: no such file; name a .nir file with model="),
        (["model=a/net.nir,b/net.nir"], "error: model: a/net.nir and b/net.nir would both be built in build/host-f32/net; rename one of the files"),
        (["quantize=2"], "error: quantize=2: not a choice; use 0, 1 or both"),
        (["board_path=nowhere"], "error: nowhere: no board.py in this directory or in one below it; name a board's directory"),
    ],
)  # fmt: skip
def test_bad_usage_is_one_line_and_status_2(pristine: Tree, tmp_path: Path, words: list[str], line: str) -> None:
    tree = pristine.copy(tmp_path / "tree")
    for folder in ("a", "b"):
        (tree.path / folder).mkdir()
        small_network(tree.path / folder / "net.nir")
    result = tree.scons(*([] if any(word.startswith("model=") for word in words) else [f"model={SMALL}"]), *words)
    assert (result.out, result.err, result.status) == ([], [line], 2)


def test_help_lists_the_options_of_the_boards_too(pristine: Tree) -> None:
    text = "\n".join(pristine.scons(f"model={SMALL}", "-h").out)
    for option in ("board", "quantize", "model", "input", "labels", "input_scale", "dt", "reset", "kernel", "name", "toolchain", "board_path", "ram", "cache", "launcher", "weights_section", "budget_ram", "budget_flash"):  # fmt: skip
        assert re.search(rf"^  {option} ", text, re.MULTILINE), option


def test_colour_only_on_a_terminal(pristine: Tree, built_once: Tree, tmp_path: Path) -> None:
    assert "\033" not in "\n".join(built_once.scons(f"model={SMALL}", "-n", "run").out)
    main, side = pty.openpty()
    command = [sys.executable, "-m", "SCons", "-Q", "-n", "run", f"model={SMALL}"]
    environment = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
    subprocess.run(command, cwd=pristine.path, stdout=side, check=True, env=environment)
    os.close(side)
    assert b"\033[36m[NIR]" in os.read(main, 100_000)


def test_a_foreign_project_uses_the_tool(tmp_path: Path) -> None:
    """The tool as a function, in a project without our SConstruct; as SCons' toolpath: test_scons_tool.py."""
    small_network(tmp_path / "net.nir")
    (tmp_path / "app.c").write_text(
        '#include "snn_network.h"\n'
        "int main(void) { static snn_network_state s; snn_network_init(&s); return SNN_NETWORK_INPUT_SIZE - 11; }\n"
    )
    (tmp_path / "SConstruct").write_text(
        "import snn_builder.scons\n"
        'env = Environment(tools=["default", snn_builder.scons.generate])\n'
        'network = env.SnnNetwork("net.nir", "out", quantize=True, weights_section=".slow")\n'
        'app = env.Program("app", ["app.c", network], CPPPATH=["out"])\n'
        'env.SnnBudget(app, ram=ARGUMENTS.get("ram", 1 << 20), flash="1M")\n'
    )
    root = Path(__file__).resolve().parent.parent
    environment = {**os.environ, "PYTHONPATH": str(root)}
    scons = [sys.executable, "-m", "SCons", "-Q"]
    subprocess.run(scons, cwd=tmp_path, check=True, env=environment, capture_output=True)
    assert subprocess.run([tmp_path / "app"], check=False).returncode == 0
    assert ".slow" in places(tmp_path / "app").values()
    assert (tmp_path / "app.size.json").exists()
    for ram, line in (
        ("1", "error: app: ram: "),
        ("1x", "error: SnnBudget: '1x' is no number of bytes: 65536, 64k, 1M\n"),
    ):
        failed = subprocess.run([*scons, f"ram={ram}"], cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert failed.returncode in (1, 2) and failed.stderr.startswith(line)
    subprocess.run(scons, cwd=tmp_path, check=True, env=environment, capture_output=True)
    again = subprocess.run(scons, cwd=tmp_path, check=True, env=environment, capture_output=True, text=True)
    assert again.stdout == "scons: `.' is up to date.\n"


def test_check_tells_of_every_model(tree: Tree) -> None:
    (tree.path / "two words.nir").write_bytes((tree.path / SMALL).read_bytes())
    result = tree.scons(f"model={SMALL},two words.nir", "quantize=both", "check")
    assert result.status == 0
    told = [line.split(",")[0] for line in result.out if ": supported" in line]
    assert told == [f"{SMALL}: supported", "two words.nir: supported"] * 2
