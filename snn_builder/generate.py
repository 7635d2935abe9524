# SPDX-License-Identifier: Apache-2.0
"""All stages in one process: a `.nir` file to the files that a build compiles."""

from __future__ import annotations

import os

from .c import emit_c
from .errors import Findings
from .export import texts
from .files import write_all
from .lowering import lower
from .options import Options
from .pipeline import compile_network


def generate(
    path: str | os.PathLike[str],
    out: str | os.PathLike[str],
    options: Options | None = None,
    findings: Findings | None = None,
) -> None:
    """Writes `N.mlir`, `N.lowered.mlir`, `N.c`, `N.h`, `N_weights.c` and `N.json` into the directory `out`, all or none. Raises
    `Unreadable` or `Refused`; warnings go to `findings`."""
    options = options or Options()
    findings = Findings(path) if findings is None else findings
    contents = texts(compile_network(path, options, findings), findings)
    name = options.name
    contents[f"{name}.lowered.mlir"] = lower(contents[f"{name}.mlir"], f"{name}.mlir")
    contents[f"{name}.c"] = emit_c(contents[f"{name}.lowered.mlir"], f"{name}.lowered.mlir")
    write_all(out, contents)
