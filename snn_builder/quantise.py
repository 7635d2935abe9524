# SPDX-License-Identifier: Apache-2.0
"""float64 coefficients -> the default integer scheme: int8 weights, Q12 state (DESIGN 4.5)."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from .discretise import Coefficients, Discrete, Weights
from .errors import Findings
from .network import F64, Conv, Linear, Network, Neuron, Pool, Scale, Terminal, Threshold
from .options import Options
from .program import INT32_MAX, INT32_MIN, STATE_FRAC, Array, NeuronParameters, Program, SynapseParameters, input_frac
from .schedule import Schedule

GAIN_BITS = 14  # an explicit gain keeps at least this many significant bits
MAX_GAIN_SHIFT = 31
LOSS = 0.05  # a coefficient that loses more than this is warned about


@np.errstate(all="ignore")  # what overflows is refused by name
def quantise(discrete: Discrete, order: Schedule, options: Options, findings: Findings) -> Program:
    """Raises `Refused` for what the scheme cannot hold, naming node, value and remedy."""
    network = discrete.network
    frac = _fractions(network, order, options.input_frac)
    synapses = {
        name: _synapse(name, weights, input_frac(network, name, frac), findings)
        for name, weights in discrete.synapses.items()
    }
    thresholds = {}
    for name, node in network.nodes.items():
        if isinstance(node, Scale):
            scale = Weights(node.scale.reshape(-1), None)
            synapses[name] = _synapse(name, scale, input_frac(network, name, frac), findings)
        elif isinstance(node, Threshold):
            thresholds[name] = _comparand(name, node.threshold.reshape(-1), input_frac(network, name, frac), findings)
        elif isinstance(node, Pool) and node.kind == "AvgPool2d":
            mean(node, findings)
    neurons = {name: _neuron(name, neuron, findings) for name, neuron in discrete.neurons.items()}
    findings.refuse()
    return Program(network, options, discrete, order, synapses, neurons, thresholds, frac)


def _fractions(network: Network, order: Schedule, input_scale: int) -> dict[str, int]:
    """Fraction exponent of each node's output: what hands values on keeps that of its input, but for a register on a cycle."""
    frac: dict[str, int] = {}
    for name, node in network.nodes.items():
        if isinstance(node, Terminal) and node.kind == "Input":
            frac[name] = input_scale
        elif isinstance(node, Neuron):
            frac[name] = 0 if node.spikes else STATE_FRAC
        elif isinstance(node, Threshold):
            frac[name] = 0
        elif isinstance(node, (Linear, Conv, Scale)) or node.kind == "AvgPool2d" or name in order.in_loop:
            frac[name] = STATE_FRAC
    waiting = [name for name in network.nodes if name not in frac]
    while waiting:
        known = [name for name in waiting if all(source in frac for source in network.predecessors(name))]
        for name in known:
            frac[name] = input_frac(network, name, frac)
        waiting = [name for name in waiting if name not in frac]
    return frac


def weight_scale(weight: F64) -> int:
    """The largest k with 2^k <= min(|127 / max w|, |128 / min w|), a zero giving infinity; 12 for all-zero weights."""
    if not np.any(weight):
        return STATE_FRAC
    ratios = [
        abs(limit / extreme)
        for limit, extreme in ((127.0, float(weight.max())), (128.0, float(weight.min())))
        if extreme
    ]
    return math.frexp(min(ratios))[1] - 1


def _synapse(name: str, weights: Weights, in_frac: int, findings: Findings) -> SynapseParameters:
    w_scale = weight_scale(weights.weight)
    bias = None
    if weights.bias is not None:
        _fits_q12(name, "bias", weights.bias, findings)
        bias = round_half_even(weights.bias, w_scale + in_frac)
        while np.any(bias < INT32_MIN) or np.any(bias > INT32_MAX):
            w_scale -= 1
            bias = round_half_even(weights.bias, w_scale + in_frac)
        bias = bias.astype(np.int64)
    return SynapseParameters(round_half_even(weights.weight, w_scale).astype(np.int8), bias, w_scale)


def round_half_even(array: F64, frac: int) -> F64:
    """round(array * 2^frac), exact but for what leaves the range of float64, still as float64."""
    return np.rint(np.ldexp(array, frac))


def _neuron(name: str, neuron: Coefficients, findings: Findings) -> NeuronParameters:
    gain, gain_shift = (None, None) if neuron.gain is None else multiplier(name, neuron.gain, findings)
    cur_decay = None if neuron.cur_decay is None else _decay(name, "current decay", neuron.cur_decay, findings)
    return NeuronParameters(
        decay=_decay(name, "decay", neuron.decay, findings),
        leak=_q12(name, "leak", neuron.leak, findings),
        cur_decay=cur_decay,
        gain=gain,
        gain_shift=gain_shift,
        threshold=None if neuron.threshold is None else _threshold(name, neuron.threshold, findings),
        reset=None if neuron.reset is None else _q12(name, "v_reset", neuron.reset, findings),
    )


