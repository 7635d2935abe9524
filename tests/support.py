# SPDX-License-Identifier: Apache-2.0
"""What several test files need: small NIR files written field by field, and the data sets with their options."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

ROOT = Path(__file__).resolve().parent.parent
CONSTRUCTED = ROOT / "tests" / "constructed"
CORPUS = ROOT.parent / "shared" / "corpus"

needs_corpus = pytest.mark.skipif(
    not CORPUS.is_dir(), reason="the corpus of public .nir files is not beside this checkout"
)

CONSTRUCTED_NAMES = sorted(path.name for path in CONSTRUCTED.iterdir())
CONSTRUCTED_DT = 0.001

# Real files with inputs and expected outputs: the dt to pass, None where the file says it.
CORPUS_DT = {
    "oxford": None,
    "mnist_mlp": None,
    "recurrent_per_neuron": None,
    "braille_bias_zero": None,
    "braille_v2a": 1e-4,
    "lif_norse": 1e-4,
    "lif_rockpool": 1e-4,
    "scnn_mnist": None,
    "tinynet": None,
}


def reset_of(name: str) -> str:
    return "subtract" if name == "subtract" else "zero"


def write_nir(
    path: Path, nodes: dict[str, dict[str, Any]], edges: list[tuple[str, str]], metadata: dict[str, Any] | None = None
) -> Path:
    """A NIR file with exactly these fields; a nested graph has the fields type, nodes and edges."""
    with h5py.File(path, "w") as tree:
        graph = tree.create_group("node")
        _write_graph(graph, nodes, edges)
        if metadata is not None:
            entries = graph.create_group("metadata")
            for key, value in metadata.items():
                entries[key] = value
    return path


def _write_graph(graph: h5py.Group, nodes: dict[str, dict[str, Any]], edges: list[tuple[str, str]]) -> None:
    graph["type"] = "NIRGraph"
    group = graph.create_group("nodes")
    for name, fields in nodes.items():
        node = group.create_group(name)
        if fields["type"] == "NIRGraph":
            _write_graph(node, fields["nodes"], fields["edges"])
            continue
        for field, value in fields.items():
            node[field] = value
    graph.create_dataset("edges", data=np.array(edges, dtype=object).reshape(-1, 2), dtype=h5py.string_dtype())


def terminal(kind: str, *shape: int) -> dict[str, Any]:
    return {"type": kind, "shape": np.array(shape)}


def lif(count: int, **changed: Any) -> dict[str, Any]:
    """A LIF layer with tau 10 dt for dt = 0.001, gain 1, threshold 1."""
    fields = {
        "type": "LIF",
        "tau": np.full(count, 0.01),
        "r": np.full(count, 10.0),
        "v_leak": np.zeros(count),
        "v_threshold": np.ones(count),
        "v_reset": np.zeros(count),
    }
    return fields | changed


def chain(path: Path, weight: np.ndarray, neuron: dict[str, Any], bias: np.ndarray | None = None) -> Path:
    """input -> fc -> neuron -> output."""
    outputs, inputs = weight.shape
    synapse: dict[str, Any] = {"type": "Linear", "weight": weight}
    if bias is not None:
        synapse = {"type": "Affine", "weight": weight, "bias": bias}
    nodes = {"input": terminal("Input", inputs), "fc": synapse, "neuron": neuron, "output": terminal("Output", outputs)}
    return write_nir(path, nodes, [("input", "fc"), ("fc", "neuron"), ("neuron", "output")])


def two_ends(path: Path) -> Path:
    """Two inputs, and two outputs: of two types in integer mode, in float with fractions."""
    nodes = {
        "right": terminal("Input", 2), "left": terminal("Input", 3), "vote": terminal("Output", 1), "echo": terminal("Output", 3),
        "fc_l": {"type": "Linear", "weight": np.array([[1.0, 2.0, 4.0]])}, "fc_r": {"type": "Linear", "weight": np.array([[0.5, 0.25]])},
        "n": {"type": "I", "r": np.ones(1)},
    }  # fmt: skip
    edges = [("left", "fc_l"), ("right", "fc_r"), ("fc_l", "n"), ("fc_r", "n"), ("n", "vote"), ("left", "echo")]
    return write_nir(path, nodes, edges)
