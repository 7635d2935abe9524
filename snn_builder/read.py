# SPDX-License-Identifier: Apache-2.0
"""`.nir` (HDF5) -> `Network`: our own reader, since half of the public files do not pass `nir.read` (DESIGN 4.1).

It repairs what has one meaning only (a missing v_reset, a scalar parameter, a leading batch of 1), says so in `findings`, and
refuses everything else by file, node and field.
"""

from __future__ import annotations

import collections
import dataclasses
import hashlib
import os
from typing import Any

import h5py
import numpy as np

from .errors import Findings, Unreadable
from .network import F64, Edge, Linear, Network, Neuron, Node, Shape, Terminal, size

HDF5_MAGIC = b"\x89HDF\r\n\x1a\n"

# Per neuron type: the fields NIR gives it (the membrane's time constant first), with the default where files leave it out.
NEURON_FIELDS: dict[str, dict[str, float | None]] = {
    "LIF": {"tau": None, "r": None, "v_leak": 0.0, "v_threshold": None, "v_reset": 0.0},
    "LI": {"tau": None, "r": None, "v_leak": 0.0},
    "CubaLIF": {"tau_mem": None, "tau_syn": None, "r": None, "w_in": 1.0, "v_leak": 0.0, "v_threshold": None, "v_reset": 0.0},
    "CubaLI": {"tau_mem": None, "tau_syn": None, "r": None, "w_in": 1.0, "v_leak": 0.0},
    "IF": {"r": None, "v_threshold": None, "v_reset": 0.0},
    "I": {"r": None},
}
SUPPORTED = ("Input", "Output", "Linear", "Affine", *NEURON_FIELDS)


def read(path: str | os.PathLike[str], findings: Findings | None = None) -> Network:
    """Reads and checks a NIR file. Raises `Unreadable` where there is no NIR graph to read and `Refused` where the graph is not one
    we can build; repairs and warnings are added to `findings`."""
    file = os.fspath(path)
    findings = Findings(file) if findings is None else findings
    raw = _load(file)
    unresolved = {name: node for name, fields in sorted(raw.nodes.items()) if (node := _parse(name, fields, findings))}
    edges = _edges(raw, findings)
    findings.refuse()
    nodes = _resolve_sizes(unresolved, edges, findings)
    findings.refuse()
    network = Network(file, raw.sha256, nodes, edges, _metadata_dt(raw, findings))
    _check_graph(network, findings)
    findings.refuse()
    return network


# -- HDF5 ---------------------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class _Raw:
    """What the file holds, as plain values."""

    sha256: str
    nodes: dict[str, dict[str, Any]]
    edges: list[Edge]
    metadata: dict[str, Any]


def _load(file: str) -> _Raw:
    try:
        with open(file, "rb") as stream:
            content = stream.read()
    except FileNotFoundError:
        raise Unreadable(file, "", "no such file", "check the path") from None
    except OSError as error:
        raise Unreadable(file, "", f"cannot be read ({error.strerror})", "check the path and its permissions") from None
    if not content.startswith(HDF5_MAGIC):
        raise Unreadable(file, "", _what_it_is(content), "export the network with nir.write")
    try:
        with h5py.File(file, "r") as tree:
            graph = tree["node"]
            nodes = {name: _fields(group) for name, group in graph["nodes"].items()}
            edges = [(_text(source), _text(target)) for source, target in graph["edges"][()].reshape(-1, 2)]
            metadata = _fields(graph["metadata"]) if "metadata" in graph else {}
    except (OSError, RuntimeError):
        raise Unreadable(file, "", "truncated or damaged HDF5 file", "copy or export it again") from None
    except (KeyError, AttributeError, TypeError, ValueError):
        raise Unreadable(file, "", "an HDF5 file without a NIR graph", "export the network with nir.write") from None
    return _Raw(hashlib.sha256(content).hexdigest(), nodes, edges, metadata)


