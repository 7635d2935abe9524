# SPDX-License-Identifier: Apache-2.0
"""The pass EventToLoops: the event form of the snn dialect becomes loops of scf over arith and memref.

A layer is a loop over blocks of outputs. For each block, a synapse adds up the weights of its listed inputs, in registers where
weights are packed; then a loop over the outputs of the block does all else, one output at a time.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from mlir import ir
from mlir.dialects import arith, func
from mlir.passmanager import ExternalPass
from mlir.rewrite import RewritePatternSet, walk_and_apply_patterns

from ..dialect.checks import walk
from . import scalar
from .gather import Gather, WindowGather, by_kind
from .loops import Windows
from .memory import (
    UNROLLED,
    append,
    as_element,
    branch,
    count_of,
    divided,
    element_type,
    flat,
    index,
    listed,
    load,
    loop,
    plus,
    size,
    store,
    times,
    variable,
)
from .scalar import add, constant, integer, is_float, named, resize
from .snn_to_linalg import _LOWERINGS, Body, _calls, _defines, _Neuron, _Op, _pattern

FEW_ROWS = 4
"""So many rows are looked at together, four columns at a time."""

ANY_OF_FOUR = "any_of_four"
"""A helper function of snn_builder.c: is one of four int8 not 0?"""

UPPER_PRODUCT = "upper_product"
"""A helper function of snn_builder.c: (a * b) >> 32."""

ADD_SATURATING = "add_sat32"
"""A helper function of snn_builder.c: a + b clamped to 32 bits."""


class EventToLoops:
    """The pass: `PassManager.add(EventToLoops(), name="event-to-loops")`, on a module."""

    def __call__(self, module: ir.Operation, pass_: ExternalPass) -> None:
        failures: list[Exception] = []
        with module.context:
            patterns = RewritePatternSet()
            for name, lowering in _EVENT_LOWERINGS.items():
                patterns.add(f"snn.{name}", _pattern(lowering, failures))
            walk_and_apply_patterns(module, patterns.freeze())
            if failures:
                raise failures[0]
            block = module.regions[0].blocks[0]
            with ir.InsertionPoint.at_block_begin(block), ir.Location.unknown():
                if _calls(module, scalar.SATURATE) and not _defines(block, scalar.SATURATE):
                    scalar.define_saturate()
                _declare_helpers(module)


def _declare_helpers(module: ir.Operation) -> None:
    """What is called and is only in snn_builder/c/helpers.py. What stands behind a dot tells types apart, and is not in C."""
    calls = {ir.FlatSymbolRefAttr(op.attributes["callee"]).value: op for op in walk(module) if op.name == "func.call"}
    for name, call in sorted(calls.items()):
        if name.split(".")[0] in (ADD_SATURATING, ANY_OF_FOUR, UPPER_PRODUCT):
            types = [value.type for value in call.operands], [result.type for result in call.results]
            func.FuncOp(name, types, visibility="private")


# Lists


def _events(op: _Op) -> None:
    x, events, count, rows = op.one("x"), op.one("events"), op.one("count"), op.integer("rows")
    n, columns, type_, i8 = size(x), size(x) // rows, element_type(x), integer(8)
    wide = not isinstance(element_type(count), ir.IndexType)
    local = variable("count", ir.IndexType.get()) if wide else count
    store(index(0), local)
    for flag in op.all("graded"):
        store(constant(i8, 0), flag)

    def one(i: ir.Value, place: ir.Value) -> None:
        with branch(scalar.is_not(load(x, i), 0)):
            for y in op.all("y"):
                store(load(x, i), y, place)
            append(events, local, place)
            for flag in op.all("graded"):
                graded = (
                    scalar.mask(load(x, i), -2) if str(type_) == "i8" else scalar.flag(scalar.is_not(load(x, i), 1), i8)
                )
                store(arith.OrIOp(load(flag), graded).result, flag)

    def column(j: ir.Value) -> None:
        if rows == 1:
            one(j, j)
        else:
            with loop(0, rows) as i:
                one(flat([i, j], [columns]), flat([j, i], [rows]))

    aligned = rows == 1 or (columns % 4 == 0 and rows <= FEW_ROWS)  # else no words, or too many to look at
    words = columns // 4 * 4 if str(type_) == "i8" and n >= 8 and aligned else 0
    if words:
        with loop(0, words, 4) as j:
            helper = f"{ANY_OF_FOUR}.{n}"
            looks = [func.CallOp([integer(1)], helper, [x, plus(j, columns * i)]).results[0] for i in range(rows)]
            with branch(functools.reduce(lambda a, b: arith.OrIOp(a, b).result, looks)), loop(j, plus(j, 4)) as k:
                column(k)
    if words < columns:
        with loop(words, columns) as j:
            column(j)
    if wide:
        store(as_element(load(local), count), count)


def _spread(op: _Op) -> None:
    events, count, y = op.one("events"), op.one("count"), op.one("y")
    element = element_type(y)
    with loop(0, size(y)) as i:
        store(constant(element, 0), y, i)
    with loop(0, count_of(count)) as k:
        store(constant(element, 1), y, listed(events, k, "input"))


def _keep(op: _Op) -> None:
    events, count, kept, kept_count = (op.one(name) for name in ("events", "count", "kept", "kept_count"))
    store(as_element(count_of(count), kept_count), kept_count)
    with loop(0, count_of(count)) as k:
        store(load(events, k), kept, k)


def _places(op: _Op) -> None:
    events, count, first, channels = op.one("events"), op.one("count"), op.one("first"), op.integer("channels")
    known = variable("known", ir.IndexType.get(), index(0))  # how many elements of `first` are written
    with loop(0, count_of(count)) as k:
        place = divided(listed(events, k, "input"), channels)[0]
        with loop(load(known), plus(place, 1)) as p:
            store(as_element(k, first), first, p)
        store(plus(place, 1), known)
    with loop(load(known), size(first)) as p:
        store(as_element(count_of(count), first), first, p)


def _scatter2d(op: _Op) -> None:
    events, count, y, type_ = op.one("events"), op.one("count"), op.one("y"), element_type(op.one("y"))
    windows = Windows(op, op.integers("kernel"), (1, 1))
    with loop(0, size(y)) as i:
        store(constant(type_, 0), y, i)

    def spread(graded: bool) -> None:
        with loop(0, count_of(count)) as k:
            i = listed(events, k, "input")
            channel, place = windows.split(i)
            value = resize(load(op.one("x"), i), type_) if graded else constant(type_, 1)
            with windows.seeing(place) as window:
                to = named(flat([*window, channel], windows.output[1:]), "at")
                store(add(load(y, to), value), y, to)

    by_kind(op, lambda: spread(False), lambda: spread(True))


# Layers


class _ExactNeuron(_Neuron):
    """The formulas of a quantised network, where 0 <= decay <= 2^d_scale: a decayed state fits its own width again."""

    def _decayed(self, decay: str, state: ir.Value) -> ir.Value | None:
        """decay * state >> d_scale. Where a 32-bit product will not do, the upper half of a 64-bit one is a single
        instruction on most cores; so with the factor f = decay - 1 or decay: (s * f) >> d = (s * (f << (32 - d))) >> 32."""
        one = 1 << self._op.integer("d_scale")
        d = 0 if decay in self._tables else int(self._op.uniform(decay, self._type))
        if not 0 < d < one or (not self._clamp and self._op.integer("product_bits") == 32):
            value = super()._decayed(decay, state)
            return value if value is None else resize(value, self._type)
        factor = d if d < one // 2 else d - one
        shifted = constant(self._type, factor * ((1 << 32) // one))
        high = func.CallOp([self._type], UPPER_PRODUCT, [state, shifted]).results[0]
        return high if factor == d else add(state, high)

    def integrate(self, name: str, decay: str, state: ir.Value, x: ir.Value, leak: str = "") -> ir.Value:
        """The new state. The range that shows that no clamp is needed holds for each partial sum too."""
        given = [self._decayed(decay, state), x, self.parameter(leak) if leak else None]
        total, *rest = [term for term in given if term is not None]
        if self._clamp and len(rest) == 1:
            return named(func.CallOp([self._type], ADD_SATURATING, [total, rest[0]]).results[0], name)
        if self._clamp:
            return super().integrate(name, decay, state, x, leak)
        for term in rest:
            total = add(total, term)
        return named(total, name) if rest else total


class _Layer:
    """One snn.event: `o` is the output at hand, `values` what its operations have computed for it."""

    def __init__(self, op: ir.Operation) -> None:
        self.op = op
        self.n = int(ir.IntegerAttr(op.attributes["n"]).value)
        body = [each.operation for each in op.regions[0].blocks[0].operations]
        self.buffers = [each.result for each in body if each.name == "memref.alloca"]
        self.steps = [each for each in body if each.name not in ("memref.alloca", "omp.terminator")]
        self.gathers = [_GATHERS[each.name](each) for each in self.steps if each.name in _GATHERS]
        self.values: dict[ir.Value, ir.Value] = {}
        self.resets: dict[ir.Value, tuple[ir.Value, ir.Value]] = {}  # by spikes: the state, and what it becomes
        self.o: ir.Value | None = None

    def lower(self) -> None:
        for step in self.steps:
            if step.name == "snn.emit":
                store(index(0), _Op(step).one("count"))
        if not self.gathers:
            with loop(0, self.n) as o:
                self._outputs(o)
        elif isinstance(self.gathers[0], WindowGather):
            self._windows([gather for gather in self.gathers if isinstance(gather, WindowGather)])
        else:
            with self._unless_still():
                self._blocks(self.n)

    def _windows(self, gathers: list[WindowGather]) -> None:
        """All places of a convolution's output, and at each one group of channels after the other."""
        _, width, channels = gathers[0].windows.output
        groups = gathers[0].groups
        members = channels // groups
        with gathers[0].windows.places() as place, loop(0, groups, name="group") as group:
            for gather in gathers:
                gather.move_to(place, group)
            at = named(times(flat([*place, group], [width, groups]), members), "at")
            with self._unless_still():
                self._blocks(members, at, group)

    @contextmanager
    def _unless_still(self) -> Iterator[None]:
        """Where nothing happens unless something arrives, a branch that is taken if something does."""
        count = self.gathers[0].count
        if count is None or not self._is_still():
            yield
            return
        with branch(arith.CmpIOp(arith.CmpIPredicate.ne, count_of(count), index(0)).result):
            yield

    def _is_still(self) -> bool:
        """Do the outputs keep their state when their sums are 0, and is there nothing else to write? So it is with neurons that do not
        decay: what is above the threshold has spiked when it came there."""
        if self.gathers[0].b is not None:
            return False
        for step in self.steps:
            kind = step.name.removeprefix("snn.")
            if kind in ("lif", "li"):
                if not _keeps(_Op(step), self.buffers):
                    return False
            elif kind not in ("gather", "gather2d", "rescale", "gain", "emit"):
                return False
        return any(step.name in ("snn.lif", "snn.li") for step in self.steps)

    def _blocks(self, n: int, at: ir.Value | None = None, group: ir.Value | None = None) -> None:
        """All n outputs; or of a convolution those of one group at one place, which begin at `at`."""
        width = self.gathers[0].width
        if width >= n:
            self._block(index(0), n, n, at, group)
            return
        with loop(0, n // width) as block, ir.Location.unknown():
            self._block(block, width, n, at, group)
        if n % width:
            self._block(index(n // width), n % width, n, at, group)

    def _block(self, block: ir.Value, count: int, n: int, at: ir.Value | None, group: ir.Value | None) -> None:
        """`count` of n outputs."""
        width = self.gathers[0].width
        number = block if group is None else plus(times(group, -(-n // width)), block)
        sums = [gather.sums(number, count) for gather in self.gathers]
        first = None if width >= n else named(times(block, width), "first")
        with loop(0, count, hint=UNROLLED if self.gathers[0].packed else "") as k:
            member = k if first is None else plus(first, k)
            channel = member if group is None else plus(times(group, n), member)
            self.values.clear()
            for gather, array in zip(self.gathers, sums, strict=True):
                self.values[gather.y] = gather.biased(load(array, k), channel)
            self._outputs(member if at is None else plus(at, member))

    def _outputs(self, o: ir.Value) -> None:
        """One output."""
        self.o = o
        for step in self.steps:
            if step.name in _GATHERS:
                gather = next(each for each in self.gathers if each.op == step)
                self.write(gather.y, self.values[gather.y])
            elif step.name == "snn.emit":
                emit = _Op(step)
                with branch(_condition(self.read(emit.one("spikes")))):
                    if emit.one("spikes") in self.resets:
                        v, reset = self.resets[emit.one("spikes")]
                        store(reset, v, o)
                    append(emit.one("events"), emit.one("count"), o)
            else:
                _LOWERINGS[step.name.removeprefix("snn.")](_Scalar(step, self))

    def emits(self, spikes: ir.Value) -> bool:
        """Are these spikes listed?"""
        return any(step.name == "snn.emit" and _Op(step).one("spikes") == spikes for step in self.steps)

    def read(self, array: ir.Value) -> ir.Value:
        """The element of an array at the output at hand."""
        if array in self.values:
            return self.values[array]
        if array in self.buffers:  # not written yet: nobody will use it
            return constant(element_type(array), 0)
        return load(array, self.o)

    def write(self, array: ir.Value, value: ir.Value) -> None:
        self.values[array] = value
        if array not in self.buffers:
            store(value, array, self.o)


class _Scalar(_Op):
    """An operation of a layer, for one output."""

    def __init__(self, op: ir.Operation, layer: _Layer) -> None:
        super().__init__(op)
        self.layer = layer

    def elementwise(
        self, inputs: Sequence[ir.Value], outputs: Sequence[ir.Value], body: Body, tables: Sequence[ir.Value] = ()
    ) -> None:
        results = list(body(*(self.layer.read(array) for array in (*inputs, *tables, *outputs))))
        after = results[-2] if len(results) > 1 else None
        if after is not None and self.layer.emits(outputs[-1]) and after.owner.name == "arith.select":
            # There is a branch for the list anyway: the reset goes into it.
            _, reset, results[-2] = after.owner.operands
            self.layer.resets[outputs[-1]] = (outputs[-2], reset)
        for array, value in zip(outputs, results, strict=True):
            self.layer.write(array, value)

    def neuron(self, tables: dict[str, ir.Value], type_: ir.Type) -> _Neuron:
        return (_Neuron if is_float(type_) else _ExactNeuron)(self, tables, type_)


def _keeps(neuron: _Op, buffers: list[ir.Value]) -> bool:
    """Does a neuron that gets 0 keep its state, and not spike again?"""
    if any(neuron.all(name) for name in ("decay", "leak", "threshold", "reset")):
        return False
    type_ = element_type(neuron.one("v"))
    one = 1 if is_float(type_) else 1 << neuron.integer("d_scale")
    if neuron.uniform("decay", type_) != one or neuron.uniform("leak", type_) != 0:
        return False
    if not neuron.all("spikes"):
        return True
    threshold = neuron.uniform("threshold", type_)
    resets = not neuron.integer("subtract") and not neuron.integer("reset_delay")
    return resets and threshold >= 0 and neuron.uniform("reset", type_) <= threshold and neuron.one("spikes") in buffers


def _condition(spike: ir.Value) -> ir.Value:
    """What a spike was made of: the comparison."""
    if not isinstance(spike.owner, ir.Block) and spike.owner.name in ("arith.extui", "arith.select"):
        return spike.owner.operands[0]
    return scalar.is_not(spike, 0)


_GATHERS: dict[str, type[Gather]] = {"snn.gather": Gather, "snn.gather2d": WindowGather}


def _event(op: _Op) -> None:
    _Layer(op._op).lower()


_EVENT_LOWERINGS: dict[str, Callable[[_Op], None]] = {
    "events": _events,
    "spread": _spread,
    "keep": _keep,
    "places": _places,
    "scatter2d": _scatter2d,
    "event": _event,
}
