# SPDX-License-Identifier: Apache-2.0
"""The networks in other people's builds: the examples, built and run; after training, one C file is compiled."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest
from support import ROOT, chain, lif

from snn_builder import depfile
from snn_builder.__main__ import main

EXAMPLES = ROOT / "examples"
MODEL = ROOT / "models" / "digits" / "digits.nir"


class Project:
    """A copy of an example, whose compiler writes down what it is asked for."""

    def __init__(self, folder: Path, example: str, build: Callable[[Project], list[str]]) -> None:
        self.folder = folder / "a project"
        shutil.copytree(EXAMPLES / example, self.folder, ignore=shutil.ignore_patterns("build"))
        self.model = self.folder / "digits.nir"
        shutil.copy(MODEL, self.model)
        self.log = self.folder / "cc.log"
        self.compiler = self.folder / "cc"
        self.compiler.write_text(f'#!/bin/sh\necho "$*" >>\'{self.log}\'\nexec gcc "$@"\n')
        self.compiler.chmod(0o755)
        self.environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        self.command = build(self)

    def run(self, *command: str | Path) -> str:
        result = subprocess.run(
            command, cwd=self.folder, env=self.environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        assert result.returncode == 0, result.stdout
        return result.stdout

    def build(self) -> list[str]:
        """What was compiled ("x.c") and linked ("link")."""
        self.log.write_text("")
        self.run(*self.command)
        done = []
        for line in self.log.read_text().splitlines():
            words = line.split()
            sources = [Path(word).name for word in words if word.endswith(".c")]
            done += sources if "-c" in words else ["link"]
        return sorted(done)

    def retrain(self) -> None:
        """Other weights, with the same scales."""
        with h5py.File(self.model, "r+") as tree:
            weight = tree["node/nodes/fc1/weight"]
            weight[...] = weight[...][:, ::-1]


def with_cmake(generator: str) -> Callable[[Project], list[str]]:
    def configure(project: Project) -> list[str]:
        project.run(
            "cmake", "-G", generator, "-B", "build", f"-DMODEL={project.model}", f"-DPython3_EXECUTABLE={sys.executable}",
            f"-DCMAKE_C_COMPILER={project.compiler}",
        )  # fmt: skip
        return ["cmake", "--build", "build"]

    return configure


def with_make(project: Project) -> list[str]:
    return ["make", "-j2", "MODEL=digits.nir", f"PYTHON={sys.executable}", f"CC={shlex.quote(str(project.compiler))}"]


BUILDS = {
    "cmake-make": ("cmake", with_cmake("Unix Makefiles"), ("cmake", "make")),
    "cmake-ninja": ("cmake", with_cmake("Ninja"), ("cmake", "ninja")),
    "make": ("make", with_make, ("make",)),
}


@pytest.fixture(params=BUILDS)
def project(request: pytest.FixtureRequest, tmp_path: Path) -> Project:
    example, build, tools = BUILDS[request.param]
    for tool in (*tools, "gcc"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed: apt-get install {'ninja-build' if tool == 'ninja' else tool}")
    return Project(tmp_path, example, build)


def test_training_compiles_one_file(project: Project) -> None:
    assert project.build() == ["digits.c", "digits_weights.c", "link", "main.c"]
    assert project.run("build/app") == "3\n"
    assert project.build() == []
    stamp = next(project.folder.rglob("digits.stamp"))
    made = stamp.stat().st_mtime_ns
    project.retrain()
    assert project.build() == ["digits_weights.c", "link"]
    assert project.run("build/app") != "3\n"
    again = stamp.stat().st_mtime_ns
    assert again > made
    assert project.build() == [] and stamp.stat().st_mtime_ns == again  # the network is not compiled either
    os.utime(project.model)
    assert project.build() == [] and stamp.stat().st_mtime_ns > again


def test_make_makes_again_what_was_deleted(tmp_path: Path) -> None:
    if shutil.which("make") is None:
        pytest.skip("make is not installed: apt-get install make")
    project = Project(tmp_path, "make", with_make)
    project.build()
    (project.folder / "build" / "digits.c").unlink()
    (project.folder / "build" / "digits.h").unlink()
    assert "digits.c" in project.build()
    assert project.build() == []


def test_examples_are_short() -> None:
    assert len((EXAMPLES / "cmake" / "CMakeLists.txt").read_text().splitlines()) <= 20
    assert (EXAMPLES / "cmake" / "main.c").read_text() == (EXAMPLES / "make" / "main.c").read_text()


def test_the_function_of_cmake_refuses_what_it_does_not_know(tmp_path: Path) -> None:
    if shutil.which("cmake") is None:
        pytest.skip("cmake is not installed: apt-get install cmake")
    for call, message in (("net", "no MODEL; add MODEL file.nir"), ("net MODEL x.nir SPEED 3", "SPEED;3")):
        (tmp_path / "CMakeLists.txt").write_text(
            "cmake_minimum_required(VERSION 3.20)\nproject(x NONE)\n"
            f'include("{ROOT}/snn_builder/cmake/snn_builder.cmake")\nsnn_builder_add_network({call})\n'
        )
        result = subprocess.run(
            ["cmake", "-B", "b", f"-DPython3_EXECUTABLE={sys.executable}"], cwd=tmp_path, capture_output=True, text=True
        )
        assert result.returncode == 1 and message in result.stderr


def test_cmake_dir(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cmake-dir"]) == 0
    assert (Path(capsys.readouterr().out.rstrip("\n")) / "snn_builder.cmake").is_file()


# -- generate for build tools


def test_the_compiler_s_files_are_found_below_any_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "scons" / "snn_builder"
    for file in ("reader.py", "dialect/snn.irdl.mlir", "scons/stages.py"):
        (package / file).parent.mkdir(parents=True, exist_ok=True)
        (package / file).touch()
    monkeypatch.setattr(depfile, "PACKAGE", package)
    assert [path.name for path in depfile.compiler_files()] == ["snn.irdl.mlir", "reader.py"]


def test_depfile(tmp_path: Path) -> None:
    """make reads it: with characters that it would take for its own, and with every file of the compiler in it."""
    folder = tmp_path / "a b#c$d"
    folder.mkdir()
    net = chain(folder / "my net.nir", np.array([[0.5, 0.25]]), lif(1))
    assert main(["generate", str(net), "-o", str(folder / "out"), "--depfile", str(tmp_path / "net.d")]) == 0
    text = (tmp_path / "net.d").read_text()
    for file in ("api.py", "lowering/snn_to_linalg.py", "dialect/snn.irdl.mlir"):
        assert f"{ROOT}/snn_builder/{file} \\\n" in text
    assert "scons" not in text.replace(str(ROOT), "") and str(ROOT / "snn_builder" / "__main__.py") in text
    if shutil.which("make") is None:
        pytest.skip("make is not installed: apt-get install make")
    (tmp_path / "Makefile").write_text("include net.d\n")
    database = subprocess.run(["make", "-pq"], cwd=tmp_path, capture_output=True, text=True).stdout
    for name in ("snn_network.c", "snn_network.h", "snn_network_weights.c", "snn_network.json"):
        (rule,) = (line for line in database.splitlines() if line.startswith(f"{folder}/out/{name}:"))
        assert f": {net} {ROOT}/snn_builder/" in rule


def test_stamp_leaves_what_is_right_alone(tmp_path: Path) -> None:
    net = chain(tmp_path / "net.nir", np.array([[0.5, 0.25]]), lif(1))
    out, stamp = tmp_path / "out", tmp_path / "stamps" / "net"
    words = ["generate", str(net), "-o", str(out)]
    assert main([*words, "--stamp", str(stamp), "--depfile", str(tmp_path / "net.d")]) == 0
    assert (tmp_path / "net.d").read_text().startswith(f"{stamp}: \\\n {net} \\\n")

    def times() -> dict[str, int]:
        return {file.name: file.stat().st_mtime_ns for file in (*out.iterdir(), stamp)}

    before = times()
    (out / "snn_network.h").write_text("spoilt")
    assert main([*words, "--stamp", str(stamp)]) == 0
    after = times()
    assert {name for name in before if before[name] != after[name]} == {"snn_network.h", "net"}
    assert "spoilt" not in (out / "snn_network.h").read_text()
    assert main(words) == 0  # without a stamp every file is new, or make would run the command for ever
    assert not {name for name, time in times().items() if time == after[name]} - {"net"}
