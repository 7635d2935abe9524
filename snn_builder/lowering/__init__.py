# SPDX-License-Identifier: Apache-2.0
"""From the snn dialect (N.mlir) to MLIR's own dialects (N.lowered.mlir): linalg, scf, arith, memref and func.

kernel=event goes through two passes more, SNNToEvent and EventToLoops; what they leave is dense.
"""

from __future__ import annotations

from mlir.passmanager import PassManager

from ..dialect import InvalidModule, new_context, parse, to_text, walk
from ..errors import Unreadable
from .event_to_loops import EventToLoops
from .snn_to_event import SNNToEvent
from .snn_to_linalg import SNNToLinalg

__all__ = ["EventToLoops", "SNNToEvent", "SNNToLinalg", "lower"]


def lower(text: str, file: str = "") -> str:
    """Lowers a module of the snn dialect; both are texts. `file` is named if the text is not such a module.

    Raises Unreadable for a text that is not a valid module, InvalidModule if the lowering fails (a bug of ours).
    """
    with new_context() as context:
        try:
            module = parse(text, context)
        except InvalidModule as error:
            problem = f"not a module of the snn dialect: {error.first_line()}"
            raise Unreadable(file, "", problem, "make it with `python -m snn_builder export`") from None
        passes = PassManager("builtin.module")
        passes.add(SNNToEvent(), name="snn-to-event")
        passes.add(EventToLoops(), name="event-to-loops")
        passes.add(SNNToLinalg(), name="snn-to-linalg")
        passes.run(module.operation)
        left = [op.name for op in walk(module.operation) if op.name.startswith("snn.")]
        if left:
            raise InvalidModule(f"not lowered: {', '.join(sorted(set(left)))}")
        return to_text(module)
