# SPDX-License-Identifier: Apache-2.0
"""`Program` -> the files of a build that Python writes: `N.mlir`, `N.h`, `N_weights.c`, `N.json`."""

from __future__ import annotations

from ..errors import Findings
from ..names import CNames
from ..program import Program
from ..ranges import analyse
from .header import header_text
from .layout import lay_out
from .module import build_module
from .report import report_text
from .weights import weights_text


def texts(program: Program, findings: Findings) -> dict[str, str]:
    """The files by name."""
    names = CNames(program.network.file)
    layout = lay_out(program, names)
    for name in sorted(set(program.network.nodes) - set(layout.live)):
        findings.warn(name, "does not reach an Output: left out", "")
    decisions = analyse(program)
    name = program.options.name
    return {
        f"{name}.mlir": build_module(program, layout, decisions, names),
        f"{name}.h": header_text(program, layout),
        f"{name}_weights.c": weights_text(program, layout),
        f"{name}.json": report_text(program, layout, decisions, findings),
    }
