# SPDX-License-Identifier: Apache-2.0
"""The HDF5 of a `.nir` file -> one flat graph of plain values: nested graphs are taken apart, nothing else is interpreted."""

from __future__ import annotations

import collections
import dataclasses
import hashlib
from typing import Any

import h5py
import numpy as np

from .errors import Findings, Unreadable
from .network import Edge

MAGIC = b"\x89HDF\r\n\x1a\n"
MOST_VALUES = 1 << 28  # of a file, and of a layer: a damaged shape must not ask for all memory there is
MOST_LEVELS = 200
PASSAGE = "passage"  # our type for the Input or Output of a nested graph: values pass through


@dataclasses.dataclass(frozen=True)
class RawGraph:
    """Fields by node name ("sub.node" inside a nested graph), edges sorted and without duplicates, the graph's metadata."""

    sha256: str
    nodes: dict[str, dict[str, Any]]
    edges: tuple[Edge, ...]
    metadata: dict[str, Any]


def load(file: str, findings: Findings) -> RawGraph:
    """Raises `Unreadable` where there is no NIR graph to read; edges that name nothing become errors in `findings`."""
    try:
        with open(file, "rb") as stream:
            content = stream.read()
    except FileNotFoundError:
        raise Unreadable(file, "", "no such file", "check the path") from None
    except OSError as error:
        raise Unreadable(file, "", f"cannot be read ({error.strerror})", "check the path and its permissions") from None
    if not content.startswith(MAGIC):
        raise Unreadable(file, "", _what_it_is(content), "export the network with nir.write")
    try:
        with h5py.File(file, "r") as tree:
            if not isinstance(tree.get("node"), h5py.Group):
                raise _damaged(file, "", "an HDF5 file without a NIR graph")
            graph = _Tree(file).fields(tree["node"], ())
    except (OSError, RuntimeError, KeyError, TypeError, ValueError):
        raise Unreadable(file, "", "truncated or damaged HDF5 file", "copy or export it again") from None
    nodes: dict[str, dict[str, Any]] = {}
    edges: list[Edge] = []
    _flatten("", graph, nodes, edges, findings)
    metadata = graph.get("metadata", {})
    if not isinstance(metadata, dict):
        raise _damaged(file, "", "the graph's metadata is not a group of keys")
    for (source, target), count in sorted(collections.Counter(edges).items()):
        if count > 1:
            findings.warn(target, f"edge {source} -> {target} is stored more than once, taken once")
    return RawGraph(
        hashlib.sha256(content).hexdigest(), dict(sorted(nodes.items())), tuple(sorted(set(edges))), metadata
    )


def text(value: Any) -> str:
    """A string as HDF5 holds it."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def kind_of(fields: dict[str, Any]) -> str:
    """A node's type, "" where none is stored."""
    stored = fields.get("type", "")
    return text(stored) if isinstance(stored, (bytes, str)) else ""


def _what_it_is(content: bytes) -> str:
    """Names the usual things that are found in place of a NIR file."""
    if not content:
        return "an empty file, not a NIR file"
    if content.startswith(b"version https://git-lfs"):
        return "a Git LFS pointer, not the NIR file itself"
    if content.startswith((b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05", b"PK\x03\x04")):
        return "a pickle or PyTorch checkpoint, not a NIR file"
    return "not an HDF5 file, so not a NIR file"


def _damaged(file: str, node: str, problem: str) -> Unreadable:
    return Unreadable(file, node, problem, "export the network with nir.write")


class _Tree:
    """Reads groups of a file that are a tree: links could make one without an end, and a data set that was never written takes no bytes."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.values = 0
        self.seen: set[tuple[int, int]] = set()

    def fields(self, group: Any, path: tuple[str, ...]) -> dict[str, Any]:
        object_ = h5py.h5o.get_info(group.id)
        if (object_.fileno, object_.addr) in self.seen:
            raise _damaged(self.file, "", f"the group {'/'.join(path)} is a link to one that has another place")
        if len(path) > MOST_LEVELS:
            raise _damaged(self.file, "", f"groups are nested more than {MOST_LEVELS} deep")
        self.seen.add((object_.fileno, object_.addr))
        return {key: self.field(item, (*path, key)) for key, item in group.items()}

    def field(self, item: Any, path: tuple[str, ...]) -> Any:
        if isinstance(item, h5py.Group):
            return self.fields(item, path)
        if not isinstance(item, h5py.Dataset):
            raise _damaged(self.file, "", f"{'/'.join(path)} is neither a group nor a data set")
        self.values += item.size or 0
        if self.values > MOST_VALUES:
            problem = f"{item.size:,d} values of {'/'.join(path)} are more than any board holds"
            raise _damaged(self.file, "", problem)
        return item[()]


def _flatten(
    prefix: str, graph: dict[str, Any], nodes: dict[str, dict[str, Any]], edges: list[Edge], findings: Findings
) -> None:
    """Adds a graph's nodes under `prefix` + name. Edges of a nested graph go to its Input and come from its Output."""
    file, place = findings.file, prefix.removesuffix(".")
    members = graph.get("nodes")
    if not isinstance(members, dict):
        raise _damaged(file, place, "a graph without nodes")
    entries: dict[str, dict[str, list[str]]] = {}
    for name, fields in members.items():
        full = prefix + name
        if not isinstance(fields, dict):
            raise _damaged(file, full, "not a group of fields")
        kind = kind_of(fields)
        if kind == "NIRGraph":
            _flatten(full + ".", fields, nodes, edges, findings)
            inside = fields["nodes"].items()
            entries[name] = {
                word: [f"{full}.{inner}" for inner, fields in inside if kind_of(fields) == word]
                for word in ("Input", "Output")
            }
            continue
        if full in nodes:
            findings.error(
                full, "a nested graph and a node beside it give two nodes this one name", "rename one of the two"
            )
        nodes[full] = {**fields, "type": PASSAGE, "of": kind} if prefix and kind in ("Input", "Output") else fields

    def end(name: str, word: str, edge: str) -> str | None:
        if name not in members:
            findings.error(
                prefix + name,
                f"edge {edge} names a node that is not in the file",
                "export the graph again, or remove the edge",
            )
            return None
        if name not in entries:
            return prefix + name
        inner = entries[name][word]
        if len(inner) != 1:
            findings.error(
                prefix + name,
                f"edge {edge}: the nested graph has {len(inner)} {word} nodes, not one",
                f"give it one {word}",
            )
            return None
        return inner[0]

    for pair in _pairs(file, place, graph.get("edges")):
        source, target = text(pair[0]), text(pair[1])
        shown = f"{prefix}{source} -> {prefix}{target}"
        ends = end(source, "Output", shown), end(target, "Input", shown)
        if ends[0] is not None and ends[1] is not None:
            edges.append((ends[0], ends[1]))


def _pairs(file: str, place: str, edges: Any) -> list[Any]:
    """Pairs of names, as HDF5 holds strings; an empty array may have any shape."""
    array = np.asarray(edges)
    names = all(isinstance(name, (bytes, str)) for name in array.reshape(-1).tolist())
    if edges is None or not names or (array.size and (array.ndim != 2 or array.shape[1] != 2)):
        raise _damaged(file, place, "the graph's edges are not pairs of node names")
    return list(array) if array.size else []
