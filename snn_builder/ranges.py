# SPDX-License-Identifier: Apache-2.0
"""How large values can get in integer mode: proofs that let the kernel use 32-bit sums and leave out clamps (DESIGN 4.5).

The decisions go into the `.mlir`, the numbers only into the `.json`, so that a retrained network is lowered again only when a decision
changes. Bounds hold for every input sequence and every reachable state.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from .network import Conv, Delay, Linear, Neuron, Pool, Scale, Terminal, Threshold
from .program import INT32_MAX, INT32_MIN, STATE_FRAC, Array, Program, is_int8
from .quantise import mean


@dataclasses.dataclass(frozen=True)
class Range:
    """All values v with low <= v <= high."""

    low: int
    high: int

    @property
    def magnitude(self) -> int:
        return max(-self.low, self.high)

    @property
    def fits_int32(self) -> bool:
        return self.low >= INT32_MIN and self.high <= INT32_MAX

    def saturated(self) -> Range:
        return Range(max(self.low, INT32_MIN), min(self.high, INT32_MAX))

    def scaled(self, shift: int) -> Range:
        """Times 2^shift, floored."""
        return (
            Range(self.low << shift, self.high << shift)
            if shift >= 0
            else Range(self.low >> -shift, self.high >> -shift)
        )


INT8, INT32, SPIKE = Range(-128, 127), Range(INT32_MIN, INT32_MAX), Range(0, 1)


@dataclasses.dataclass(frozen=True)
class Decisions:
    """Per node: what its arithmetic needs. Keys are node names, `edge_saturates` has (source, target) for edges that are rescaled there."""

    accumulator_bits: dict[str, int]
    rescale_saturates: dict[str, bool]
    edge_saturates: dict[tuple[str, str], bool]
    sum_saturates: dict[str, bool]
    pool_saturates: dict[str, bool]
    gain_saturates: dict[str, bool]
    state_saturates: dict[str, bool]
    product_bits: dict[str, int]
    ranges: dict[str, Range]


def analyse(program: Program) -> Decisions:
    """Walks the program once, in execution order; what a feedback edge carries may be anything its type holds."""
    found = Decisions({}, {}, {}, {}, {}, {}, {}, {}, {})
    if not program.options.quantize:
        return found
    for name in program.schedule.order:
        node = program.network.nodes[name]
        if isinstance(node, Terminal) and node.kind == "Input":
            found.ranges[name] = INT8
        elif isinstance(node, Delay):
            found.ranges[name] = INT8 if is_int8(program.network, name, program.schedule) else INT32
        else:
            x = _fan_in(program, name, found)
            if isinstance(node, Neuron):
                found.ranges[name] = _neuron(program, node, x, found)
            elif isinstance(node, Threshold):
                found.ranges[name] = SPIKE
            elif isinstance(node, Pool):
                found.ranges[name] = _pool(program, node, x, found)
            elif isinstance(node, (Linear, Conv, Scale)):
                found.ranges[name] = _synapse(program, name, x, found)
            else:
                found.ranges[name] = x
    for name, node in program.network.nodes.items():
        if isinstance(node, Delay):  # last, because a register is read before its input is computed
            _fan_in(program, name, found)
    return found


def _fan_in(program: Program, name: str, found: Decisions) -> Range:
    frac = program.input_frac(name)
    low = high = 0
    sources = program.inputs(name)
    for source, previous in sources:
        node = program.network.nodes[source]
        spikes = isinstance(node, Neuron) and node.spikes
        arriving = found.ranges[source] if not previous else SPIKE if spikes else INT32
        brought = arriving.scaled(frac - program.frac[source])
        found.edge_saturates[source, name] = not brought.fits_int32
        low, high = low + brought.saturated().low, high + brought.saturated().high
    total = Range(low, high)
    found.sum_saturates[name] = len(sources) > 1 and not total.fits_int32
    return total.saturated()


def _synapse(program: Program, name: str, x: Range, found: Decisions) -> Range:
    synapse = program.synapses[name]
    # Python integers: no bound here may wrap. A conv sees zeros in its padding, so 0 counts as an input.
    weight = synapse.weight.reshape(len(synapse.weight), -1).astype(object)
    least, most = min(x.low, 0), max(x.high, 0)
    positive, negative = np.maximum(weight, 0).sum(1), np.minimum(weight, 0).sum(1)
    bias = np.zeros(len(weight), object) if synapse.bias is None else synapse.bias.astype(object)
    low = int(min(positive * least + negative * most + bias))
    high = int(max(positive * most + negative * least + bias))
    # Partial sums stay within the sum of magnitudes, whatever the order.
    partial = int(max((positive - negative) * x.magnitude + abs(bias)))
    found.accumulator_bits[name] = 32 if partial <= INT32_MAX else 64
    result = Range(low, high).scaled(STATE_FRAC - (synapse.w_scale + program.input_frac(name)))
    found.rescale_saturates[name] = not result.fits_int32
    return result.saturated()


def _pool(program: Program, pool: Pool, x: Range, found: Decisions) -> Range:
    area = pool.kernel[0] * pool.kernel[1]
    total = Range(min(x.low, 0) * area, max(x.high, 0) * area)
    found.pool_saturates[pool.name] = not total.fits_int32
    total = total.saturated()
    if pool.kind == "SumPool2d":
        return total
    brought = total.scaled(STATE_FRAC - program.input_frac(pool.name))
    found.rescale_saturates[pool.name] = not brought.fits_int32
    m, e = mean(pool)
    result = Range((m * brought.saturated().low) >> e, (m * brought.saturated().high) >> e)
    found.gain_saturates[pool.name] = not result.fits_int32
    return result.saturated()


def _neuron(program: Program, neuron: Neuron, x: Range, found: Decisions) -> Range:
    name, parameters = neuron.name, program.neurons[neuron.name]
    if parameters.gain is not None and parameters.gain_shift is not None:
        products = [
            (m * bound) >> e
            for m, e in zip(parameters.gain.tolist(), parameters.gain_shift.tolist(), strict=True)
            for bound in (x.low, x.high)
        ]
        x = Range(min(products), max(products))
        found.gain_saturates[name] = not x.fits_int32
        x = x.saturated()
    saturates, product = False, 0
    magnitude = x.magnitude
    if parameters.cur_decay is not None:
        magnitude, product = _steady_state(magnitude, parameters.cur_decay, 0)
    drive = magnitude + _largest(parameters.leak)
    start = 0
    if parameters.threshold is not None and parameters.reset is not None:
        if program.options.reset == "subtract":
            # A threshold below 0 pushes upwards; one that is subtracted a step late acts on what has decayed meanwhile.
            drive += (
                _largest(parameters.threshold)
                if program.options.reset_delay
                else max(0, -int(parameters.threshold.min()))
            )
        else:
            start = _largest(parameters.reset)
    v, v_product = _steady_state(drive, parameters.decay, start)
    saturates = max(magnitude, v) > INT32_MAX
    found.state_saturates[name] = saturates
    found.product_bits[name] = 64 if saturates or max(product, v_product, v) > INT32_MAX else 32
    return SPIKE if neuron.spikes else Range(-v, v).saturated()


def _steady_state(drive: int, decay: Array, start: int) -> tuple[int, int]:
    """Bound B of |s| under s <- ((decay*s) >> 12) + x, |x| <= drive, |s at first| <= start, and of the product decay*s.

    The floor costs at most 1: decay/4096 * B + 1 + drive <= B holds from B = (drive + 1) * 4096 / (4096 - decay) on. With decay 1
    nothing bounds an integrator."""
    largest = int(decay.max())
    one = 1 << STATE_FRAC
    if largest == one:
        bound = start if drive == 0 else 1 << 62
    elif largest == 0:
        bound = max(start, drive)
    else:
        bound = max(start, -(-(drive + 1) * one // (one - largest)))
    multiplied = not np.all((decay == 0) | (decay == one)) or np.unique(decay).size > 1
    return bound, bound * largest if multiplied else 0


def _largest(array: Array) -> int:
    return int(np.abs(array).max())
