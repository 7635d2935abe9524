# SPDX-License-Identifier: Apache-2.0
"""`Program` -> a module of the snn dialect: one operation per node, in execution order, weights only declared."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from .. import __version__, dialect
from ..dialect import event
from ..names import CNames, printable
from ..network import Conv, Delay, Flatten, Linear, Neuron, Pool, Scale, Shape, Terminal, Threshold, size
from ..program import STATE_FRAC, Program
from ..quantise import mean
from ..ranges import Decisions
from .layout import Constant, Layout, Variable, element_of, order_of, value_order, wanted_order

Value = Any  # mlir.ir.Value


def build_module(program: Program, layout: Layout, decisions: Decisions, names: CNames) -> str:
    """The text of `N.mlir`: a function of structure, options, scale exponents, uniform parameters and decisions only."""
    options = program.options
    with dialect.new_context():
        module = dialect.network(
            options.name, mode=options.mode, kernel=options.kernel, generator=f"snn-builder {__version__}"
        )
        for constant in layout.constants.values():
            dialect.declare(module, constant.name, constant.shape, constant.element)
        states = [_argument(variable, "state") for variable in layout.states]
        with dialect.function(module, "init", states) as arrays:
            for variable, array in zip(layout.states, arrays, strict=True):
                dialect.clear(array, loc=f"{printable(variable.node)} (at rest)")
        terminals = [_argument(variable, "input") for variable in layout.inputs] + [
            _argument(variable, "output") for variable in layout.outputs
        ]
        with dialect.function(module, "step", [*states, *terminals]) as arrays:
            variables = dict(zip([argument.name for argument in [*states, *terminals]], arrays, strict=True))
            _Step(program, layout, decisions, names, module, variables).build()
        dialect.verify(module)
        return dialect.to_text(module)


def _argument(variable: Variable, role: str) -> dialect.Argument:
    return dialect.Argument(variable.name, variable.shape, variable.element, role)


class _Step:
    """Builds the body of `step`; `value` holds, per node, the array that its consumers read in this step."""

    def __init__(
        self,
        program: Program,
        layout: Layout,
        decisions: Decisions,
        names: CNames,
        module: Any,
        variables: dict[str, Value],
    ) -> None:
        self.program = program
        self.network = program.network
        self.integer = program.options.quantize
        self.number = "i32" if self.integer else "f32"
        self.layout = layout
        self.decisions = decisions
        self.names = names
        self.module = module
        self.variables = variables
        self.terminals = {variable.node: variables[variable.name] for variable in [*layout.inputs, *layout.outputs]}
        self.value: dict[str, Value] = {}
        self.previous: dict[str, Value] = {}
        self.written: set[str] = set()  # Outputs whose source writes straight into them

    def build(self) -> None:
        for name in self.layout.feedback:
            self.previous[name] = self._previous(name)
        for name in self.layout.live:
            node = self.network.nodes[name]
            if isinstance(node, (Linear, Conv, Scale)):
                self._synapse(node)
            elif isinstance(node, Neuron):
                self._neuron(node)
            elif isinstance(node, Pool):
                self._pool(node)
            elif isinstance(node, Threshold):
                self._threshold(node)
            elif isinstance(node, Delay):
                self._delay(node)
            elif isinstance(node, Flatten):
                self.value[name] = self._input(name).array
            elif node.kind == "Input":
                self.value[name] = self.terminals[name]
            elif name not in self.written:
                channels, places = order_of(node.output_shape)
                x = self._input(name).array
                rows = {} if channels == 1 else {"rows": places}
                dialect.output(x, self.terminals[name], loc=_loc(name, "Output"), **rows)
        for name in self.layout.live:
            if name in self.program.schedule.registers:
                self._store(name, self._input(name).array)
        for name, when in self.layout.feedback.items():
            if when == "late":
                dialect.copy(self.value[name], self.previous[name], loc=_loc(name, "kept for the next step"))
            elif when == "list":
                events, count = self._state(name, "events"), self._state(name, "count")
                event.events(self.value[name], events, count, loc=_loc(name, "kept for the next step"))

    # -- Arrays

    def _state(self, name: str, member: str) -> Value:
        return self.variables.get(self.names.claim(name, "{}_" + member))

    def _previous(self, name: str) -> Value:
        neuron = self.network.nodes[name]
        assert isinstance(neuron, Neuron)
        if self.layout.feedback[name] == "list":
            number = "i8" if self.integer else "f32"
            spikes = self._buffer(name, "{}_prev", size(neuron.output_shape), number)
            events, count = self._state(name, "events"), self._state(name, "count")
            event.spread(events, count, spikes, loc=_loc(name, "last step's spikes"))
            return spikes
        if self.layout.feedback[name] == "late":
            return self._state(name, "prev")
        return self._state(name, "spikes" if neuron.spikes else "v")

    def _buffer(self, name: str, form: str, count: int, element: str) -> Value:
        return dialect.buffer(self.names.claim(name, form), (count,), element)

    def _constant(self, name: str, field: str) -> Value | None:
        constant = self.layout.constants.get((name, field))
        return None if constant is None else dialect.weight(self.module, constant.name)

    def _parameter(self, name: str, field: str) -> Any:
        parameter = self.layout.parameters.get((name, field))
        return self._constant(name, field) if isinstance(parameter, Constant) else parameter

    # -- Fan-in

    def _input(self, name: str) -> _Arriving:
        """The summed input of a node, at its exponent and in its order."""
        count = size(self.network.nodes[name].input_shape)
        arriving = [self._brought(source, name, previous) for source, previous in self.program.inputs(name)]
        if len(arriving) == 1:
            return arriving[0]
        total = self._buffer(name, "{}_in", count, self.number)
        if not arriving:
            dialect.clear(total, loc=_loc(name, "nothing feeds it"))
            return _Arriving(total, True, self.number)
        saturate = self.decisions.sum_saturates.get(name, False)
        listed = " + ".join(printable(source) for source in self.network.predecessors(name))
        dialect.sum_([each.array for each in arriving], total, saturate=saturate, loc=_loc(name, f"in: {listed}"))
        return _Arriving(total, True, self.number)

    def _brought(self, source: str, target: str, previous: bool) -> _Arriving:
        """An edge's value at the exponent of the target's sum, in the order in which the target takes it."""
        array, element, owned = (
            (self.previous if previous else self.value)[source],
            element_of(self.program, source),
            False,
        )
        count = size(self.network.nodes[source].output_shape)
        edge = f"{printable(source)} -> {printable(target)}"
        form = "{}_from_" + self.names.claim(source, "{}")
        shift = self.program.input_frac(target) - self.program.frac[source] if self.integer else 0
        if shift:
            x, array, element, owned = array, self._buffer(target, form, count, self.number), self.number, True
            saturate = self.decisions.edge_saturates[source, target]
            dialect.rescale(x, array, shift=shift, saturate=saturate, loc=f"{edge} ({_shift(shift)})")
        have, want = value_order(self.program, source), wanted_order(self.program, target)
        if want is not None and have != want:
            for (channels, places), back, suffix in ((have, True, "_flat"), (want, False, "_ordered")):
                if channels > 1:
                    x, array, owned = array, self._buffer(target, form + suffix, count, element), True
                    rows = places if back else channels
                    dialect.transpose(x, array, rows=rows, loc=f"{edge} ({'to' if back else 'from'} NIR's order)")
        return _Arriving(array, owned, element)

    # -- Nodes

    def _synapse(self, node: Linear | Conv | Scale) -> None:
        name, w_scale = node.name, self.program.synapses[node.name].w_scale
        count = size(node.output_shape)
        x = self._input(name).array
        bits = self.decisions.accumulator_bits.get(name, 32)
        total = self._buffer(name, "{}_sum", count, f"i{bits}" if self.integer else self.number)
        weight, bias = self._constant(name, "w"), self._constant(name, "b")
        dims = f"{node.kind} {_dims(node.input_shape)} -> {_dims(node.output_shape)}"
        if isinstance(node, Linear):
            dialect.linear(x, weight, bias, total, w_scale=w_scale, loc=_loc(name, dims))
        elif isinstance(node, Scale):
            dialect.scale(x, weight, total, w_scale=w_scale, loc=_loc(name, f"Scale {_dims(node.input_shape)}"))
        else:
            dialect.conv2d(
                x,
                weight,
                bias,
                total,
                input=channels_last(node.input_shape),
                output=channels_last(node.output_shape),
                kernel=(node.weight.shape[2], node.weight.shape[3]),
                stride=node.stride,
                padding=(node.padding[0][0], node.padding[1][0]),
                dilation=node.dilation,
                groups=node.groups,
                w_scale=w_scale,
                loc=_loc(name, dims),
            )
        self.value[name] = total
        if self.integer:
            shift = STATE_FRAC - (w_scale + self.program.input_frac(name))
            result = total if bits == 32 else self._buffer(name, "{}_q12", count, "i32")
            saturate = self.decisions.rescale_saturates[name]
            dialect.rescale(total, result, shift=shift, saturate=saturate, loc=_loc(name, f"to Q12: {_shift(shift)}"))
            self.value[name] = result

    def _pool(self, node: Pool) -> None:
        name, count = node.name, size(node.output_shape)
        total = self._buffer(name, "{}_sum", count, self.number)
        kernel = "x".join(map(str, node.kernel))
        dialect.sumpool2d(
            self._input(name).array,
            total,
            input=channels_last(node.input_shape),
            output=channels_last(node.output_shape),
            kernel=node.kernel,
            stride=node.stride,
            padding=(node.padding[0][0], node.padding[1][0]),
            saturate=self.decisions.pool_saturates.get(name, False),
            loc=_loc(name, f"{node.kind} {kernel}, {_dims(node.input_shape)} -> {_dims(node.output_shape)}"),
        )
        self.value[name] = total
        if node.kind == "SumPool2d":
            return
        area = node.kernel[0] * node.kernel[1]
        m, e = 0, 0
        if self.integer:
            shift = STATE_FRAC - self.program.input_frac(name)
            saturate = self.decisions.rescale_saturates[name]
            dialect.rescale(total, total, shift=shift, saturate=saturate, loc=_loc(name, f"to Q12: {_shift(shift)}"))
            m, e = mean(node)
        saturate = self.decisions.gain_saturates.get(name, False)
        gain = (float(np.float32(1 / area)), m)
        dialect.gain(total, total, gain=gain, shift=e, saturate=saturate, loc=_loc(name, f"divided by {area}"))

    def _threshold(self, node: Threshold) -> None:
        x = self._input(node.name).array
        spikes = self._spikes(node)
        threshold = self._parameter(node.name, "threshold")
        dialect.threshold(x, spikes, threshold=threshold, loc=_loc(node.name, f"Threshold {_dims(node.input_shape)}"))
        self.value[node.name] = spikes

    def _delay(self, node: Delay) -> None:
        name = node.name
        depth = int(self.program.discrete.delays[name].max(initial=0))
        x = None if name in self.program.schedule.registers else self._input(name).array
        if depth == 0:
            self.value[name] = x
            return
        y = self._buffer(name, "{}_out", size(node.output_shape), element_of(self.program, name))
        line, at, steps = self._state(name, "line"), self._state(name, "at"), self._constant(name, "steps")
        dialect.delay_read(line, at, y, x, steps, depth=depth, loc=_loc(name, f"Delay, at most {depth} steps"))
        self.value[name] = y
        if x is not None:
            self._store(name, x)

    def _store(self, name: str, x: Value) -> None:
        depth = int(self.program.discrete.delays[name].max(initial=0))
        line, at = self._state(name, "line"), self._state(name, "at")
        dialect.delay_write(x, line, at, depth=depth, loc=_loc(name, "stored for later steps"))

    def _neuron(self, node: Neuron) -> None:
        name, count = node.name, size(node.shape)
        arriving = self._input(name)
        x = arriving.array
        gain = self._parameter(name, "gain")
        if gain is not None:
            target = x if arriving.owned else self._buffer(name, "{}_scaled", count, self.number)
            shift = self._parameter(name, "gain_shift") if self.integer else 0
            saturate = self.decisions.gain_saturates.get(name, False)
            shift = shift[1] if isinstance(shift, tuple) else shift
            dialect.gain(x, target, gain=gain, shift=shift, saturate=saturate, loc=_loc(name, "gain"))
            x = target
        arguments: dict[str, Any] = {
            "leak": self._parameter(name, "leak"),
            "saturate": self.decisions.state_saturates.get(name, False),
            "product_bits": self.decisions.product_bits.get(name, 64),
            "loc": _loc(name, f"{node.kind} {_dims(node.shape)}"),
        }
        states = [self._state(name, "v")]
        if node.tau_syn is not None:
            states.insert(0, self._state(name, "i"))
            arguments["cur_decay"] = self._parameter(name, "cur_decay")
            arguments["vol_decay"] = self._parameter(name, "decay")
        else:
            arguments["decay"] = self._parameter(name, "decay")
        if node.spikes:
            op: Callable[..., None] = dialect.lif if node.tau_syn is None else dialect.cubalif
            arguments["threshold"] = self._parameter(name, "threshold")
            arguments["reset"] = self._parameter(name, "reset")
            arguments["subtract"] = self.program.options.reset == "subtract"
            arguments["reset_delay"] = self.program.options.reset_delay
            self.value[name] = self._spikes(node)
            op(x, *states, self.value[name], **arguments)
        else:
            op = dialect.li if node.tau_syn is None else dialect.cubali
            self.value[name] = states[-1]
            op(x, *states, **arguments)

    def _spikes(self, node: Neuron | Threshold) -> Value:
        """Where spikes are written: the array kept for the next step, an Output that takes nothing else, or a local."""
        if self.layout.feedback.get(node.name) == "early":
            return self._state(node.name, "spikes")
        for target in self.network.successors(node.name):
            terminal = self.network.nodes[target]
            plain = order_of(node.output_shape)[0] == 1
            if isinstance(terminal, Terminal) and self.network.predecessors(target) == [node.name] and plain:
                self.written.add(target)
                return self.terminals[target]
        return self._buffer(node.name, "{}_spikes", size(node.output_shape), "i8" if self.integer else "f32")


class _Arriving(NamedTuple):
    """A node's input: the array, whether it belongs to this node alone (and may be written), its element type."""

    array: Value
    owned: bool
    element: str


def channels_last(shape: Shape) -> tuple[int, int, int]:
    """(height, width, channels) of a (C, H, W), or of a (C, L) as height 1."""
    channels, *spatial = shape
    height, width = spatial if len(spatial) == 2 else (1, spatial[0])
    return height, width, channels


def _loc(name: str, what: str) -> str:
    return f"{printable(name)} ({what})"


def _dims(shape: Shape) -> str:
    return "x".join(map(str, shape))


def _shift(shift: int) -> str:
    return f"<< {shift}" if shift >= 0 else f">> {-shift}"
