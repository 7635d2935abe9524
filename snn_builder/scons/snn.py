# SPDX-License-Identifier: Apache-2.0
"""The tool "snn" for any project: toolpath=[PyPackageDir("snn_builder.scons")]. SCons loads this file by its path, hence absolute imports.

`options` is not here: SCons would put every option of ours, such as `name` and `input`, into each environment of the project.
"""

from __future__ import annotations

from typing import Any

import snn_builder.scons
from snn_builder.scons import exists

__all__ = ["exists", "generate"]

HELP = """
snn-builder, networks from .nir files:
  lib = env.SnnNetwork("net.nir", name="net", quantize=True)     the library of a network; lib.include is where net.h is
  env.Program("app", ["main.c", lib], CPPPATH=[lib.include])

  A second argument names the directory; options are those of `python -m snn_builder generate --help`.
  SNN_DIR        where networks go without a directory [{SNN_DIR}], in <name>-<f32|int8>
  SNN_CCFLAGS    flags for their C, after CCFLAGS [{SNN_CCFLAGS}]
  SNN_PYTHON     runs the compiler [{SNN_PYTHON}]
  SNN_VERBOSE    prints commands, not short lines [{SNN_VERBOSE}]
  SNN_NIRCOMSTR, SNN_LOWERCOMSTR, SNN_CCOMSTR, SNN_ARCOMSTR    what is printed for a step
"""

_helped = False


def generate(env: Any) -> None:
    """Adds the builders and methods to `env`, and once what they are to `scons -h`, before or after what the project says there."""
    global _helped
    snn_builder.scons.generate(env)
    if not _helped:
        names = ("SNN_DIR", "SNN_CCFLAGS", "SNN_PYTHON", "SNN_VERBOSE")
        env.Help(HELP.format_map({name: env.subst(f"${name}") for name in names}), append=True, local_only=True)
    _helped = True
