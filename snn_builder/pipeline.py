# SPDX-License-Identifier: Apache-2.0
"""The front half of every command: from a `.nir` file to the `Program` that runs."""

from __future__ import annotations

import dataclasses
import os

import numpy as np

from .discretise import Discrete, discretise
from .errors import Findings
from .network import Network, Scale, Threshold
from .options import Options
from .program import Array, NeuronParameters, Program, SynapseParameters
from .quantise import quantise
from .reader import read
from .schedule import Schedule, schedule


def compile_network(path: str | os.PathLike[str], options: Options, findings: Findings | None = None) -> Program:
    """Reads, discretises, schedules and rounds to the mode's arithmetic. Raises `Unreadable` or `Refused`; warnings go to `findings`."""
    findings = Findings(path) if findings is None else findings
    network = read(path, findings)
    if options.reset == "subtract":
        _check_subtract(network, findings)
    discrete = discretise(network, options.dt, findings)
    order = schedule(network, discrete.delays, findings)
    if options.quantize:
        return quantise(discrete, order, options, findings)
    return round_to_float(discrete, order, options, findings)


def _check_subtract(network: Network, findings: Findings) -> None:
    for neuron in network.neurons():
        if neuron.v_reset is not None and np.any(neuron.v_reset != 0):
            findings.error(
                neuron.name, "reset=subtract, but v_reset is not 0", "leave reset=subtract out, or store v_reset 0"
            )
    findings.refuse()


def round_to_float(discrete: Discrete, order: Schedule, options: Options, findings: Findings) -> Program:
    """Rounds every float64 to float32, once. Raises `Refused` for what float32 cannot hold."""

    def f32(name: str, field: str, array: Array | None) -> Array | None:
        if array is None:
            return None
        with np.errstate(over="ignore"):
            rounded = array.astype(np.float32)
        if not np.all(np.isfinite(rounded)):
            findings.error(name, f"{field} is beyond the range of a 32-bit float", "scale the network down")
        return rounded

    def all_f32(name: str, value: object) -> dict[str, Array | None]:
        fields = dataclasses.fields(value)  # type: ignore[arg-type]
        return {field.name: f32(name, field.name, getattr(value, field.name)) for field in fields}

    network = discrete.network
    synapses = {name: SynapseParameters(**all_f32(name, weights)) for name, weights in discrete.synapses.items()}  # type: ignore[arg-type]
    neurons = {name: NeuronParameters(**all_f32(name, neuron)) for name, neuron in discrete.neurons.items()}  # type: ignore[arg-type]
    thresholds = {}
    for name, node in network.nodes.items():
        if isinstance(node, Scale):
            scale = f32(name, "scale", node.scale.reshape(-1))
            assert scale is not None
            synapses[name] = SynapseParameters(scale, None)
        elif isinstance(node, Threshold):
            thresholds[name] = f32(name, "threshold", node.threshold.reshape(-1))
    findings.refuse()
    return Program(network, options, discrete, order, synapses, neurons, thresholds, {})  # type: ignore[arg-type]
