# SPDX-License-Identifier: Apache-2.0
"""The numeric contract as a program: a NumPy simulator that every kernel and board is compared with, bit for bit.

One step function per node type and mode, over a batch of samples: values are (samples, elements), float32 in float mode, int64 that
fits the contract's type in integer mode. Slow on purpose: it is to be read.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np

from .errors import Refused
from .network import Linear, Neuron, Terminal, size
from .program import INT32_MAX, INT32_MIN, STATE_FRAC, Array, Program, SynapseParameters, carries_int8



@dataclasses.dataclass(frozen=True)
class Simulation:
    """Per Output: (samples, steps, *shape) in the element type of the C interface. `trace`: per inner node the same, potentials under
    `<neuron>.v`, synaptic currents under `<neuron>.i`. `inputs`: (samples, steps, all inputs in name order) as the kernel gets them, int8
    or float32. `saturated`: inputs that did not fit int8."""

    outputs: dict[str, Array]
    trace: dict[str, Array]
    inputs: Array
    saturated: int


@np.errstate(over="ignore", invalid="ignore", under="ignore")  # f32 may run over, as it may on a board
def simulate(program: Program, inputs: dict[str, Array], trace: bool = False) -> Simulation:
    """Runs every sample from rest. `inputs`: per Input, (samples, steps, *shape) of numbers. Raises `Refused` for data the mode cannot take."""
    network = program.network
    prepared, saturated = _prepare(program, inputs)
    samples, steps = next(iter(prepared.values())).shape[:2]
    dtype = np.int64 if program.options.quantize else np.float32
    values = {name: np.zeros((samples, size(node.output_shape)), dtype) for name, node in network.nodes.items()}
    states = {(neuron.name, state): np.zeros((samples, size(neuron.shape)), dtype) for neuron in network.neurons() for state in _states(neuron)}
    recorded: dict[str, list[Array]] = {name: [] for name in network.nodes}
    recorded |= {f"{name}.{state}": [] for name, state in states}

    for step in range(steps):
        previous = dict(values)
        for name in program.schedule.order:
            node = network.nodes[name]
            arriving = [(source, (previous if last else values)[source]) for source, last in program.inputs(name)]
            if isinstance(node, Terminal) and node.kind == "Input":
                values[name] = prepared[name][:, step]
                continue
            x = (_fan_in_int if program.options.quantize else _fan_in_float)(program, name, arriving, values[name])
            if isinstance(node, Terminal):
                values[name] = x
            elif isinstance(node, Linear):
                values[name] = _synapse(program, name, x)
            else:
                values[name] = _neuron(program, node, x, states)
        for name in network.nodes:
            recorded[name].append(values[name])
        for (name, state), array in states.items():
            recorded[f"{name}.{state}"].append(array.copy())

    outputs = {
        terminal.name: np.stack(recorded[terminal.name], 1).reshape(samples, steps, *terminal.shape).astype(_output_type(program, terminal))
        if steps
        else np.zeros((samples, 0, *terminal.shape), _output_type(program, terminal))
        for terminal in network.terminals("Output")
    }
    joined = np.concatenate(list(prepared.values()), 2).astype(np.int8 if program.options.quantize else np.float32)
    return Simulation(outputs, {name: np.stack(rows, 1) for name, rows in recorded.items() if rows} if trace else {}, joined, saturated)


def _states(neuron: Neuron) -> tuple[str, ...]:
    return ("v",) if neuron.tau_syn is None else ("i", "v")


def _output_type(program: Program, terminal: Terminal) -> type[np.generic]:
    if not program.options.quantize:
        return np.float32
    return np.int8 if carries_int8(program.network, terminal) else np.int32


def _prepare(program: Program, inputs: dict[str, Array]) -> tuple[dict[str, Array], int]:
    """Input data as (samples, steps, elements) in the mode's type, and how many values had to be saturated to int8."""
    prepared, saturated = {}, 0
    file = program.network.file
    for terminal in program.network.terminals("Input"):
        data = np.asarray(inputs[terminal.name])
        if data.dtype.kind not in "fiub" or not np.all(np.isfinite(data)):
            raise Refused(file, terminal.name, "the input data holds values that are not finite numbers", "correct the data")
        data = data.reshape(*data.shape[:2], size(terminal.shape))
        if not program.options.quantize:
            prepared[terminal.name] = data.astype(np.float32)
            continue
        if program.options.input_scale is None:
            if np.any(data != np.rint(data)):
                raise Refused(file, terminal.name, "the input data is not whole, and integer mode takes int8", "pass input_scale= (value = q * 2^-input_scale)")
            whole = data.astype(np.float64)
        else:
            whole = np.rint(np.ldexp(data.astype(np.float64), program.options.input_scale))
        clipped = np.clip(whole, -128, 127)
        saturated += int(np.count_nonzero(clipped != whole))
        prepared[terminal.name] = clipped.astype(np.int64)
    return prepared, saturated


