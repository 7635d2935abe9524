# SPDX-License-Identifier: Apache-2.0
"""docs/tutorial.md works as it stands: its files saved, its commands run in order, and each prints what the page shows, but for the
numbers, which another processor trains slightly otherwise."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

for name in ("torch", "snntorch", "nirtorch"):
    pytest.importorskip(name, reason=f"{name} is not installed: pip install -r requirements-frameworks.txt")

from scons_tree import PARTS
from support import ROOT

PYTHON = shlex.quote(sys.executable)
BLOCK = re.compile(r"^(<!-- not run.*?-->\n)?```(\w+)(?: title=\"(\S+)\")?\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def here(text: str) -> str:
    """With the environment that runs the tests in place of the one that sconsw makes."""
    return text.replace(".venv/bin/python", PYTHON).replace("./sconsw", f"{PYTHON} -m SCons")


def masked(line: str) -> str:
    return " ".join(re.sub(r"\d[\d.,]*", "#", line).split())


def missing(shown: str, printed: str) -> list[str]:
    """The lines shown that were not printed, in this order, whatever their numbers."""
    lines = iter(map(masked, printed.splitlines()))
    return [line for line in map(masked, shown.splitlines()) if line not in lines]


def test_the_tutorial(tmp_path: Path) -> None:
    for part in PARTS:
        copy = shutil.copytree if (ROOT / part).is_dir() else shutil.copy
        copy(ROOT / part, tmp_path / part)
    (tmp_path / "moving").mkdir()
    printed, commands = "", 0
    accuracies, spikes_agree = [], []
    for skipped, language, file, text in BLOCK.findall((ROOT / "docs" / "tutorial.md").read_text()):
        if skipped:
            continue
        if file:
            (tmp_path / file).write_text(here(text))
        elif language == "sh":
            done = subprocess.run(
                ["sh", "-euc", here(text)],
                cwd=tmp_path,
                text=True,
                check=False,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            )
            printed = done.stdout
            assert done.returncode == 0, f"{text}\n{printed}"
            commands += 1
            accuracies += map(float, re.findall(r"accuracy ([\d.]+) ?%", printed))
            spikes_agree += map(float, re.findall(r"against (?:float|snnTorch): .*F1 ([\d.]+)", printed))
        else:
            assert language == "text", f"a block of {language} without a file name"
            assert missing(text, printed) == [], printed
    assert commands == count_of_commands() and len(accuracies) >= 4 and min(accuracies) >= 85
    assert len(spikes_agree) == 3 and min(spikes_agree) >= 0.9


def count_of_commands() -> int:
    """Counted in another way than the test reads them, so that none is passed over."""
    return (ROOT / "docs" / "tutorial.md").read_text().count("\n```sh\n") - 1
