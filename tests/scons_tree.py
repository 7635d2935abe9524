# SPDX-License-Identifier: Apache-2.0
"""Copies of this checkout in which tests run SCons for real."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from support import ROOT, chain, lif

SMALL = "models/small/small.nir"
PARTS = ("SConstruct", "site_scons", "snn_builder", "firmware", "boards")
UP_TO_DATE = "scons: `all' is up to date."


@dataclass(frozen=True)
class Result:
    """What one run of SCons printed, line by line, and how it ended."""

    out: list[str]
    err: list[str]
    status: int

    def steps(self) -> list[str]:
        """The tags of the commands that ran, sorted: "AR", "CC", ..."""
        return sorted(match[1] for line in self.out if (match := re.match(r"  \[(\w+)\] ", line)))

    def done(self) -> list[str]:
        """Tag and target of the commands that ran, sorted."""
        return sorted(" ".join(line.split()) for line in self.out if line.startswith("  ["))


class Tree:
    """A checkout of its own at `path`, with a small network beside its sources."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def copy(self, path: Path) -> Tree:
        """With everything built so far, and all times, so SCons sees no difference."""
        shutil.copytree(self.path, path, symlinks=True)
        return Tree(path)

    def scons(self, *words: str, env: dict[str, str] | None = None) -> Result:
        command = [sys.executable, "-m", "SCons", "-Q", *words]
        # as for a user: Python's caches are among the things that a build may leave
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        environment |= env or {}
        done = subprocess.run(command, cwd=self.path, capture_output=True, text=True, env=environment, check=False)
        return Result(done.stdout.splitlines(), done.stderr.splitlines(), done.returncode)

    def build(self, *words: str, env: dict[str, str] | None = None) -> Result:
        """A run for the small network that has to end well, and after which nothing is left to do."""
        result = self.scons(f"model={SMALL}", *words, env=env)
        assert result.status == 0, "\n".join([*result.out, *result.err])
        options = [word for word in words if "=" in word and not word.startswith("-")]
        assert self.scons(f"model={SMALL}", *options, env=env).out == [UP_TO_DATE]
        return result

    def files(self) -> dict[str, bytes]:
        """Content by name, of all files."""
        found = (path for path in self.path.rglob("*") if path.is_file())
        return {str(path.relative_to(self.path)): path.read_bytes() for path in found}

    def built(self) -> dict[str, bytes]:
        """Content of what is built, without SCons' own record and the one file whose purpose is to name the directory."""
        apart = ("build/.sconsign.dblite", "build/compile_commands.json")
        return {
            name: content
            for name, content in self.files().items()
            if name.startswith("build/") and "/zig/" not in name and name not in apart
        }

    def edit(self, name: str, append: str) -> None:
        with (self.path / name).open("a", encoding="utf-8") as stream:
            stream.write(append)


def weights(seed: int) -> np.ndarray:
    """Layers of one shape and one largest weight, so that they have one scale."""
    found = np.random.default_rng(seed).uniform(-0.4, 0.4, (4, 11))
    found[0, :2] = (0.45, -0.45)
    return found.astype(np.float32)


def small_network(path: Path, seed: int = 0, weight: float | None = None) -> None:
    """11 -> 4 LIF neurons with random weights; `weight` is put among them."""
    values = weights(seed)
    if weight is not None:
        values[1, 1] = weight
    chain(path, values, lif(4, tau=np.linspace(0.01, 0.02, 4), r=np.linspace(10.0, 20.0, 4)))


def make_tree(path: Path) -> Tree:
    """The parts of this checkout that a build needs, without caches."""
    path.mkdir()
    ignored = shutil.ignore_patterns("__pycache__", ".*")
    for part in PARTS:
        source = ROOT / part
        if source.is_dir():
            shutil.copytree(source, path / part, ignore=ignored)
        else:
            shutil.copy2(source, path / part)
    folder = path / "models" / "small"
    folder.mkdir(parents=True)
    small_network(path / SMALL)
    random = np.random.default_rng(1)
    np.save(folder / "input.npy", random.integers(0, 2, (3, 5, 11)).astype(np.float32))
    np.save(folder / "input.labels.npy", np.array([0, 1, 2]))
    return Tree(path)
