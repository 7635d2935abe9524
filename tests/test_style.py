# SPDX-License-Identifier: Apache-2.0
"""The tree is as its formatters, linters and the type checker want it. pyproject.toml and .clang-format configure them."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def passes(*command: str | Path) -> None:
    """Assert that the command, run in the checkout, exits with 0; its output is the message otherwise."""
    result = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert result.returncode == 0, "\n" + result.stdout


@pytest.mark.parametrize(
    ("module", "arguments"),
    [("ruff", "check"), ("ruff", "format --check"), ("mypy", "")],
    ids=["ruff-check", "ruff-format", "mypy"],
)
def test_python(module: str, arguments: str) -> None:
    if importlib.util.find_spec(module) is None:
        pytest.skip(f"{module} is not installed: pip install -e .[test]")
    if module == "mypy" and sys.version_info < (3, 11):
        pytest.skip("on Python 3.10 NumPy is an older one with other types")
    passes(sys.executable, "-m", module, *arguments.split())


def test_c_is_formatted() -> None:
    formatter = Path(sys.executable).with_name("clang-format")  # no other: versions format differently
    if not formatter.exists():
        pytest.skip("clang-format is not installed: pip install -e .[test]")
    sources = [
        path
        for folder in ("snn_builder", "firmware", "boards", "examples")
        for path in sorted((ROOT / folder).rglob("*"))
        if path.suffix in (".c", ".h") and "build" not in path.relative_to(ROOT).parts
    ]
    assert sources
    passes(formatter, "--dry-run", "--Werror", "--style=file", *sources)


def test_shell_scripts() -> None:
    shellcheck = shutil.which("shellcheck")
    if shellcheck is None:
        pytest.skip("shellcheck is not installed: apt-get install shellcheck")
    passes(shellcheck, "sconsw", ".ci/run")
