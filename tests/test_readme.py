# SPDX-License-Identifier: Apache-2.0
"""What the README shows is true."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from compiled import EXACT
from mlir.passmanager import PassManager
from support import ROOT
from test_nodes import CASES, Case, write_case

from snn_builder import dialect
from snn_builder.api import generate, to_mlir
from snn_builder.lowering import SNNToEvent
from snn_builder.nodes import SUPPORTED
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


def test_the_table_of_nodes_is_the_code_s(tmp_path: Path) -> None:
    """Every row is a node type of ours, every type has a row; that each is compiled right in both modes and kernels, as the table says,
    is shown by hand-worked cases in tests/test_nodes.py."""
    rows = re.findall(r"^\| ([A-Z][^|]*) \| (yes) \| (yes) \| ([^|]*) \| (yes) \|$", README, re.MULTILINE)
    listed = [re.sub(r" \(.*\)", "", name) for row in rows for name in row[0].split(", ")]
    assert sorted(listed) == sorted(SUPPORTED)
    assert set(SUPPORTED) - {"Input", "Output"} <= set(CASES)
    pays = {name for row in rows if row[3] == "pays for spikes" for name in row[0].split(", ")}
    assert pays == {name for name in SUPPORTED if name in CASES and _takes_lists(CASES[name], tmp_path)}


def _takes_lists(case: Case, folder: Path) -> bool:
    """Whether the event form of a case reads a list of spikes; a case of several nodes is about one that cannot stand alone."""
    if len(case.nodes) > 1:
        return False
    text = to_mlir(write_case(case, folder / "case.nir"), quantize=True, dt=1.0, kernel="event")
    with dialect.new_context() as context:
        module = dialect.parse(text, context)
        passes = PassManager("builtin.module")
        passes.add(SNNToEvent(), name="snn-to-event")
        passes.run(module.operation)
        found = {op.name for op in dialect.walk(module.operation)}
    return bool(found & {"snn.gather", "snn.gather2d", "snn.scatter2d"})
