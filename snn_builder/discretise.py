# SPDX-License-Identifier: Apache-2.0
"""Continuous time -> one timestep: dt, the coefficients of each neuron, gains folded into weights (DESIGN 4.2).

Everything here is float64, computed from the stored parameters; the modes round it afterwards, once.
"""

from __future__ import annotations

import dataclasses
from decimal import ROUND_HALF_EVEN, Context, Decimal

import numpy as np
from numpy.typing import NDArray

from .errors import Findings
from .network import F64, Conv, Delay, Flatten, Linear, Network, Neuron

SNAP = 1e-6  # files hold float32: a decay this close to 0, or a gain this close to 1, means it
MAX_DELAY = 65535  # steps; more would not fit any board's memory
DT_TOLERANCE = 1e-5  # relative distance at which a two-digit number is taken for dt


@dataclasses.dataclass(frozen=True)
class Coefficients:
    """One neuron node after forward Euler: `v <- (decay*v + gain*x) + leak`, for Cuba neurons `i <- cur_decay*i + gain*x` first and i in
    place of gain*x. Arrays of one value per neuron; `gain` is None where it is 1 or was folded into the weights before it."""

    decay: F64
    leak: F64
    cur_decay: F64 | None = None
    gain: F64 | None = None
    threshold: F64 | None = None
    reset: F64 | None = None


@dataclasses.dataclass(frozen=True)
class Weights:
    """A synapse with the gain of the neuron behind it folded in; shapes as in `Linear` and `Conv`."""

    weight: F64
    bias: F64 | None


@dataclasses.dataclass(frozen=True)
class Discrete:
    """`network` with step `dt` (None where it has no time); coefficients, weights and, of Delays, steps per element, by node name."""

    network: Network
    dt: float | None
    dt_from: str
    neurons: dict[str, Coefficients]
    synapses: dict[str, Weights]
    delays: dict[str, NDArray[np.int64]]


@np.errstate(all="ignore")  # what is no finite number is refused by name
def discretise(network: Network, dt: float | None, findings: Findings) -> Discrete:
    """Raises `Refused` where no dt is given and none can be inferred, where a decay leaves [0, 1], or a gain, a leak or a folded weight is
    not finite."""
    dt, dt_from = _timestep(network, dt, findings)
    findings.refuse()
    neurons = {neuron.name: _coefficients(neuron, dt, findings) for neuron in network.neurons()}
    findings.refuse()
    synapses = {synapse.name: Weights(synapse.weight, synapse.bias) for synapse in network.synapses()}
    for neuron in network.neurons():
        gain = neurons[neuron.name].gain
        assert gain is not None
        if np.all(gain == 1):
            neurons[neuron.name] = dataclasses.replace(neurons[neuron.name], gain=None)
        elif _foldable(network, neuron, gain):
            for source in _synapses_before(network, neuron.name) or ():
                synapses[source] = _fold(source, synapses[source], float(gain.reshape(-1)[0]), neuron.name, findings)
            neurons[neuron.name] = dataclasses.replace(neurons[neuron.name], gain=None)
    findings.refuse()
    return Discrete(network, dt, dt_from, neurons, synapses, _delays(network, dt, findings))


# -- dt -----------------------------------------------------------------------------------------------------------------------


def _timestep(network: Network, dt: float | None, findings: Findings) -> tuple[float | None, str]:
    """dt and where it comes from: "option", "metadata", "inferred" or "none needed"."""
    if dt is not None:
        return dt, "option"
    if network.dt is not None:
        return network.dt, "metadata"
    candidates = _candidates(network)
    if not candidates and not any(isinstance(node, Delay) for node in network.nodes.values()):
        return None, "none needed"
    inferred = _infer(network, candidates) if candidates else None
    if inferred is not None:
        findings.warn(
            "", f"dt = {inferred:g} inferred from the file's time constants", f"pass dt={inferred:g} to be sure"
        )
        return inferred, "inferred"
    shown = "; ".join(f"{name}: {what} = {value}" for name, what, value in _shown(candidates))
    shown = f" ({shown})" if shown else ""
    findings.error(
        "",
        f"no timestep: the file does not say dt and it cannot be inferred{shown}",
        "pass dt= in the file's unit of time, the one used in training",
    )
    return None, "none needed"


def _candidates(network: Network) -> list[tuple[str, str, F64]]:
    """(node, formula, values) of everything that equals dt in files whose exporter chose r (or w_in) so that the gain is 1."""
    found = []
    for neuron in network.neurons():
        if neuron.tau is not None:
            found.append((neuron.name, "tau/r" if neuron.tau_syn is None else "tau_mem/r", neuron.tau / neuron.r))
        if neuron.tau_syn is not None and neuron.w_in is not None:
            found.append((neuron.name, "tau_syn/w_in", neuron.tau_syn / neuron.w_in))
    return found


def _shown(candidates: list[tuple[str, str, F64]]) -> list[tuple[str, str, str]]:
    rows = []
    for name, what, values in candidates[:4]:
        low, high = f"{np.min(values):.5g}", f"{np.max(values):.5g}"
        rows.append((name, what, low if low == high else f"{low} to {high}"))
    return rows


