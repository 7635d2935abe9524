# SPDX-License-Identifier: Apache-2.0
"""The SCons tool: networks and firmware as targets. In this checkout SConstruct uses all of it; elsewhere

    env = Environment(tools=["default", "snn"], toolpath=[PyPackageDir("snn_builder.scons")])
    lib = env.SnnNetwork("gesture.nir", name="gesture", quantize=True)  # the library, and all on the way to it
    env.Program("app", ["app.c", lib], CPPPATH=[lib.include])

This package is the only place that imports SCons, and nothing that it imports loads NumPy, nir or MLIR: the stages of
the compiler run as commands (`scons --verbose` prints them), so a build without changes costs next to nothing.

Construction variables, all with defaults: SNN_PYTHON runs the stages, SNN_VERBOSE prints commands, SNN_<tag>COMSTR is the line for
one kind of command, SNN_DIR is where networks go without a directory, SNN_CCFLAGS are flags for their C.
"""

from __future__ import annotations

import importlib.util
from typing import Any

from .firmware import add_firmware
from .session import add_session
from .stages import add_stages
from .variables import checked, options

__all__ = ["exists", "generate", "options"]


def generate(env: Any) -> None:
    """Adds the builders and methods of this package to `env`."""
    add_session(env)
    add_stages(env)
    add_firmware(env)
    env.AddMethod(checked, "SnnRequest")


def exists(env: Any) -> bool:
    """Whether the compiler's own dependencies are installed."""
    return all(importlib.util.find_spec(module) is not None for module in ("mlir", "h5py", "numpy"))
