# SPDX-License-Identifier: Apache-2.0
"""The package as pip installs it, without the checkout: boards and firmware are in it, and build."""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
from scons_tree import small_network
from support import ROOT

from snn_builder.boards import home

PARTS = ("pyproject.toml", "README.md", "LICENSE", "SConstruct", "site_scons", "snn_builder", "boards", "firmware")
SHARED = ("SConstruct", "site_scons", "boards", "firmware")
CACHES = shutil.ignore_patterns("__pycache__", ".*")
# the SConstruct in docs/other-builds.md that builds for boards
(PROJECT,) = re.findall(
    r"```python\n(import snn_builder\.scons\n.*?)```", (ROOT / "docs/other-builds.md").read_text(), re.DOTALL
)


def files(folder: Path) -> set[str]:
    found = {path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts}
    return {str(path.relative_to(folder)) for path in found}


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what the wheel holds."""
    try:
        version = importlib.metadata.version("setuptools")
    except importlib.metadata.PackageNotFoundError:
        version = "0"
    if int(version.partition(".")[0]) < 77:
        pytest.skip("setuptools 77 or newer is not installed: pip install 'setuptools>=77'")
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"  # a build leaves things beside pyproject.toml
    source.mkdir()
    for part in PARTS:
        if (ROOT / part).is_dir():
            shutil.copytree(ROOT / part, source / part, ignore=CACHES)
        else:
            shutil.copy2(ROOT / part, source / part)
    build = "import sys; from setuptools.build_meta import build_wheel; build_wheel(sys.argv[1])"
    done = subprocess.run(
        [sys.executable, "-c", build, str(folder)],
        cwd=source,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    assert done.returncode == 0, done.stdout
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "site")
    return folder / "site"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    small_network(tmp_path / "net.nir")
    np.save(tmp_path / "input.npy", np.random.default_rng(1).integers(0, 2, (2, 5, 11)).astype(np.float32))
    return tmp_path


def python(installed: Path, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(installed)}
    return subprocess.run([sys.executable, *words], cwd=folder, env=environment, text=True, capture_output=True)


def test_the_wheel_holds_every_file(installed: Path) -> None:
    expected = {f"snn_builder/{name}" for name in files(ROOT / "snn_builder")}
    for part in SHARED:
        names = {f"{part}/{name}" for name in files(ROOT / part)} if (ROOT / part).is_dir() else {part}
        expected |= {f"snn_builder/_share/{name}" for name in names}
    assert {name for name in files(installed) if ".dist-info/" not in name} == expected


def test_boards_are_those_of_the_checkout_or_of_the_wheel(installed: Path, tmp_path: Path) -> None:
    assert home() == ROOT
    listed = python(
        installed, tmp_path, "-c", "from snn_builder.boards import *; print(home(), *find([home() / 'boards']))"
    )
    assert listed.stdout.split() == [str(installed / "snn_builder" / "_share"), "host", "x86", "xheep"]


def test_firmware_of_a_foreign_project(installed: Path, project: Path) -> None:
    (project / "SConstruct").write_text(PROJECT)
    done = python(installed, project, "-m", "SCons", "-Q", "board=host,xheep", "model=net.nir")
    assert done.returncode == 0, done.stdout + done.stderr
    for board in ("host", "xheep"):
        assert (project / "build" / board / "result.json").is_file()
    assert len(re.findall("^against reference: .* F1 1.0000$", done.stdout, re.MULTILINE)) == 2
    assert str(ROOT) not in done.stdout
    again = python(
        installed, project, "-m", "SCons", "-Q", "board=host,xheep", "model=net.nir", "build/xheep/firmware.elf"
    )
    assert again.stdout == "scons: `build/xheep/firmware.elf' is up to date.\n"


def test_an_emulated_board_streams(installed: Path, project: Path) -> None:
    """Built in build/ of the working directory: where a package is installed nobody may write."""
    before = files(installed)
    words = ("stream", "--port", "emulator:xheep", "--quantize", "net.nir", "input.npy")
    done = python(installed, project, "-m", "snn_builder", *words)
    assert done.returncode == 0, done.stderr
    assert "10 steps, each computed once" in done.stdout
    assert (project / "build" / "xheep-int8" / "net" / "stream.elf").is_file()
    assert files(installed) == before and sorted(path.name for path in project.iterdir()) == [
        "build",
        "input.npy",
        "net.nir",
    ]
