# SPDX-License-Identifier: Apache-2.0
"""What stands in memory: states, weights, tables and terminals with their C names, types, shapes and order.

Values of shape (C, H, W) or (C, L) are stored with the channels last (DESIGN 4.4); weights and tables are put into that order here, so
that the kernel never permutes at run time but at the network's own terminals, whose arrays are in NIR's layout.
"""

from __future__ import annotations

import dataclasses
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..names import CNames, mangle, printable
from ..network import Conv, Delay, Flatten, Linear, Network, Neuron, Scale, Shape, Threshold, size, stored_order
from ..program import STATE_FRAC, Array, Program, is_int8, summed_order
from .event import event_weights, index_element, keeps_list

ELEMENT_BYTES = {"i8": 1, "i32": 4, "ui16": 2, "ui32": 4, "f32": 4}
C_TYPES = {"i8": "int8_t", "i32": "int32_t", "ui16": "uint16_t", "ui32": "uint32_t", "f32": "float"}


@dataclasses.dataclass(frozen=True)
class Variable:
    """One array of the state struct, or one terminal: C name (without prefix), shape, element type, the node it belongs to."""

    name: str
    node: str
    shape: Shape
    element: str

    @property
    def bytes(self) -> int:
        return size(self.shape) * ELEMENT_BYTES[self.element]


@dataclasses.dataclass(frozen=True)
class Constant(Variable):
    """One array of weights, biases or per-neuron parameters, with its values and what they mean."""

    values: Array
    meaning: str


# A parameter of a layer: one value for all, as (float, integer), or a table.
Parameter: TypeAlias = "tuple[float, int] | Constant"


