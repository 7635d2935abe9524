# SPDX-License-Identifier: Apache-2.0
"""The numeric contract as a program: a NumPy simulator that every kernel and board is compared with, bit for bit.

One step function per node type and mode, over a batch of samples: values are (samples, elements), float32 in float mode, int64 that
fits the contract's type in integer mode. Slow on purpose: it is to be read.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np

from .data import as_numbers
from .network import Conv, Delay, Flatten, Linear, Network, Neuron, Pool, Scale, Terminal, Threshold, size
from .program import INT32_MAX, INT32_MIN, STATE_FRAC, Array, Program, SynapseParameters, is_int8, summed_order
from .quantise import mean


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
    """Runs every sample from rest. `inputs`: per Input, (samples, steps, *shape) of numbers. Raises `Refused` for data that the mode
    cannot take."""
    network = program.network
    prepared, saturated = _prepare(program, inputs)
    samples, steps = next(iter(prepared.values())).shape[:2]
    dtype = np.int64 if program.options.quantize else np.float32
    values = {name: np.zeros((samples, size(node.output_shape)), dtype) for name, node in network.nodes.items()}
    states = {
        (neuron.name, state): np.zeros((samples, size(neuron.shape)), dtype)
        for neuron in network.neurons()
        for state in _states(neuron)
    }
    recorded: dict[str, list[Array]] = {name: [] for name in network.nodes}
    recorded |= {f"{name}.{state}": [] for name, state in states}

    lines = {name: _DelayLine(delay, values[name]) for name, delay in program.discrete.delays.items()}
    fan_in = _fan_in_int if program.options.quantize else _fan_in_float

    def arriving(name: str) -> Array:
        given = [(source, (previous if last else values)[source]) for source, last in program.inputs(name)]
        return fan_in(program, name, given, np.zeros((samples, size(network.nodes[name].input_shape)), dtype))

    for step in range(steps):
        previous = dict(values)
        for name in program.schedule.order:
            node = network.nodes[name]
            if isinstance(node, Terminal) and node.kind == "Input":
                values[name] = prepared[name][:, step]
            elif name in program.schedule.registers:
                values[name] = lines[name].read(values[name])
            elif isinstance(node, Delay):
                x = arriving(name)
                values[name] = lines[name].read(x)
                lines[name].store(x)
            elif isinstance(node, Neuron):
                values[name] = _neuron(program, node, arriving(name), states)
            else:
                values[name] = _stateless(program, name, arriving(name))
        for name in program.schedule.registers:
            lines[name].store(arriving(name))
        for name in network.nodes:
            recorded[name].append(values[name])
        for (name, state), array in states.items():
            recorded[f"{name}.{state}"].append(array.copy())

    outputs = {
        terminal.name: np.stack(recorded[terminal.name], 1)
        .reshape(samples, steps, *terminal.shape)
        .astype(_output_type(program, terminal))
        if steps
        else np.zeros((samples, 0, *terminal.shape), _output_type(program, terminal))
        for terminal in network.terminals("Output")
    }
    return Simulation(
        outputs,
        {name: np.stack(rows, 1) for name, rows in recorded.items() if rows} if trace else {},
        _joined(program, prepared),
        saturated,
    )


def kernel_inputs(program: Program, inputs: dict[str, Array]) -> tuple[Array, int]:
    """`Simulation.inputs` and `Simulation.saturated` without running anything."""
    prepared, saturated = _prepare(program, inputs)
    return _joined(program, prepared), saturated


def _joined(program: Program, prepared: dict[str, Array]) -> Array:
    return np.concatenate(list(prepared.values()), 2).astype(np.int8 if program.options.quantize else np.float32)


def _states(neuron: Neuron) -> tuple[str, ...]:
    return ("v",) if neuron.tau_syn is None else ("i", "v")


def _output_type(program: Program, terminal: Terminal) -> type[np.generic]:
    if not program.options.quantize:
        return np.float32
    return np.int8 if is_int8(program.network, terminal.name, program.schedule) else np.int32


def _prepare(program: Program, inputs: dict[str, Array]) -> tuple[dict[str, Array], int]:
    """Input data as (samples, steps, elements) in the mode's type, and how many values had to be saturated to int8."""
    prepared, saturated = {}, 0
    for terminal in program.network.terminals("Input"):
        data = np.asarray(inputs[terminal.name])
        data = data.reshape(*data.shape[:2], size(terminal.shape))
        prepared[terminal.name], clipped = as_numbers(
            data, program.options.quantize, program.options.input_scale, terminal.name, program.network.file
        )
        saturated += clipped
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
    """Clamped to int32."""
    return np.clip(x, INT32_MIN, INT32_MAX)


def rescale(x: Array, shift: int) -> Array:
    """sat32(x * 2^shift), rounding towards minus infinity where shift is negative."""
    if shift <= 0:
        return sat32(x >> min(-shift, 63))
    return sat32(sat32(x) << min(shift, 32))


# -- Nodes without a state ----------------------------------------------------------------------------------------------------


