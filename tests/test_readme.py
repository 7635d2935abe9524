# SPDX-License-Identifier: Apache-2.0
"""What the README shows is true."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from compiled import EXACT
from support import ROOT

from snn_builder.api import generate
from snn_builder.options import Options

README = (ROOT / "README.md").read_text()


@pytest.mark.parametrize("quantize", [False, True], ids=["float", "int8"])
def test_the_program_in_the_readme(tmp_path: Path, quantize: bool) -> None:
    (program,) = re.findall(r"```c\n(.*?)```", README, re.DOTALL)
    (tmp_path / "main.c").write_text(program)
    generate(ROOT / "models" / "digits" / "digits.nir", tmp_path, Options(quantize=quantize))
    sources = ["main.c", "snn_network.c", "snn_network_weights.c"]
    subprocess.run(
        ["gcc", "-std=c11", "-Wall", "-Wextra", "-Werror", *EXACT, *sources, "-o", "program"], cwd=tmp_path, check=True
    )
    assert subprocess.run([tmp_path / "program"], check=True, capture_output=True, text=True).stdout in ("0\n", "1\n")


def test_links_lead_somewhere() -> None:
    for page in [ROOT / "README.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob("models/*/README.md")]:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.relative_to(ROOT)} links to {target}"