# -- Fan-in -------------------------------------------------------------------------------------------------------------------


def _fan_in_float(program: Program, name: str, arriving: list[tuple[str, Array]], like: Array) -> Array:
    """Left to right in source-name order. What leaves the network is v + 0.0, so that it never is a negative zero."""
    total = None
    for _, x in arriving:
        total = x if total is None else total + x
    if total is None:
        total = np.zeros_like(like)
    return total + np.float32(0) if isinstance(program.network.nodes[name], Terminal) else total


def _fan_in_int(program: Program, name: str, arriving: list[tuple[str, Array]], like: Array) -> Array:
    """Every edge brought to the exponent of the sum and saturated; the exact sum saturated once."""
    frac = program.input_frac(name)
    brought = [rescale(x, frac - program.frac[source]) for source, x in arriving]
    if len(brought) == 1:
        return brought[0]
    return sat32(sum(brought, np.zeros_like(like)))


def sat32(x: Array) -> Array:
    return np.clip(x, INT32_MIN, INT32_MAX)


def rescale(x: Array, shift: int) -> Array:
    """sat32(x * 2^shift), rounding towards minus infinity where shift is negative."""
    if shift <= 0:
        return sat32(x >> min(-shift, 63))
    return sat32(sat32(x) << min(shift, 32))


# -- Synapses -----------------------------------------------------------------------------------------------------------------


def _synapse(program: Program, name: str, x: Array) -> Array:
    """In integer mode followed by its rescale to Q12 on every edge that leaves it."""
    synapse = program.synapses[name]
    if not program.options.quantize:
        return linear_float(x, synapse)
    return rescale(linear_int(x, synapse), STATE_FRAC - (synapse.w_scale + program.input_frac(name)))


def linear_float(x: Array, synapse: SynapseParameters) -> Array:
    """One accumulator from +0 over the inputs in ascending order, then the bias; inputs that are exactly 0 change no bit."""
    total = np.zeros((x.shape[0], synapse.weight.shape[0]), np.float32)
    for index in np.flatnonzero(np.any(x != 0, axis=0)):
        total = total + x[:, index, None] * synapse.weight[:, index]
    return total if synapse.bias is None else total + synapse.bias


def linear_int(x: Array, synapse: SynapseParameters) -> Array:
    total = x @ synapse.weight.T.astype(np.int64)
    return total if synapse.bias is None else total + synapse.bias


# -- Neurons ------------------------------------------------------------------------------------------------------------------


def _neuron(program: Program, neuron: Neuron, x: Array, states: dict[tuple[str, str], Array]) -> Array:
    """Gain, current, potential, spike and reset, all in one step: the spike is visible downstream in the same step."""
    parameters = program.neurons[neuron.name]
    integer = program.options.quantize
    decayed: Callable[[Array, Array], Array] = _decayed_int if integer else _decayed_float
    bounded: Callable[[Array], Array] = sat32 if integer else _as_is
    if parameters.gain is not None:
        x = sat32((parameters.gain * x) >> parameters.gain_shift) if integer else parameters.gain * x
    if parameters.cur_decay is not None:
        x = bounded(decayed(parameters.cur_decay, states[neuron.name, "i"]) + x)
        states[neuron.name, "i"] = x
    v = bounded((decayed(parameters.decay, states[neuron.name, "v"]) + x) + parameters.leak)
    if parameters.threshold is None:
        states[neuron.name, "v"] = v
        return v
    fired = v > parameters.threshold
    after = bounded(v - parameters.threshold) if program.options.reset == "subtract" else parameters.reset
    states[neuron.name, "v"] = np.where(fired, after, v)
    return fired.astype(x.dtype)


def _decayed_float(decay: Array, state: Array) -> Array:
    return decay * state


def _decayed_int(decay: Array, state: Array) -> Array:
    """Q12 product, floored."""
    return (decay * state) >> STATE_FRAC


def _as_is(x: Array) -> Array:
    return x