def _q12(name: str, field: str, values: F64, findings: Findings) -> Array:
    """round(value * 2^12); refuses what int32 cannot hold, warns of what it blurs."""
    if not _fits_q12(name, field, values, findings):
        return np.zeros(values.shape, np.int64)
    rounded = round_half_even(values, STATE_FRAC)
    nonzero = values != 0
    loss = np.abs(np.ldexp(rounded, -STATE_FRAC)[nonzero] - values[nonzero]) / np.abs(values[nonzero])
    if loss.size and loss.max() > LOSS:
        value = values[nonzero].reshape(-1)[int(loss.argmax())]
        findings.warn(
            name,
            f"{field} {value:g} loses {100 * loss.max():.0f} % in 12 fraction bits",
            "scale the network up, or use float mode",
        )
    return rounded.astype(np.int64)


def _none(
    bad: NDArray[np.bool_], values: F64, name: str, field: str, problem: str, remedy: str, findings: Findings
) -> bool:
    """Whether no value is bad; an error names the first one that is."""
    found = np.flatnonzero(bad)
    if found.size:
        index = int(found[0])
        problem = f"{field}[{index}] is {values.reshape(-1)[index]:.7g}, {problem}"
        findings.error(name, problem, f"{remedy}, or use float mode (quantize=0)")
    return not found.size


def _fits_q12(name: str, field: str, values: F64, findings: Findings) -> bool:
    scaled = round_half_even(values, STATE_FRAC)
    problem = "beyond int32 in Q12 (less than 524288)"
    return _none(_outside(scaled), values, name, field, problem, "scale the network down", findings)


def _outside(values: F64) -> NDArray[np.bool_]:
    return (values < INT32_MIN) | (values > INT32_MAX)


def _decay(name: str, field: str, values: F64, findings: Findings) -> Array:
    rounded = _q12(name, field, values, findings)
    frozen = (values < 1) & (rounded == 1 << STATE_FRAC)
    problem = "which rounds to 1 in Q12: the neuron would never leak"
    _none(frozen, values, name, field, problem, "pass a larger dt", findings)
    return rounded


def _threshold(name: str, values: F64, findings: Findings) -> Array:
    rounded = _q12(name, "v_threshold", values, findings)
    if _fits_q12(name, "v_threshold", values, Findings("")):
        lost, problem = (values > 0) & (rounded == 0), "which rounds to 0 in Q12: every input would fire"
        _none(lost, values, name, "v_threshold", problem, "scale weights and threshold up", findings)
    return rounded


def _comparand(name: str, values: F64, frac: int, findings: Findings) -> Array:
    """floor(threshold * 2^f): a number is above the threshold exactly when it is above this."""
    floored = np.floor(np.ldexp(values, frac))
    problem = f"beyond int32 at 2^-{frac}"
    fits = _none(_outside(floored), values, name, "threshold", problem, "scale the network down", findings)
    return floored.astype(np.int64) if fits else np.zeros(values.shape, np.int64)


def multiplier(
    name: str, gain: F64, findings: Findings, remedy: str = "pass another dt, scale r"
) -> tuple[Array, Array]:
    """m and e of x <- (m*x) >> e: e = max(0, 14 - floor(log2 |gain|)), m = round(gain * 2^e); both 0 for a gain of 0."""
    exponent = np.frexp(np.abs(gain))[1] - 1
    shift = np.where(gain == 0, 0, np.maximum(0, GAIN_BITS - exponent))
    factor = np.where(gain == 0, 0.0, np.rint(np.ldexp(gain, shift)))
    fits = _none(shift > MAX_GAIN_SHIFT, gain, name, "gain", "too small for a 32-bit multiplier", remedy, findings)
    fits &= _none(_outside(factor), gain, name, "gain", "too large for a 32-bit multiplier", remedy, findings)
    if not fits:
        return np.zeros(gain.shape, np.int64), np.zeros(gain.shape, np.int64)
    return factor.astype(np.int64), shift.astype(np.int64)


def mean(pool: Pool, findings: Findings | None = None) -> tuple[int, int]:
    """m and e of an AvgPool2d, which divides the sum over each window by its area, as `multiplier` gives them."""
    area = pool.kernel[0] * pool.kernel[1]
    m, e = multiplier(pool.name, np.array(1 / area), findings or Findings(""), "pool smaller windows")
    return int(m), int(e)
