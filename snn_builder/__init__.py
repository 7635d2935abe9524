# SPDX-License-Identifier: Apache-2.0
"""snn-builder: trained spiking neural networks (NIR) to C for small cores.

The stages, as functions: `read`, `check`, `to_mlir`, `export`, `generate`, `simulate`; `load` makes a network that runs on this machine.
Importing this package costs nothing: NumPy, h5py and MLIR are loaded by the stage that needs them.
"""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

_HOMES = {
    "read": "reader",
    "check": "checker",
    "to_mlir": "api",
    "export": "api",
    "generate": "api",
    "simulate": "api",
    "load": "host",
    "Options": "options",
    "SnnError": "errors",
    "Refused": "errors",
    "Unreadable": "errors",
}
__all__ = ["__version__", *_HOMES]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f".{_HOMES[name]}", __name__), name)