def _what_it_is(content: bytes) -> str:
    """Names the usual things that are found in place of a NIR file."""
    if not content:
        return "an empty file, not a NIR file"
    if content.startswith(b"version https://git-lfs"):
        return "a Git LFS pointer, not the NIR file itself"
    if content.startswith((b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05", b"PK\x03\x04")):
        return "a pickle or PyTorch checkpoint, not a NIR file"
    return "not an HDF5 file, so not a NIR file"


def _fields(group: Any) -> dict[str, Any]:
    return {key: (_fields(item) if isinstance(item, h5py.Group) else item[()]) for key, item in group.items()}


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


# -- Nodes --------------------------------------------------------------------------------------------------------------------


def _parse(name: str, fields: dict[str, Any], findings: Findings) -> Node | None:
    """One node, or None with an error in `findings`. Neurons whose parameters are all scalars have shape () until `_resolve_sizes`."""
    kind = _text(fields.get("type", "?"))
    count = len([item for item in findings.items if item.level == "error"])
    node: Node | None = None
    if kind in ("Input", "Output"):
        node = _terminal(name, kind, fields, findings)
    elif kind in ("Linear", "Affine"):
        node = _linear(name, kind, fields, findings)
    elif kind in NEURON_FIELDS:
        node = _neuron(name, kind, fields, findings)
    else:
        findings.error(name, f"node type {kind} is not supported", "use " + ", ".join(SUPPORTED))
    return node if count == len([item for item in findings.items if item.level == "error"]) else None


def _terminal(name: str, kind: str, fields: dict[str, Any], findings: Findings) -> Node | None:
    shape = fields.get("shape")
    if shape is None or np.asarray(shape).dtype.kind not in "iu" or np.any(np.asarray(shape) < 1):
        findings.error(name, f"{kind} without a usable shape", "write its shape as positive integers")
        return None
    return Terminal(name, kind, _without_batch(tuple(int(extent) for extent in np.atleast_1d(shape)), name, "shape", findings))


def _linear(name: str, kind: str, fields: dict[str, Any], findings: Findings) -> Node | None:
    weight = _array(name, "weight", fields, findings)
    if weight is None:
        return None
    if weight.ndim != 2 or weight.size == 0:
        findings.error(name, f"weight has shape {weight.shape}", "give it (outputs, inputs)")
        return None
    bias = None if _is_absent(fields.get("bias")) else _array(name, "bias", fields, findings)
    if kind == "Linear" and bias is not None:
        findings.error(name, "a Linear node holds a bias, which NIR's Linear has not", "make it an Affine node, or remove the bias")
        return None
    if kind == "Affine" and bias is None:
        findings.repair(name, "no bias stored, taken as none")
    if bias is not None:
        if bias.size != weight.shape[0]:
            findings.error(name, f"bias has {bias.size} values for {weight.shape[0]} outputs", "give one bias per output")
            return None
        bias = bias.reshape(-1)
    return Linear(name, kind, weight, bias)


def _neuron(name: str, kind: str, fields: dict[str, Any], findings: Findings) -> Node | None:
    values: dict[str, F64] = {}
    for field, default in NEURON_FIELDS[kind].items():
        if field not in fields and default is not None:
            values[field] = np.float64(default).reshape(())
            findings.repair(name, f"no {field} stored, taken as {default:g}")
        elif (array := _array(name, field, fields, findings)) is not None:
            shape = _without_batch(array.shape, name, field, findings)
            values[field] = array.reshape(shape)
    if len(values) < len(NEURON_FIELDS[kind]):
        return None
    shapes = {field: array.shape for field, array in values.items() if array.ndim}
    if len({size(shape) for shape in shapes.values()}) > 1:
        listed = ", ".join(f"{field} {shape}" for field, shape in shapes.items())
        findings.error(name, f"parameters of different sizes: {listed}", "give every parameter the shape of the layer, or a scalar")
        return None
    for field in ("tau", "tau_mem", "tau_syn"):
        if field in values and np.any(values[field] <= 0):
            index = int(np.flatnonzero(values[field].reshape(-1) <= 0)[0])
            value = values[field].reshape(-1)[index]
            findings.error(name, f"{field}[{index}] is {value:g}", "a time constant must be positive")
            return None
    if "tau_mem" in values:
        values["tau"] = values.pop("tau_mem")
    shape = max(shapes.values(), key=len, default=())
    if shapes and len(shapes) < len(values):
        scalars = [field for field, array in values.items() if not array.ndim and field in fields]
        if scalars:
            findings.repair(name, f"scalar {', '.join(scalars)} taken for all {size(shape)} neurons")
    return Neuron(name, kind, shape, **{field: np.broadcast_to(array.reshape(shape if array.ndim else ()), shape) for field, array in values.items()})


def _array(name: str, field: str, fields: dict[str, Any], findings: Findings) -> F64 | None:
    """A finite float64 array, or None with an error in `findings`."""
    if field not in fields:
        findings.error(name, f"no {field} stored", f"export the node with its {field}")
        return None
    array = np.asarray(fields[field])
    if array.dtype.kind not in "fiub":
        findings.error(name, f"{field} is not a number", f"store {field} as a numeric array")
        return None
    array = array.astype(np.float64)
    if not np.all(np.isfinite(array)):
        index = tuple(int(i) for i in np.argwhere(~np.isfinite(array))[0])
        where = f"[{', '.join(map(str, index))}]" if index else ""
        findings.error(name, f"{field}{where} is {array[index]:g}", "every parameter must be a finite number: check the training")
        return None
    return array


def _is_absent(bias: Any) -> bool:
    """A bias that exporters write for "none": nothing, an empty dataset, None as text, or a scalar False."""
    if bias is None or isinstance(bias, h5py.Empty):
        return True
    if isinstance(bias, (bytes, str)):
        return _text(bias) in ("None", "False", "")
    return np.asarray(bias).dtype.kind == "b" and not np.any(bias)


def _without_batch(shape: Shape, name: str, field: str, findings: Findings) -> Shape:
    """Drops a leading 1 where a batch dimension is the only reading: rank 2 and 4 are no layer's own."""
    if len(shape) in (2, 4) and shape[0] == 1:
        findings.repair(name, f"leading batch of 1 dropped from {field} {shape}")
        return shape[1:]
    return shape


# -- Graph --------------------------------------------------------------------------------------------------------------------


def _edges(raw: _Raw, findings: Findings) -> tuple[Edge, ...]:
    for edge in raw.edges:
        for end in edge:
            if end not in raw.nodes:
                findings.error(end, f"edge {edge[0]} -> {edge[1]} names a node that is not in the file", "export the graph again, or remove the edge")
    for edge in sorted(edge for edge, count in collections.Counter(raw.edges).items() if count > 1):
        findings.warn(edge[1], f"edge {edge[0]} -> {edge[1]} is stored more than once, taken once")
    return tuple(sorted(set(raw.edges)))


def _resolve_sizes(nodes: dict[str, Node], edges: tuple[Edge, ...], findings: Findings) -> dict[str, Node]:
    """Gives neurons with scalar parameters the size of a neighbour: of the first predecessor that has one, else of a successor."""
    nodes = dict(nodes)
    unsized = {name for name, node in nodes.items() if isinstance(node, Neuron) and node.shape == ()}
    while unsized:
        for name in sorted(unsized):
            shapes = [nodes[source].output_shape for source, target in edges if target == name and source not in unsized]
            shapes += [nodes[target].input_shape for source, target in edges if source == name and target not in unsized]
            if shapes:
                neuron = nodes[name]
                assert isinstance(neuron, Neuron)
                values = {field.name: getattr(neuron, field.name) for field in dataclasses.fields(neuron)}
                arrays = {field: np.broadcast_to(array, shapes[0]) for field, array in values.items() if isinstance(array, np.ndarray)}
                nodes[name] = dataclasses.replace(neuron, shape=shapes[0], **arrays)
                findings.repair(name, f"scalar parameters taken for all {size(shapes[0])} neurons, the size of its neighbour")
                unsized.discard(name)
                break
        else:
            for name in sorted(unsized):
                findings.error(name, "all parameters are scalars and no neighbour says the size", "store the parameters with the layer's shape")
            return nodes
    return nodes


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
            remedy = "its weight looks transposed: store it as (outputs, inputs)" if transposed else "make the shapes agree"
            problem = f"edge {source} -> {target}: {source} gives {_dims(given)} values, {target} takes {_dims(wanted)}"
            mismatches.append((not transposed, target, problem, remedy))
    for _, target, problem, remedy in sorted(mismatches):  # a transposed weight first: it explains the others
        findings.error(target, problem, remedy)
    fed = {target for _, target in network.edges}
    for name, node in network.nodes.items():
        needs_input = isinstance(node, Linear) or (isinstance(node, Terminal) and node.kind == "Output")
        if needs_input and name not in fed:
            findings.error(name, f"nothing feeds this {node.kind}", "connect it, or remove it")


def _dims(shape: Shape) -> str:
    return "x".join(map(str, shape))


def _metadata_dt(raw: _Raw, findings: Findings) -> float | None:
    value = raw.metadata.get("dt")
    if value is None:
        return None
    array = np.asarray(value)
    if array.size != 1 or array.dtype.kind not in "fiu" or not np.all(np.isfinite(array)) or np.any(array <= 0):
        findings.error("", "the graph's metadata key dt is not a positive number", "correct it, or remove it and pass dt=")
        return None
    return float(array.reshape(()))
