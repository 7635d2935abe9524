# SPDX-License-Identifier: Apache-2.0
"""The SCons tool in projects that know nothing of this checkout: examples/scons, and what docs/other-builds.md says of it."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from scons_tree import small_network
from support import ROOT
from test_examples import EXAMPLES, Project

TOOL = 'tools=["default", "snn"], toolpath=[PyPackageDir("snn_builder.scons")]'
SCONS = [sys.executable, "-m", "SCons", "-Q"]
APP = """#include "{name}.h"
int main(void) {{ static {name}_state s; {name}_init(&s); return sizeof({name}_input_t) == {bytes} ? 0 : 1; }}
"""

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed: apt-get install gcc")


def with_scons(project: Project) -> list[str]:
    return [*SCONS, "-j2", "MODEL=digits.nir", f"CC={shlex.quote(str(project.compiler))}"]


def scons(folder: Path, *words: str, status: int = 0, package: Path = ROOT) -> str:
    """What a run prints that ends with `status`; snn_builder is the one in `package`."""
    environment = {**os.environ, "PYTHONPATH": str(package)}
    done = subprocess.run([*SCONS, *words], cwd=folder, env=environment, text=True, capture_output=True, check=False)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout + done.stderr


def steps(printed: str) -> list[str]:
    """The last word of each of our short lines: what was made."""
    return sorted(line.split()[-1] for line in printed.splitlines() if line.startswith("  ["))


def test_training_compiles_one_file(tmp_path: Path) -> None:
    project = Project(tmp_path, "scons", with_scons)
    assert project.build() == ["digits.c", "digits_weights.c", "link", "main.c"]
    assert project.run("build/app") == "3\n"
    assert project.build() == []
    project.retrain()
    assert project.build() == ["digits_weights.c", "link"]
    assert project.run("build/app") != "3\n"
    assert project.run(*project.command).endswith("\nscons: `.' is up to date.\n")
    os.utime(project.model)
    assert project.run(*project.command).endswith("\nscons: `.' is up to date.\n")


def test_the_example_is_short() -> None:
    assert len((EXAMPLES / "scons" / "SConstruct").read_text().splitlines()) <= 15
    assert (EXAMPLES / "scons" / "main.c").read_text() == (EXAMPLES / "make" / "main.c").read_text()


def test_networks_and_precisions_in_one_graph(tmp_path: Path) -> None:
    """Each in a directory of its own, of which nothing has to be said."""
    small_network(tmp_path / "left.nir")
    small_network(tmp_path / "right.nir", seed=1)
    (tmp_path / "SConstruct").write_text(
        f"env = Environment({TOOL})\n"
        'for name in ("left", "right"):\n'
        "    for quantize in (False, True):\n"
        '        lib = env.SnnNetwork(f"{name}.nir", name=name, quantize=quantize)\n'
        '        place = f"app/{name}{int(quantize)}"\n'
        '        main = env.Object(f"{place}.o", f"{name}{int(quantize)}.c", CPPPATH=[lib.include])\n'
        "        env.Program(place, [main, lib])\n"
    )
    for name in ("left", "right"):
        for quantize, size in ((0, 4), (1, 1)):
            (tmp_path / f"{name}{quantize}.c").write_text(APP.format(name=name, bytes=size))
    scons(tmp_path, "-j2")
    for name in ("left0", "left1", "right0", "right1"):
        assert subprocess.run([tmp_path / "app" / name], check=False).returncode == 0
    places = ["left-f32", "left-int8", "right-f32", "right-int8"]
    assert sorted(path.name for path in (tmp_path / "snn").iterdir()) == places
    small_network(tmp_path / "left.nir", seed=2)
    assert not any("right" in name for name in steps(scons(tmp_path)))
    assert scons(tmp_path) == "scons: `.' is up to date.\n"


@pytest.mark.parametrize("duplicate", [True, False])
def test_variant_directories(tmp_path: Path, duplicate: bool) -> None:
    """In an SConscript the names are its own, and everything is built in its variants; the sources stay as they are."""
    source = tmp_path / "src"
    source.mkdir()
    small_network(source / "net.nir")
    (source / "app.c").write_text(APP.format(name="net", bytes=1))
    (source / "SConscript").write_text(
        'Import("env")\n'
        'lib = env.SnnNetwork("net.nir", name="net", quantize=True)\n'
        'env.Program("app", ["app.c", lib], CPPPATH=[lib.include])\n'
    )
    (tmp_path / "SConstruct").write_text(
        'for kind in ("debug", "release"):\n'
        f"    env = Environment({TOOL})\n"
        f'    SConscript("src/SConscript", variant_dir=f"out/{{kind}}", duplicate={duplicate}, exports="env")\n'
    )
    # the compiler lies in the project, as in a .venv there: its files are not below the SConscript
    shutil.copytree(
        ROOT / "snn_builder", tmp_path / "venv" / "snn_builder", ignore=shutil.ignore_patterns("__pycache__")
    )
    before = sorted(source.iterdir())
    scons(tmp_path, "-j2", package=tmp_path / "venv")
    for kind in ("debug", "release"):
        assert (tmp_path / "out" / kind / "snn" / "net-int8" / "libnet.a").is_file()
        assert subprocess.run([tmp_path / "out" / kind / "app"], check=False).returncode == 0
    assert sorted(source.iterdir()) == before
    small_network(source / "net.nir", seed=2)
    again = scons(tmp_path, package=tmp_path / "venv")
    made = [f"out/{kind}/snn/net-int8/{name}" for kind in ("debug", "release") for name in ("libnet.a", "net.mlir")]
    assert steps(again) == made


def test_help(tmp_path: Path) -> None:
    """The tool's own, once, beside the project's."""
    (tmp_path / "SConstruct").write_text(
        f'env = Environment({TOOL}, SNN_DIR="made")\nEnvironment({TOOL})\nHelp("flash: to the board\\n")\n'
    )
    printed = scons(tmp_path, "-h")
    assert printed.count("env.SnnNetwork(") == 1
    assert "SNN_DIR        where networks go without a directory [made]" in printed
    assert "flash: to the board" in printed


def test_what_is_printed(tmp_path: Path) -> None:
    small_network(tmp_path / "net.nir")
    lines = f"env = Environment({TOOL}, %s)\nenv.SnnNetwork('net.nir')\n"
    (tmp_path / "SConstruct").write_text(lines % "SNN_NIRCOMSTR='reading $SOURCE', SNN_LOWERCOMSTR=''")
    printed = scons(tmp_path, "-n").splitlines()
    assert "reading net.nir" in printed
    assert sum("-m snn_builder lower snn/snn_network-f32/snn_network.mlir" in line for line in printed) == 1
    assert "  [AR]    snn/snn_network-f32/libsnn_network.a" in printed
    (tmp_path / "SConstruct").write_text(lines % "SNN_VERBOSE=True")
    assert "[" not in scons(tmp_path, "-n") and "ar rcsD" in scons(tmp_path, "-n")


def test_variables_of_the_project_reach_the_network(tmp_path: Path) -> None:
    """Its own flags, however they are written, with those that float mode needs behind them."""
    small_network(tmp_path / "net.nir")
    lines = f"env = Environment({TOOL}, CCFLAGS=%s, SNN_CCFLAGS=%s, SNN_DIR='made')\nenv.SnnNetwork('net.nir')\n"
    exact = "'-ffp-contract=off', '-DSNN_FP_CONTRACT_OFF'"
    for flags in ("'-O3 -funroll-loops'", "['-O3', '-funroll-loops']"):
        (tmp_path / "SConstruct").write_text(lines % (flags, f"[{exact}]"))
        assert " -O3 -funroll-loops -ffp-contract=off -DSNN_FP_CONTRACT_OFF made/snn_" in scons(tmp_path, "-n")
    (tmp_path / "SConstruct").write_text(lines % ("'-O3'", "[]"))
    assert " -O3 made/snn_network-f32/snn_network.c" in scons(tmp_path, "-n")
    (tmp_path / "SConstruct").write_text(f"env = Environment({TOOL})\nenv.SnnNetwork('net.nir')\n")
    assert " -ffp-contract=off -DSNN_FP_CONTRACT_OFF snn/snn_" in scons(tmp_path, "-n")


@pytest.mark.parametrize(
    ("call", "line"),
    [
        ("quantise=True", "error: SnnNetwork: no option is called 'quantise'; did you mean quantize?"),
        ("name='Net'", "error: name 'Net' cannot prefix C symbols; use lower-case letters, digits and underscores, a letter first"),
    ],
)  # fmt: skip
def test_a_wrong_call_is_one_line(tmp_path: Path, call: str, line: str) -> None:
    small_network(tmp_path / "net.nir")
    (tmp_path / "SConstruct").write_text(f"env = Environment({TOOL})\nenv.SnnNetwork('net.nir', {call})\n")
    assert scons(tmp_path, status=2).splitlines() == [line]


def test_the_rest_of_the_project_is_left_alone(tmp_path: Path) -> None:
    """A command that may fail may still, what one that failed has written stays, and no variable of ours is without its prefix."""
    (tmp_path / "SConstruct").write_text(
        'before = set(Environment(tools=["default"], toolpath=[]).Dictionary())\n'
        f"env = Environment({TOOL})\n"
        "print([name for name in env.Dictionary() if name not in before and not name.startswith('SNN_')])\n"
        'env.Command("fine", [], ["-false", "touch $TARGET"])\n'
        'env.Command("log", "fine", "echo half > $TARGET; exit 7")\n'
    )
    printed = scons(tmp_path, "board=moon", status=2)
    assert printed.startswith("[]\n") and "[log] Error 7" in printed
    assert (tmp_path / "fine").exists() and (tmp_path / "log").read_text() == "half\n"
