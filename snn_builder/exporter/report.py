# SPDX-License-Identifier: Apache-2.0
"""`N.json`: everything a tool may want to know of a build."""

from __future__ import annotations

import json
import os
from typing import Any

from .. import __version__
from ..errors import Findings
from ..network import Conv, Linear, Neuron, Node, Pool, Scale, size
from ..program import Program
from ..ranges import Decisions
from .header import INTERFACE
from .layout import C_TYPES, Layout, Variable, element_of

CLASS_RULE = "argmax of the outputs summed over a sample's steps, lowest index on ties"


def report_text(program: Program, layout: Layout, decisions: Decisions, findings: Findings) -> str:
    """The text; sorted as the data flows."""
    options = program.options
    report = {
        "generator": f"snn-builder {__version__}",
        "interface": INTERFACE,
        "name": options.name,
        "source": os.path.basename(program.network.file),
        "sha256": program.network.sha256,
        "options": {
            "quantize": options.quantize,
            "reset": options.reset,
            "kernel": options.kernel,
            "form": options.form,
            "input_scale": options.input_scale,
            "weights_section": options.weights_section,
        },
        "dt": program.discrete.dt,
        "dt_from": program.discrete.dt_from,
        "inputs": [_terminal(program, variable) for variable in layout.inputs],
        "outputs": [_terminal(program, variable) for variable in layout.outputs],
        "class_rule": CLASS_RULE,
        "layers": [_layer(program, layout, decisions, name) for name in layout.live],
        "left_out": sorted(set(program.network.nodes) - set(layout.live)),
        "previous_step_edges": sorted(map(list, program.schedule.previous)),
        "state_bytes": layout.state_bytes,
        "constant_bytes": layout.constant_bytes,
        "findings": [
            {"level": item.level, "node": item.node, "problem": item.problem, "remedy": item.remedy}
            for item in findings.items
        ],
    }
    return json.dumps(report, indent=1) + "\n"


def _terminal(program: Program, variable: Variable) -> dict[str, Any]:
    return {
        "node": variable.node,
        "argument": variable.name,
        "shape": list(program.network.nodes[variable.node].output_shape),
        "type": C_TYPES[variable.element],
        "frac_bits": program.frac.get(variable.node, 0),
    }


def _layer(program: Program, layout: Layout, decisions: Decisions, name: str) -> dict[str, Any]:
    node = program.network.nodes[name]
    row: dict[str, Any] = {
        "node": name,
        "kind": node.kind,
        "input_shape": list(node.input_shape),
        "output_shape": list(node.output_shape),
        "of": [{"node": source, "previous_step": previous} for source, previous in program.inputs(name)],
        "type": C_TYPES[element_of(program, name)],
        "frac_bits": program.frac.get(name, 0),
        "operations": _operations(node),
        "state_bytes": sum(variable.bytes for variable in layout.states if variable.node == name),
        "constant_bytes": sum(constant.bytes for constant in layout.constants.values() if constant.node == name),
    }
    if name in decisions.ranges:
        row["range"] = [decisions.ranges[name].low, decisions.ranges[name].high]
    if isinstance(node, (Linear, Conv, Scale)) and program.options.quantize:
        row |= {
            "w_scale": program.synapses[name].w_scale,
            "accumulator_bits": decisions.accumulator_bits[name],
            "rescale_saturates": decisions.rescale_saturates[name],
        }
    if isinstance(node, Neuron) and program.options.quantize:
        row |= {"state_saturates": decisions.state_saturates[name], "product_bits": decisions.product_bits[name]}
    return row


def _operations(node: Node) -> int:
    """What one step takes at most: multiplications of a synapse, additions of a pool, else elements to update or move."""
    count = size(node.output_shape)
    if isinstance(node, Linear):
        return count * size(node.input_shape)
    if isinstance(node, Conv):
        return count * size(node.weight.shape[1:])
    return count * size(node.kernel) if isinstance(node, Pool) else count
