# SPDX-License-Identifier: Apache-2.0
"""Reading: what is repaired, and what is refused with which line."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import nir
import numpy as np
import pytest
from support import CONSTRUCTED, CONSTRUCTED_NAMES, CORPUS, chain, lif, needs_corpus, terminal, write_nir

from snn_builder.errors import Findings, Refused, SnnError, Unreadable
from snn_builder.network import Linear, Neuron
from snn_builder.nodes import SUPPORTED
from snn_builder.reader import read


def refusal(path: Path, kind: type[SnnError] = Refused) -> str:
    """The one line, without the path in front."""
    with pytest.raises(kind) as caught:
        read(path)
    line = str(caught.value)
    assert line.startswith(f"{path}: ") and "\n" not in line
    return line[len(f"{path}: ") :]


def small(**changed: Any) -> dict[str, dict[str, Any]]:
    nodes = {
        "input": terminal("Input", 3),
        "fc": {"type": "Affine", "weight": np.ones((2, 3)), "bias": np.zeros(2)},
        "lif": lif(2),
        "output": terminal("Output", 2),
    }
    return nodes | changed


def conv(size: int, padding: int = 0) -> dict[str, Any]:
    stored = {
        "input_shape": np.array([size, size]),
        "padding": np.array([padding, padding]),
        "stride": np.array([1, 1]),
    }
    return {"type": "Conv2d", "weight": np.ones((1, 1, 1, 1)), **stored}


EDGES = [("input", "fc"), ("fc", "lif"), ("lif", "output")]


# -- Files that are none ------------------------------------------------------------------------------------------------------


def test_missing_file(tmp_path: Path) -> None:
    assert refusal(tmp_path / "none.nir", Unreadable) == "no such file; check the path"


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"", "an empty file, not a NIR file"),
        (b"hello", "not an HDF5 file, so not a NIR file"),
        (b"version https://git-lfs.github.com/spec/v1\n", "a Git LFS pointer, not the NIR file itself"),
        (b"\x80\x04\x95", "a pickle or PyTorch checkpoint, not a NIR file"),
        (b"PK\x03\x04", "a pickle or PyTorch checkpoint, not a NIR file"),
    ],
)
def test_not_hdf5(tmp_path: Path, content: bytes, what: str) -> None:
    path = tmp_path / "net.nir"
    path.write_bytes(content)
    assert refusal(path, Unreadable) == f"{what}; export the network with nir.write"


def test_truncated(tmp_path: Path) -> None:
    path = chain(tmp_path / "net.nir", np.ones((20, 30)), lif(20))
    content = path.read_bytes()
    for length in range(8, len(content), 997):
        path.write_bytes(content[:length])
        assert refusal(path, Unreadable) == "truncated or damaged HDF5 file; copy or export it again"


def test_hdf5_without_a_graph(tmp_path: Path) -> None:
    path = tmp_path / "net.nir"
    with h5py.File(path, "w") as tree:
        tree["something"] = 1
    assert refusal(path, Unreadable) == "an HDF5 file without a NIR graph; export the network with nir.write"


def without(tree: h5py.File, name: str) -> h5py.File:
    del tree[name]
    return tree


def nested(group: h5py.Group, depth: int) -> None:
    for _ in range(depth):
        group = group.create_group("deeper")


def links(group: h5py.Group) -> None:
    """2^40 groups in a few hundred bytes."""
    for _ in range(40):
        inner = group.create_group("a")
        group["b"] = inner
        group = inner


DAMAGE: dict[str, tuple[Callable[[h5py.File], Any], str]] = {
    "edges": (lambda tree: without(tree, "node/edges"), "the graph's edges are not pairs of node names"),
    "threes": (
        lambda tree: without(tree, "node/edges")["node"].__setitem__("edges", np.full((2, 3), b"fc")),
        "the graph's edges are not pairs of node names",
    ),
    "numbers": (
        lambda tree: without(tree, "node/edges")["node"].__setitem__("edges", np.zeros((3, 2))),
        "the graph's edges are not pairs of node names",
    ),
    "group": (
        lambda tree: without(tree, "node/edges").create_group("node/edges"),
        "the graph's edges are not pairs of node names",
    ),
    "metadata": (lambda tree: tree["node"].__setitem__("metadata", 1), "the graph's metadata is not a group of keys"),
    "nodes": (lambda tree: without(tree, "node/nodes"), "a graph without nodes"),
    "node": (
        lambda tree: without(tree, "node/nodes/fc")["node/nodes"].__setitem__("fc", 1),
        "fc: not a group of fields",
    ),
    "deep": (lambda tree: nested(tree["node"], 2000), "groups are nested more than 200 deep"),
    "loop": (lambda tree: tree["node"].__setitem__("again", tree["node"]), "the group again is a link to one that has another place"),
    "links": (lambda tree: links(tree["node"]), f"the group {'/'.join('a' * 39 + 'b')} is a link to one that has another place"),
    "dangling": (
        lambda tree: without(tree, "node/nodes/fc/weight")["node/nodes/fc"].__setitem__("weight", h5py.SoftLink("/no")),
        "nodes/fc/weight is neither a group nor a data set",
    ),
    "unwritten": (
        lambda tree: without(tree, "node/nodes/fc/weight").create_dataset("node/nodes/fc/weight", (2**45,), "f4"),
        "35,184,372,088,832 values of nodes/fc/weight are more than any board holds",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", DAMAGE)
def test_damage_is_named(tmp_path: Path, what: str) -> None:
    path = write_nir(tmp_path / "net.nir", small(), EDGES)
    change, line = DAMAGE[what]
    with h5py.File(path, "a") as tree:
        change(tree)
    assert refusal(path, Unreadable) == f"{line}; export the network with nir.write"


def test_a_nested_graph_without_nodes(tmp_path: Path) -> None:
    path = write_nir(tmp_path / "net.nir", small(fc={"type": "NIRGraph", "nodes": {}, "edges": []}), EDGES)
    with h5py.File(path, "a") as tree:
        del tree["node/nodes/fc/nodes"]
    assert refusal(path, Unreadable) == "fc: a graph without nodes; export the network with nir.write"


def test_a_graph_without_edges_has_none(tmp_path: Path) -> None:
    path = write_nir(tmp_path / "net.nir", small(), EDGES)
    with h5py.File(path, "a") as tree:
        del tree["node/edges"]
        tree["node/edges"] = np.zeros(0)
    assert refusal(path) == "fc: nothing feeds this Affine; connect it, or remove it"


# -- Refused nodes and edges --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changed", "line"),
    [
        ({"fc": {"type": "Magic"}}, "fc: node type Magic is not supported; use " + ", ".join(SUPPORTED)),
        ({"fc": {"type": ""}}, "fc: no type stored; export the node with its type"),
        ({"fc": {"type": 7}}, "fc: no type stored; export the node with its type"),
        ({"fc": conv(2**40)}, "fc: 1x1099511627776x1099511627776 elements are more than any board holds; correct its shape"),
        ({"fc": conv(1, padding=2**20)}, "fc: 1x2097153x2097153 elements are more than any board holds; correct its shape"),
        ({"fc": {"type": "Linear"}}, "fc: no weight stored; export the node with its weight"),
        ({"fc": {"type": "Linear", "weight": np.array([[1.0, np.nan, 1], [1, 1, 1]])}}, "fc: weight[0, 1] is nan; every parameter must be a finite number: check the training"),
        ({"fc": {"type": "Linear", "weight": np.array([[1.0, 1, 1], [1, -np.inf, 1]])}}, "fc: weight[1, 1] is -inf; every parameter must be a finite number: check the training"),
        ({"fc": {"type": "Linear", "weight": np.ones(3)}}, "fc: weight has shape (3,); give it (outputs, inputs)"),
        ({"fc": {"type": "Linear", "weight": np.ones((2, 4))}}, "fc: edge input -> fc: input gives 3 values, fc takes 4; make the shapes agree"),
        ({"fc": {"type": "Linear", "weight": np.ones((3, 2))}}, "fc: edge input -> fc: input gives 3 values, fc takes 2; its weight looks transposed: store it as (outputs, inputs)"),
        ({"fc": {"type": "Affine", "weight": np.ones((2, 3)), "bias": np.ones(3)}}, "fc: bias has 3 values for 2 outputs; give one bias per output"),
        ({"fc": {"type": "Linear", "weight": np.ones((2, 3)), "bias": np.ones(2)}}, "fc: a Linear node holds a bias, which NIR's Linear has not; make it an Affine node, or remove the bias"),
        ({"lif": lif(2, tau=np.array([0.01, -0.02]))}, "lif: tau[1] is -0.02; a time constant must be positive"),
        ({"lif": lif(2, tau=np.array([0.0, 0.02]))}, "lif: tau[0] is 0; a time constant must be positive"),
        ({"lif": lif(2, r=np.ones(3))}, "lif: parameters of different sizes: tau (2,), r (3,), v_leak (2,), v_threshold (2,), v_reset (2,); give every parameter the shape of the layer, or a scalar"),
        ({"lif": {"type": "LIF", "r": np.ones(2)}}, "lif: no tau stored; export the node with its tau"),
        ({"lif": lif(2, r="much")}, "lif: r is not a number; store r as a numeric array"),
        ({"input": {"type": "Input"}}, "input: Input without a usable shape; write its shape as positive integers"),
        ({"input": terminal("Input", 2**40)}, "input: 1099511627776 elements are more than any board holds; correct its shape"),
        ({"output": terminal("Output", 5)}, "output: edge lif -> output: lif gives 2 values, output takes 5; make the shapes agree"),
    ],
)  # fmt: skip
def test_refused_nodes(tmp_path: Path, changed: dict[str, Any], line: str) -> None:
    assert refusal(write_nir(tmp_path / "net.nir", small(**changed), EDGES)) == line


@pytest.mark.parametrize(
    ("edges", "line"),
    [
        (
            [*EDGES, ("lif", "ghost")],
            "ghost: edge lif -> ghost names a node that is not in the file; export the graph again, or remove the edge",
        ),
        ([*EDGES, ("lif", "input")], "input: edge lif -> input leads into an Input; remove the edge"),
        ([*EDGES, ("output", "lif")], "output: edge output -> lif comes out of an Output; remove the edge"),
        (EDGES[1:], "fc: nothing feeds this Affine; connect it, or remove it"),
        (EDGES[:-1], "output: nothing feeds this Output; connect it, or remove it"),
    ],
)
def test_refused_edges(tmp_path: Path, edges: list[tuple[str, str]], line: str) -> None:
    assert refusal(write_nir(tmp_path / "net.nir", small(), edges)) == line


@pytest.mark.parametrize("kind", ["Input", "Output"])
def test_no_terminal(tmp_path: Path, kind: str) -> None:
    nodes = small()
    del nodes[kind.lower()]
    path = write_nir(tmp_path / "net.nir", nodes, [edge for edge in EDGES if kind.lower() not in edge])
    assert refusal(path).startswith(f"the graph has no {kind} node; export it with an {kind}")


def test_a_name_with_a_newline_stays_one_line(tmp_path: Path) -> None:
    nodes = small() | {"bad\nname": {"type": "Magic"}}
    assert refusal(write_nir(tmp_path / "net.nir", nodes, EDGES)).startswith(
        "bad?name: node type Magic is not supported; use "
    )


def test_all_errors_are_collected(tmp_path: Path) -> None:
    nodes = small(fc={"type": "Magic"}, lif=lif(2, tau=np.array([1, -1])))
    findings = Findings("x")
    with pytest.raises(Refused):
        read(write_nir(tmp_path / "net.nir", nodes, EDGES), findings)
    assert [(item.level, item.node) for item in findings.items] == [("error", "fc"), ("error", "lif")]


# -- Repairs ------------------------------------------------------------------------------------------------------------------


def test_defaults_and_scalars(tmp_path: Path) -> None:
    cuba = {"type": "CubaLIF", "tau_mem": 0.01, "tau_syn": 0.02, "r": 1.0, "v_threshold": 1.0}
    findings = Findings("x")
    network = read(write_nir(tmp_path / "net.nir", small(lif=cuba), EDGES), findings)
    neuron = network.nodes["lif"]
    assert isinstance(neuron, Neuron) and neuron.shape == (2,)
    assert neuron.tau is not None and neuron.tau.tolist() == [0.01, 0.01]
    assert neuron.w_in is not None and neuron.w_in.tolist() == [1, 1]
    assert neuron.v_leak is not None and neuron.v_leak.tolist() == [0, 0]
    assert neuron.v_reset is not None and neuron.v_reset.tolist() == [0, 0]
    assert [item.problem for item in findings.items] == [
        "no w_in stored, taken as 1",
        "no v_leak stored, taken as 0",
        "no v_reset stored, taken as 0",
        "scalar parameters taken for all 2 values, the size of its neighbour",
    ]


@pytest.mark.parametrize("bias", [False, "None", h5py.Empty("f4")], ids=["False", "None", "empty"])
def test_bias_that_means_none(tmp_path: Path, bias: Any) -> None:
    network = read(
        write_nir(tmp_path / "net.nir", small(fc={"type": "Affine", "weight": np.ones((2, 3)), "bias": bias}), EDGES)
    )
    synapse = network.nodes["fc"]
    assert isinstance(synapse, Linear) and synapse.bias is None


def test_a_scalar_bias_is_for_all(tmp_path: Path) -> None:
    network = read(
        write_nir(tmp_path / "net.nir", small(fc={"type": "Affine", "weight": np.ones((2, 3)), "bias": 0.5}), EDGES)
    )
    synapse = network.nodes["fc"]
    assert isinstance(synapse, Linear) and synapse.bias is not None and synapse.bias.tolist() == [0.5, 0.5]


def test_leading_batch_is_dropped(tmp_path: Path) -> None:
    fields = {key: value.reshape(1, 2) if isinstance(value, np.ndarray) else value for key, value in lif(2).items()}
    network = read(write_nir(tmp_path / "net.nir", small(lif=fields, output=terminal("Output", 1, 2)), EDGES))
    assert network.nodes["lif"].output_shape == network.nodes["output"].output_shape == (2,)


def test_duplicate_edge_is_one(tmp_path: Path) -> None:
    findings = Findings("x")
    network = read(write_nir(tmp_path / "net.nir", small(), [*EDGES, EDGES[1]]), findings)
    assert network.edges == tuple(sorted(EDGES))
    assert [item.problem for item in findings.items] == ["edge fc -> lif is stored more than once, taken once"]


def test_dt_in_metadata(tmp_path: Path) -> None:
    assert read(write_nir(tmp_path / "net.nir", small(), EDGES, {"dt": 0.5})).dt == 0.5
    assert refusal(write_nir(tmp_path / "bad.nir", small(), EDGES, {"dt": -1.0})) == (
        "the graph's metadata key dt is not a positive number; correct it, or remove it and pass dt="
    )


def test_file_order_does_not_matter(tmp_path: Path) -> None:
    forward = read(write_nir(tmp_path / "a.nir", small(), EDGES))
    backward = read(write_nir(tmp_path / "b.nir", dict(reversed(small().items())), EDGES[::-1]))
    assert list(forward.nodes) == list(backward.nodes) and forward.edges == backward.edges


def test_shapes_go_through_long_chains(tmp_path: Path) -> None:
    """Against their names' order, where every node waits for the one before it."""
    names = [f"n{index:04}" for index in reversed(range(1000))]
    nodes = small() | {name: {"type": "Flatten", "start_dim": 0} for name in names}
    path = ["input", "fc", *names, "lif", "output"]
    start = time.monotonic()
    network = read(write_nir(tmp_path / "net.nir", nodes, list(itertools.pairwise(path))))
    assert {network.nodes[name].output_shape for name in names} == {(2,)}
    assert network.predecessors("lif") == ["n0000"] and network.successors("fc") == ["n0999"]
    assert time.monotonic() - start < 60  # minutes where a node looks at every edge


