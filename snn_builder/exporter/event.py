# SPDX-License-Identifier: Apache-2.0
"""What `kernel=event` changes in memory: weights by input, in blocks of outputs, and lists of last step's spikes."""

from __future__ import annotations

import numpy as np

from ..network import Linear, Neuron
from ..program import Array, Program

BLOCK = 8  # outputs of one pass over a list of spikes: their sums stay in registers


def event_weights(weight: Array, form: str, groups: int = 1) -> tuple[Array, str, str]:
    """Weights (outputs, inputs) as [block of outputs][input][output], their element type, and in words how they lie. The outputs of
    each of the groups begin a block of their own.

    `column` is one block of all outputs. `packed` is blocks of 8; of int8 four go into a word, lowest byte first, as w + 128, so that a
    kernel adds up bytes that are not negative in lanes of 16 bits. Outputs that are not there weigh 0.
    """
    integer = weight.dtype != np.float32
    outputs, inputs = len(weight) // groups, weight.shape[1]
    grouped = weight.reshape(groups, outputs, inputs)
    if form == "column":
        return np.moveaxis(grouped, 1, 2), "i8" if integer else "f32", "transposed"
    lanes = 4 if integer else 1
    width = min(BLOCK, -(-outputs // lanes) * lanes)
    blocks = -(-outputs // width)
    padded = np.zeros((groups, blocks * width, inputs), weight.dtype)
    padded[:, :outputs] = grouped
    blocked = np.moveaxis(padded.reshape(groups * blocks, width, inputs), 1, 2)
    if not integer:
        return blocked, "f32", f"by input, {width} outputs at a time"
    octets = (blocked.astype(np.int64) + 128).reshape(groups * blocks, inputs, width // 4, 4)
    words = (octets << np.array([0, 8, 16, 24])).sum(-1)
    return words, "ui32", "by input, w + 128, four outputs to a word"


def index_element(count: int) -> str:
    """The element type of a list of so many inputs."""
    return "ui16" if count <= 0xFFFF else "ui32"


def keeps_list(program: Program, name: str, targets: list[str]) -> bool:
    """Whether the spikes of a neuron, read a step later by `targets`, are kept as a list."""
    node = program.network.nodes[name]
    if program.options.kernel != "event" or not isinstance(node, Neuron) or not node.spikes:
        return False
    return all(
        isinstance(program.network.nodes[target], Linear) and program.network.predecessors(target) == [name]
        for target in targets
    )
