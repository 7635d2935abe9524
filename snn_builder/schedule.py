# SPDX-License-Identifier: Apache-2.0
"""In which order the nodes of a graph are evaluated, and which edges carry the previous step (DESIGN 4.3)."""

from __future__ import annotations

import dataclasses
import heapq
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from .errors import Findings
from .network import Edge, Network, Neuron, Terminal


@dataclasses.dataclass(frozen=True)
class Schedule:
    """`order`: every node once, sources before targets; `previous`: the edges that carry last step's value instead. `registers`: Delays
    that are read before their input is stored, at the end of the step; `in_loop`: those of them that stand on a cycle."""

    order: tuple[str, ...]
    previous: frozenset[Edge]
    registers: frozenset[str]
    in_loop: frozenset[str]


def schedule(network: Network, delays: Mapping[str, NDArray[np.int64]], findings: Findings) -> Schedule:
    """Breaks every cycle at a register or a neuron and sorts what is left. `delays`: steps of each Delay, per element. Raises `Refused`
    for a cycle without either, with its path."""
    registers = frozenset(name for name, steps in delays.items() if steps.size and steps.min() >= 1)
    in_loop = frozenset(name for name in registers if _reaches(network, name, name))
    stored = {edge for edge in network.edges if edge[1] in registers}
    previous: set[Edge] = set()
    while cycle := _first_cycle(network, previous | stored):
        cut = _previous_edge(network, cycle)
        if cut is None:
            path = " -> ".join([*cycle, cycle[0]])
            findings.error(
                cycle[0],
                f"cycle without a neuron: {path}",
                "put a neuron or a Delay into it: its value at this step would depend on itself",
            )
            break
        previous.add(cut)
    findings.refuse()
    return Schedule(_order(network, previous | stored, previous), frozenset(previous), registers, in_loop)


def _reaches(network: Network, start: str, goal: str) -> bool:
    seen: set[str] = set()
    pending = network.successors(start)
    while pending:
        name = pending.pop()
        if name == goal:
            return True
        if name not in seen:
            seen.add(name)
            pending += network.successors(name)
    return False


def _first_cycle(network: Network, cut: set[Edge]) -> list[str] | None:
    """The first cycle of a depth-first walk from the Inputs, then from the other nodes, all in name order, as the path from its
    first node to the source of the closing edge."""
    inputs = [terminal.name for terminal in network.terminals("Input")]
    following = {
        name: [target for target in network.successors(name) if (name, target) not in cut] for name in network.nodes
    }
    done: set[str] = set()
    for root in [*inputs, *network.nodes]:
        if root in done:
            continue
        path = [root]
        on_path = {root}
        pending = [iter(following[root])]
        while path:
            target = next(pending[-1], None)
            if target is None:
                pending.pop()
                on_path.discard(path[-1])
                done.add(path.pop())
            elif target in on_path:
                return path[path.index(target) :]
            elif target not in done:
                path.append(target)
                on_path.add(target)
                pending.append(iter(following[target]))
    return None


def _previous_edge(network: Network, cycle: list[str]) -> Edge | None:
    """Walking back from the closing edge, the out-edge of the first neuron met."""
    for position in range(len(cycle) - 1, -1, -1):
        if isinstance(network.nodes[cycle[position]], Neuron):
            return cycle[position], cycle[(position + 1) % len(cycle)]
    return None


def _order(network: Network, cut: set[Edge], previous: set[Edge]) -> tuple[str, ...]:
    """Topological order. Among nodes that are ready, one that reads a previous step comes before the node that would overwrite
    it where the graph allows it, then smaller names; Outputs come last of all, so that each layer stands by its successor."""
    waiting = {name: 0 for name in network.nodes}
    for edge in network.edges:
        if edge not in cut:
            waiting[edge[1]] += 1

    overwrites = {source for source, _ in previous}

    def key(name: str) -> tuple[bool, bool, str]:
        node = network.nodes[name]
        return (isinstance(node, Terminal) and node.kind == "Output", name in overwrites, name)

    ready = [key(name) for name, count in waiting.items() if count == 0]
    heapq.heapify(ready)
    order: list[str] = []
    while ready:
        name = heapq.heappop(ready)[2]
        order.append(name)
        for target in network.successors(name):
            if (name, target) not in cut:
                waiting[target] -= 1
                if waiting[target] == 0:
                    heapq.heappush(ready, key(target))
    return tuple(order)