@needs_corpus
@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("srnn_leak_reset", "cu1: tau_mem[1] is -0.0831663; a time constant must be positive"),
        ("srnn_no_reset", "cu1: tau_mem[0] is -0.471835; a time constant must be positive"),
    ],
)
def test_corpus_refusals(name: str, line: str) -> None:
    assert refusal(CORPUS / name / f"{name}.nir") == line


@pytest.mark.parametrize("name", CONSTRUCTED_NAMES)
def test_what_nir_reads_we_read_alike(name: str) -> None:
    """Where NIR's own reader takes a file, node types, edges and every parameter are the same."""
    path = CONSTRUCTED / name / f"{name}.nir"
    theirs, ours = nir.read(path), read(path)
    assert {key: type(node).__name__ for key, node in theirs.nodes.items()} == {
        key: node.kind for key, node in ours.nodes.items()
    }
    assert set(theirs.edges) == set(ours.edges)
    compared = 0
    for key, node in theirs.nodes.items():
        for field in (
            "weight",
            "bias",
            "r",
            "tau",
            "tau_syn",
            "w_in",
            "v_leak",
            "v_threshold",
            "v_reset",
            "scale",
            "threshold",
            "delay",
        ):
            if hasattr(node, field):
                np.testing.assert_array_equal(np.asarray(getattr(node, field)), getattr(ours.nodes[key], field))
                compared += 1
        if hasattr(node, "tau_mem"):
            np.testing.assert_array_equal(node.tau_mem, ours.nodes[key].tau)
    assert compared >= 2