def _infer(network: Network, candidates: list[tuple[str, str, F64]]) -> float | None:
    values = np.concatenate([value.reshape(-1) for _, _, value in candidates])
    if not (np.all(np.isfinite(values)) and np.all(values > 0)):
        return None
    dt = float(Context(prec=2, rounding=ROUND_HALF_EVEN).create_decimal(Decimal(float(values[0]))))
    if np.any(np.abs(values - dt) > DT_TOLERANCE * dt):
        return None
    taus = np.concatenate(
        [tau.reshape(-1) for neuron in network.neurons() for tau in (neuron.tau, neuron.tau_syn) if tau is not None]
    )
    decays = _decay(taus, dt)
    return dt if np.any((decays > 0) & (decays < 1)) else None


# -- Coefficients -------------------------------------------------------------------------------------------------------------


def _decay(tau: F64, dt: float) -> F64:
    decay = 1 - dt / tau
    return np.where(np.abs(decay) <= SNAP, 0.0, decay)


def _coefficients(neuron: Neuron, dt: float | None, findings: Findings) -> Coefficients:
    """The formulas of DESIGN 4.2, with an explicit gain for now."""
    gain = neuron.r
    decay, leak, cur_decay = np.ones(neuron.shape), np.zeros(neuron.shape), None
    if neuron.tau is not None:
        assert dt is not None and neuron.v_leak is not None
        decay = _checked_decay(neuron, "tau" if neuron.tau_syn is None else "tau_mem", neuron.tau, dt, findings)
        gain = neuron.r * dt / neuron.tau
        leak = neuron.v_leak * dt / neuron.tau
    if neuron.tau_syn is not None:
        assert dt is not None and neuron.w_in is not None
        cur_decay = _checked_decay(neuron, "tau_syn", neuron.tau_syn, dt, findings)
        gain = (neuron.w_in * dt / neuron.tau_syn) * gain
    gain = np.where(np.abs(gain - 1) <= SNAP, 1.0, gain)
    for field, values in (("gain", gain), ("leak", leak)):
        if not np.all(np.isfinite(values)):
            index = int(np.flatnonzero(~np.isfinite(values.reshape(-1)))[0])
            problem = f"{field}[{index}] is not a finite number with dt = {dt:g}"
            findings.error(neuron.name, problem, "correct its parameters, or pass another dt")
    arrays = (decay, leak, cur_decay, gain, neuron.v_threshold, neuron.v_reset)
    return Coefficients(*(None if array is None else array.reshape(-1) for array in arrays))  # type: ignore[arg-type]


def _checked_decay(neuron: Neuron, field: str, tau: F64, dt: float, findings: Findings) -> F64:
    decay = _decay(tau, dt)
    outside = np.flatnonzero(((decay < 0) | (decay > 1)).reshape(-1))
    if outside.size:
        index = int(outside[0])
        value = tau.reshape(-1)[index]
        findings.error(
            neuron.name,
            f"{field}[{index}] is {value:g}, shorter than dt = {dt:g}: decay {decay.reshape(-1)[index]:.4g} is outside [0, 1]",
            "pass a smaller dt",
        )
    return decay


# -- Gain folding -------------------------------------------------------------------------------------------------------------


def _foldable(network: Network, neuron: Neuron, gain: F64) -> bool:
    """Uniform after rounding to float32, and every predecessor is a synapse that feeds this neuron only."""
    return np.unique(gain.astype(np.float32)).size == 1 and bool(_synapses_before(network, neuron.name))


def _synapses_before(network: Network, name: str) -> list[str] | None:
    """The synapses that feed a node, and it only, seen through Flattens; None where something else feeds it too."""
    found: list[str] = []
    for source in network.predecessors(name):
        node = network.nodes[source]
        if network.successors(source) != [name]:
            return None
        if isinstance(node, (Linear, Conv)):
            found.append(source)
        elif isinstance(node, Flatten) and (behind := _synapses_before(network, source)):
            found += behind
        else:
            return None
    return found


def _fold(name: str, weights: Weights, gain: float, neuron: str, findings: Findings) -> Weights:
    weight = weights.weight * gain
    bias = None if weights.bias is None else weights.bias * gain
    if not all(np.all(np.abs(array) <= np.finfo(np.float32).max) for array in (weight, bias) if array is not None):
        findings.error(
            name,
            f"a weight times the gain {gain:g} of {neuron} is not a finite float",
            "scale the weights or r of the neuron down",
        )
    return Weights(weight, bias)


# -- Delays -------------------------------------------------------------------------------------------------------------------


def _delays(network: Network, dt: float | None, findings: Findings) -> dict[str, NDArray[np.int64]]:
    """round half even(delay / dt), per element."""
    found = {}
    for node in network.nodes.values():
        if isinstance(node, Delay):
            assert dt is not None
            delay = node.delay.reshape(-1)
            exact = delay / dt
            steps = np.rint(exact)
            if np.any(steps > MAX_DELAY):
                findings.error(
                    node.name, f"a delay of {steps.max():.6g} steps", f"at most {MAX_DELAY} steps fit: pass a larger dt"
                )
                continue
            off = np.flatnonzero(np.abs(exact - steps) > 1e-6 * np.maximum(1, exact))
            if off.size:
                first = off[0]
                findings.warn(
                    node.name,
                    f"delay[{first}] {delay[first]:g} is {exact[first]:.6g} steps, taken as {steps[first]:.0f}",
                    "pass a dt that divides it",
                )
            found[node.name] = steps.astype(np.int64)
    findings.refuse()
    return found