def _stateless(program: Program, name: str, x: Array) -> Array:
    node, integer = program.network.nodes[name], program.options.quantize
    if isinstance(node, (Linear, Conv, Scale)):
        total = _synapse(program.network, node, x, program.synapses[name])
        # in integer mode every edge that leaves a synapse is rescaled to Q12
        return (
            rescale(total, STATE_FRAC - (program.synapses[name].w_scale + program.input_frac(name)))
            if integer
            else total
        )
    if isinstance(node, Threshold):
        return (x > program.thresholds[name]).astype(x.dtype)
    if isinstance(node, Pool):
        total = sum_pool(node, x)
        if node.kind == "SumPool2d":
            return sat32(total) if integer else total
        area = node.kernel[0] * node.kernel[1]
        if not integer:
            return total * np.float32(1 / area)
        m, e = mean(node)
        return sat32((m * rescale(total, STATE_FRAC - program.input_frac(name))) >> e)
    assert isinstance(node, (Flatten, Terminal))
    return x


def _synapse(network: Network, node: Linear | Conv | Scale, x: Array, parameters: SynapseParameters) -> Array:
    if isinstance(node, Scale):
        return parameters.weight.astype(x.dtype) * x
    if isinstance(node, Conv):
        return conv(node, x, parameters)
    if x.dtype == np.float32:
        return linear_float(x, parameters, summed_order(network, node.name))
    return linear_int(x, parameters)


def linear_float(x: Array, synapse: SynapseParameters, order: Array) -> Array:
    """One accumulator from +0 over the inputs in stored order, then the bias; inputs that are exactly 0 change no bit."""
    total = np.zeros((x.shape[0], synapse.weight.shape[0]), np.float32)
    for index in order[np.any(x[:, order] != 0, axis=0)]:
        total = total + x[:, index, None] * synapse.weight[:, index]
    return total if synapse.bias is None else total + synapse.bias


def linear_int(x: Array, synapse: SynapseParameters) -> Array:
    """The exact sum."""
    total = x @ synapse.weight.T.astype(np.int64)
    return total if synapse.bias is None else total + synapse.bias


def conv(node: Conv, x: Array, synapse: SynapseParameters) -> Array:
    """Kernel position first, then channel; places in the padding are zeros and change no bit."""
    outputs, inputs = synapse.weight.shape[:2]
    group = np.arange(outputs) // (outputs // node.groups)
    total: Array = np.zeros(1, x.dtype)
    for row, column in np.ndindex(*synapse.weight.shape[2:]):
        window = _window(node, x, (row * node.dilation[0], column * node.dilation[1]), node.output_shape)
        for channel in range(inputs):
            total = total + window[:, group * inputs + channel] * synapse.weight[
                :, channel, row, column, None, None
            ].astype(x.dtype)
    if synapse.bias is not None:
        total = total + synapse.bias[:, None, None]
    return total.reshape(x.shape[0], -1)


def sum_pool(node: Pool, x: Array) -> Array:
    """The sum over each window, from +0, in stored order."""
    total: Array = np.zeros(1, x.dtype)
    for place in np.ndindex(*node.kernel):
        total = total + _window(node, x, place, node.output_shape)
    return total.reshape(x.shape[0], -1)


def _window(node: Conv | Pool, x: Array, place: tuple[int, ...], output_shape: tuple[int, ...]) -> Array:
    """What one kernel position sees at every output position: (samples, C, OH, OW)."""
    channels, *spatial = node.input_shape
    height, width = spatial if len(spatial) == 2 else (1, *spatial)
    rows, columns = output_shape[1:] if len(output_shape) == 3 else (1, *output_shape[1:])
    padded = np.pad(x.reshape(-1, channels, height, width), ((0, 0), (0, 0), *node.padding))
    down, right = node.stride
    return padded[
        :,
        :,
        place[0] : place[0] + down * (rows - 1) + 1 : down,
        place[1] : place[1] + right * (columns - 1) + 1 : right,
    ]


class _DelayLine:
    """What went into a Delay: `read` gives every element as it was its own number of steps ago (0: now), zeros before the first."""

    def __init__(self, steps: Array, like: Array) -> None:
        self.steps, self.step = steps, 0
        self.line = np.zeros((max(int(steps.max(initial=0)), 1), *like.shape), like.dtype)

    def read(self, x: Array) -> Array:
        slots = (self.step - self.steps) % len(self.line)
        return np.where(self.steps == 0, x, self.line[slots, :, np.arange(len(slots))].T)

    def store(self, x: Array) -> None:
        self.line[self.step % len(self.line)] = x
        self.step += 1


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
    old, threshold, subtract = states[neuron.name, "v"], parameters.threshold, program.options.reset == "subtract"
    late = (
        old > threshold if program.options.reset_delay and threshold is not None else None
    )  # it fired, and is reset only now
    if late is not None and not subtract:
        old = np.where(late, parameters.reset, old)  # type: ignore[arg-type]
    v = bounded((decayed(parameters.decay, old) + x) + parameters.leak)
    if late is not None and subtract:
        v = np.where(late, bounded(v - threshold), v)
    if threshold is None or parameters.reset is None:
        states[neuron.name, "v"] = v
        return v
    fired = v > threshold
    after = bounded(v - threshold) if subtract else parameters.reset
    states[neuron.name, "v"] = v if late is not None else np.where(fired, after, v)
    return fired.astype(x.dtype)


def _decayed_float(decay: Array, state: Array) -> Array:
    return decay * state


def _decayed_int(decay: Array, state: Array) -> Array:
    """Q12 product, floored."""
    return (decay * state) >> STATE_FRAC


def _as_is(x: Array) -> Array:
    return x