@dataclasses.dataclass(frozen=True)
class Layout:
    """`live`: the nodes that reach an Output, in execution order; only they are built. `feedback`: per neuron whose value is read a step
    later, whether its own array may hold it ("early": every reader runs before it is overwritten), a copy is kept ("late"), or the
    spikes are kept as a list ("list")."""

    live: tuple[str, ...]
    feedback: dict[str, str]
    states: list[Variable]
    constants: dict[tuple[str, str], Constant]
    parameters: dict[tuple[str, str], Parameter]
    inputs: list[Variable]
    outputs: list[Variable]

    @property
    def state_bytes(self) -> int:
        """sizeof the state struct on every ABI we know: members are sorted by alignment, the end is padded to it."""
        total = sum(variable.bytes for variable in self.states)
        alignment = max((ELEMENT_BYTES[variable.element] for variable in self.states), default=1)
        return max(-(-total // alignment) * alignment, 1)

    @property
    def constant_bytes(self) -> int:
        return sum(constant.bytes for constant in self.constants.values())


def lay_out(program: Program, names: CNames) -> Layout:
    """Raises `Refused` where two nodes would have one name in C."""
    live = _live(program.network, program.schedule.order)
    feedback = _feedback(program, live)
    constants: dict[tuple[str, str], Constant] = {}
    parameters: dict[tuple[str, str], Parameter] = {}
    states: list[Variable] = []
    for name in live:
        states += _states(program, name, feedback.get(name), names)
        for field, parameter in _parameters(program, name, names).items():
            if isinstance(parameter, Constant):
                constants[name, field] = parameter
            parameters[name, field] = parameter
    states.sort(key=lambda variable: -ELEMENT_BYTES[variable.element])
    inputs, outputs = _terminals(program, "Input", names), _terminals(program, "Output", names)
    return Layout(live, feedback, states, constants, parameters, inputs, outputs)


# -- Order --------------------------------------------------------------------------------------------------------------------


def order_of(shape: Shape) -> tuple[int, int]:
    """(channels, places): values of this shape lie in memory as places x channels. (1, n) is NIR's own order."""
    channels, places = (shape[0], size(shape[1:])) if len(shape) > 1 else (1, size(shape))
    return (1, size(shape)) if channels == 1 or places == 1 else (channels, places)


def wanted_order(program: Program, name: str) -> tuple[int, int] | None:
    """The order in which a node takes its input; None where any will do (an exact integer sum of one source)."""
    node, sources = program.network.nodes[name], program.network.predecessors(name)
    if isinstance(node, Linear):
        if program.options.quantize and len(sources) == 1:
            return None
        before = program.network.nodes[sources[0]]
        through = len(sources) == 1 and isinstance(before, Flatten)
        return order_of(before.input_shape if through else before.output_shape)
    return order_of(node.input_shape)


def value_order(program: Program, name: str) -> tuple[int, int]:
    """The order in which a node's value lies in memory: of its shape, but a Flatten hands on what it gets and terminals are NIR's."""
    node = program.network.nodes[name]
    if node.kind == "Input":
        return (1, size(node.output_shape))
    if isinstance(node, Flatten):
        return order_of(node.input_shape)
    return order_of(node.output_shape)


def _linear_columns(program: Program, name: str) -> NDArray[np.intp]:
    """Which stored column of a Linear's weight meets which place of its input array."""
    if wanted_order(program, name) is not None:
        return summed_order(program.network, name)
    channels, places = value_order(program, program.network.predecessors(name)[0])
    return stored_order((channels, places))


# -- Which nodes --------------------------------------------------------------------------------------------------------------


def _live(network: Network, order: tuple[str, ...]) -> tuple[str, ...]:
    reached = {terminal.name for terminal in network.terminals("Output")}
    pending = list(reached)
    while pending:
        for source in network.predecessors(pending.pop()):
            if source not in reached:
                reached.add(source)
                pending.append(source)
    return tuple(name for name in order if name in reached)


def _feedback(program: Program, live: tuple[str, ...]) -> dict[str, str]:
    place = {name: index for index, name in enumerate(live)}
    feedback: dict[str, str] = {}
    for source, target in sorted(program.schedule.previous):
        if source in place and target in place and feedback.get(source) != "late":
            feedback[source] = "late" if _last_read(program, target, place) > place[source] else "early"
    for source in feedback:
        targets = [target for other, target in program.schedule.previous if other == source and target in place]
        straight = all(
            wanted_order(program, target) in (None, value_order(program, source))
            for target in targets
            if isinstance(program.network.nodes[target], Linear)
        )
        if straight and keeps_list(program, source, targets):
            feedback[source] = "list"
    return feedback


def _last_read(program: Program, name: str, place: dict[str, int]) -> int:
    """When the array that arrives at a node is read for the last time: nodes that hand it on as it is have readers of their own, and
    registers store at the end of the step."""
    if name in program.schedule.registers:
        return len(place)
    node, delays = program.network.nodes[name], program.discrete.delays.get(name)
    if not isinstance(node, Flatten) and (delays is None or delays.any()):
        return place[name]
    readers = [target for target in program.network.successors(name) if target in place]
    return max([place[name], *(_last_read(program, target, place) for target in readers)])


# -- Arrays -------------------------------------------------------------------------------------------------------------------


def element_of(program: Program, name: str) -> str:
    """Element type of a node's value."""
    if not program.options.quantize:
        return "f32"
    return "i8" if is_int8(program.network, name, program.schedule) else "i32"


def _states(program: Program, name: str, feedback: str | None, names: CNames) -> list[Variable]:
    node = program.network.nodes[name]
    number = "i32" if program.options.quantize else "f32"
    count = (size(node.output_shape),)
    found = []
    if isinstance(node, Neuron):
        members = ["i", "v"] if node.tau_syn is not None else ["v"]
        found = [Variable(names.claim(name, "{}_" + member), name, count, number) for member in members]
        if feedback == "list":
            element = index_element(count[0])
            found.append(Variable(names.claim(name, "{}_events"), name, count, element))
            found.append(Variable(names.claim(name, "{}_count"), name, (1,), element))
        elif feedback is not None and (node.spikes or feedback == "late"):
            form = "{}_spikes" if feedback == "early" else "{}_prev"
            found.append(Variable(names.claim(name, form), name, count, element_of(program, name)))
    elif isinstance(node, Delay):
        depth = int(program.discrete.delays[name].max(initial=0))
        if depth:
            line = (depth * count[0],)
            found.append(Variable(names.claim(name, "{}_line"), name, line, element_of(program, name)))
        if depth > 1:
            found.append(Variable(names.claim(name, "{}_at"), name, (1,), "i32"))
    return found


def _parameters(program: Program, name: str, names: CNames) -> dict[str, Parameter]:
    node = program.network.nodes[name]
    if isinstance(node, (Linear, Conv, Scale)):
        return dict(_synapse(program, node, names))
    if isinstance(node, Neuron):
        return _neuron(program, node, names)
    if isinstance(node, Threshold):
        values = program.thresholds[name]
        return {"threshold": _parameter(program, name, "threshold", values, node.threshold.reshape(-1), names)}
    if isinstance(node, Delay) and np.unique(program.discrete.delays[name]).size > 1:
        steps = program.discrete.delays[name][stored_order(node.output_shape)]
        return {
            "steps": Constant(
                names.claim(name, "{}_steps"), name, steps.shape, "i32", steps, f"{printable(name)}: steps of delay"
            )
        }
    return {}


def _synapse(program: Program, node: Linear | Conv | Scale, names: CNames) -> dict[str, Constant]:
    name, parameters = node.name, program.synapses[node.name]
    weight = parameters.weight
    if isinstance(node, Linear):
        weight = weight[:, _linear_columns(program, name)]
    elif isinstance(node, Conv):
        weight = np.moveaxis(weight, 1, -1)  # (out, height, width, in): a conv runs kernel position first, then channel
    else:
        weight = weight[stored_order(node.output_shape)]
    integer = program.options.quantize
    dims = " x ".join(map(str, weight.shape))
    scale = f", scale 2^{-parameters.w_scale}" if integer else ""
    word = "scale" if isinstance(node, Scale) else "weight"
    form = "{}_w"
    element = "i8" if integer else "f32"
    if program.options.kernel == "event" and not isinstance(node, Scale):
        groups = node.groups if isinstance(node, Conv) else 1
        weight, element, order = event_weights(weight.reshape(len(weight), -1), program.options.form, groups)
        scale += f", {order}"
    found = {
        "w": Constant(
            names.claim(name, form), name, weight.shape, element, weight, f"{printable(name)}.{word}, {dims}{scale}"
        )
    }
    if parameters.bias is not None:
        scale = f", scale 2^{-(parameters.w_scale + program.input_frac(name))}" if integer else ""
        bias, meaning = parameters.bias, f"{printable(name)}.bias, {len(parameters.bias)}{scale}"
        found["b"] = Constant(names.claim(name, "{}_b"), name, bias.shape, "i32" if integer else "f32", bias, meaning)
    return found


def _neuron(program: Program, node: Neuron, names: CNames) -> dict[str, Parameter]:
    """Every parameter the node has, as one value where all neurons agree in the mode's arithmetic, else as a table."""
    rounded, exact = program.neurons[node.name], program.discrete.neurons[node.name]
    found: dict[str, Parameter] = {}
    for field in ("gain", "cur_decay", "decay", "leak", "threshold", "reset"):
        values = getattr(rounded, field)
        if values is not None and not (field == "gain" and program.options.quantize):
            found[field] = _parameter(program, node.name, field, values, getattr(exact, field), names)
    if rounded.gain is not None and rounded.gain_shift is not None:
        m, e = rounded.gain, rounded.gain_shift
        if np.unique(m).size == 1 and np.unique(e).size == 1:
            assert exact.gain is not None
            found["gain"], found["gain_shift"] = (float(exact.gain[0]), int(m[0])), (0.0, int(e[0]))
        else:
            order = stored_order(node.shape)
            text = f"{printable(node.name)}: gain per neuron, "
            found["gain"] = Constant(
                names.claim(node.name, "{}_gain"), node.name, m.shape, "i32", m[order], text + "x * this"
            )
            form = "{}_gain_shift"
            found["gain_shift"] = Constant(
                names.claim(node.name, form), node.name, e.shape, "i8", e[order], text + ">> this"
            )
    return found


def _parameter(program: Program, name: str, field: str, values: Array, exact: Array, names: CNames) -> Parameter:
    """One value for all as (float, integer), or a table. In integer mode neurons may agree although their floats differ: then the float
    is that of the integer, so that retraining does not change the `.mlir` for nothing."""
    integer = program.options.quantize
    if np.unique(values).size > 1:
        element, unit = ("i32", ", Q12") if integer else ("f32", "")
        ordered = values[stored_order(program.network.nodes[name].output_shape)]
        node = program.network.nodes[name]
        if isinstance(node, Threshold) and integer:
            unit = f", scale 2^{-program.input_frac(name)}, rounded down"
        word = "neuron" if isinstance(node, Neuron) else "element"
        meaning = f"{printable(name)}: {field.replace('_', ' ')} per {word}{unit}"
        return Constant(names.claim(name, "{}_" + field), name, values.shape, element, ordered, meaning)
    if not integer:
        return float(values[0]), int(np.clip(np.rint(float(values[0]) * (1 << STATE_FRAC)), -(2**62), 2**62))
    floats = exact.astype(np.float32)
    agreed = float(floats[0]) if np.unique(floats).size == 1 else int(values[0]) / (1 << STATE_FRAC)
    return agreed, int(values[0])


def _terminals(program: Program, kind: str, names: CNames) -> list[Variable]:
    terminals = program.network.terminals(kind)
    found = []
    for terminal in terminals:
        word = {"Input": "in", "Output": "out"}[kind]
        name = names.claim(terminal.name, word + "_{}") if len(terminals) > 1 else word
        names.claim(mangle(terminal.name).upper(), "macro {}")
        found.append(Variable(name, terminal.name, (size(terminal.shape),), element_of(program, terminal.name)))
    return found
