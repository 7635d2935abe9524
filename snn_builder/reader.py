# SPDX-License-Identifier: Apache-2.0
"""`.nir` (HDF5) -> `Network`: our own reader, since half of the public files do not pass `nir.read` (DESIGN 4.1).

It repairs what has one meaning only (a missing v_reset, a scalar parameter, a leading batch of 1), says so in `findings`, and
refuses everything else by file, node and field.
"""

from __future__ import annotations

import heapq
import os
from typing import Any

import numpy as np

from . import hdf5
from .errors import Findings
from .network import Linear, Network, Shape, Terminal, neighbours, size
from .nodes import SUPPORTED, Draft, draft

__all__ = ["SUPPORTED", "read"]


def read(path: str | os.PathLike[str], findings: Findings | None = None) -> Network:
    """Reads and checks a NIR file. Raises `Unreadable` where there is no NIR graph to read and `Refused` where the graph is not one
    we can build; repairs and warnings are added to `findings`."""
    file = os.fspath(path)
    findings = Findings(file) if findings is None else findings
    raw = hdf5.load(file, findings)
    drafts = {name: made for name, fields in raw.nodes.items() if (made := draft(name, fields, findings))}
    findings.refuse()
    nodes = _resolve_shapes(drafts, raw.edges, findings)
    findings.refuse()
    network = Network(file, raw.sha256, nodes, raw.edges, _metadata_dt(raw.metadata, findings))
    _check_graph(network, findings)
    findings.refuse()
    return network


def _resolve_shapes(drafts: dict[str, Draft], edges: tuple[tuple[str, str], ...], findings: Findings) -> dict[str, Any]:
    """Builds every node as soon as its shape is known: from its own fields, else from the first neighbour that has one, predecessors
    before successors."""
    nodes: dict[str, Any] = {}
    before, after = neighbours(edges)
    waiting = dict(drafts)
    pending = sorted(drafts)  # a heap, of the smallest name first: that one decides what the others see
    while pending:
        name = heapq.heappop(pending)
        if name not in waiting:
            continue
        made = waiting[name]
        sources = [nodes[source].output_shape for source in before.get(name, ()) if source in nodes]
        targets = [nodes[target].input_shape for target in after.get(name, ()) if target in nodes]
        shapes: list[Shape | None] = [*sources[:1], *(targets[:1] if made.elementwise else []), None]
        node = made.build(shapes[0], findings)
        if node is not None or made.failed:
            del waiting[name]
        huge = () if node is None else max(node.input_shape, node.output_shape, key=size)
        if size(huge) > hdf5.MOST_VALUES:
            findings.error(name, f"{_dims(huge)} elements are more than any board holds", "correct its shape")
        elif node is not None:
            nodes[name] = node
            for neighbour in (*before.get(name, ()), *after.get(name, ())):
                heapq.heappush(pending, neighbour)
    findings.refuse()  # what comes after a node that is refused is not to blame
    for name, made in waiting.items():
        findings.error(name, *made.unknown_shape)
    return {name: nodes[name] for name in drafts if name in nodes}


def _check_graph(network: Network, findings: Findings) -> None:
    for kind in ("Input", "Output"):
        if not network.terminals(kind):
            findings.error("", f"the graph has no {kind} node", f"export it with an {kind}")
    mismatches = []
    for source, target in network.edges:
        before, after = network.nodes[source], network.nodes[target]
        given, wanted = before.output_shape, after.input_shape
        if isinstance(after, Terminal) and after.kind == "Input":
            findings.error(target, f"edge {source} -> {target} leads into an Input", "remove the edge")
        elif isinstance(before, Terminal) and before.kind == "Output":
            findings.error(source, f"edge {source} -> {target} comes out of an Output", "remove the edge")
        elif size(given) != size(wanted):
            transposed = isinstance(after, Linear) and after.weight.shape[0] == size(given)
            remedy = (
                "its weight looks transposed: store it as (outputs, inputs)" if transposed else "make the shapes agree"
            )
            problem = f"edge {source} -> {target}: {source} gives {_dims(given)} values, {target} takes {_dims(wanted)}"
            mismatches.append((not transposed, target, problem, remedy))
    for _, target, problem, remedy in sorted(mismatches):  # a transposed weight first: it explains the others
        findings.error(target, problem, remedy)
    fed = {target for _, target in network.edges}
    for name, node in network.nodes.items():
        may_start = node.kind in ("Input", "LIF", "LI", "CubaLIF", "CubaLI", "IF", "I")
        if not may_start and name not in fed:
            findings.error(name, f"nothing feeds this {node.kind}", "connect it, or remove it")


def _dims(shape: Shape) -> str:
    return "x".join(map(str, shape))


def _metadata_dt(metadata: dict[str, Any], findings: Findings) -> float | None:
    value = metadata.get("dt")
    if value is None:
        return None
    array = np.asarray(value)
    if array.size != 1 or array.dtype.kind not in "fiu" or not 0 < float(array.reshape(())) < np.inf:
        findings.error(
            "", "the graph's metadata key dt is not a positive number", "correct it, or remove it and pass dt="
        )
        return None
    return float(array.reshape(()))
