# SPDX-License-Identifier: Apache-2.0
"""The pass EventToLoops: the event form of the snn dialect becomes loops of scf over arith and memref.

A layer is a loop over blocks of outputs. For each block, a synapse adds up the weights of its listed inputs, in registers where
weights are packed; then a loop over the outputs of the block does all else, one output at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from mlir import ir
from mlir.dialects import arith, func, memref, scf
from mlir.passmanager import ExternalPass
from mlir.rewrite import RewritePatternSet, walk_and_apply_patterns

from . import scalar
from .scalar import add, constant, integer, is_float, multiply, named, resize, subtract
from .snn_to_linalg import _LOWERINGS, Body, _calls, _defines, _element, _Neuron, _Op, _pattern, _shape

FLUSH = 257
"""So many bytes fit a lane of 16 bits: 257 * 255 = 65535."""

FEW = 8
"""Rows of so many weights are no vectors."""

LANES = 0x00FF00FF
BIAS = 128
UNROLLED = "unrolled"
"""The location of a loop that C compilers are asked to unroll."""

ROW_BY_ROW = "row_by_row"
"""The location of a loop whose rounds C compilers are asked not to jam together."""

ANY_OF_FOUR = "any_of_four"
"""A helper function of snn_builder.c: is one of four int8 not 0?"""

UPPER_PRODUCT = "upper_product"
"""A helper function of snn_builder.c: (a * b) >> 32."""


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
                for name in sorted(_helpers(module)):
                    call = next(op for op in _walk_calls(module, name))
                    types = [value.type for value in call.operands], [result.type for result in call.results]
                    func.FuncOp(name, types, visibility="private")


def _helpers(module: ir.Operation) -> set[str]:
    return {name for name in (ANY_OF_FOUR, UPPER_PRODUCT) if _calls(module, name)}


def _walk_calls(module: ir.Operation, name: str) -> Iterator[ir.Operation]:
    from ..dialect.checks import walk

    for op in walk(module):
        if op.name == "func.call" and ir.FlatSymbolRefAttr(op.attributes["callee"]).value == name:
            yield op


# Scalars, loops, unsigned memory


def _index(value: int) -> ir.Value:
    return constant(ir.IndexType.get(), value)


@contextmanager
def _loop(
    first: ir.Value | int, end: ir.Value | int, step: int = 1, *, unrolled: bool = False, rows: bool = False
) -> Iterator[ir.Value]:
    """for (i = first; i < end; i += step). `unrolled`: in C too, so that what it indexes can live in registers. `rows`: each
    round adds a row, and is not to be mixed with the next."""
    bounds = [_index(bound) if isinstance(bound, int) else bound for bound in (first, end)]
    hint = UNROLLED if unrolled else ROW_BY_ROW if rows else ""
    loop = scf.ForOp(*bounds, _index(step), loc=ir.Location.name(hint) if hint else None)
    with ir.InsertionPoint(loop.body):
        yield loop.induction_variable
        scf.YieldOp([])


@contextmanager
def _if(condition: ir.Value) -> Iterator[None]:
    branch = scf.IfOp(condition)
    with ir.InsertionPoint(branch.then_block):
        yield
        scf.YieldOp([])


def _variable(name: str, type_: ir.Type, value: ir.Value | None = None, count: int = 1) -> ir.Value:
    """A local array; of one element, and so a variable in C, unless there are more."""
    array = memref.AllocaOp(_memref(count, type_), [], [], loc=ir.Location.name(name)).memref
    if value is not None:
        _store(value, array)
    return array


def _memref(count: int, type_: ir.Type) -> ir.MemRefType:
    return ir.MemRefType.get([count], type_)


def _load(array: ir.Value, *where: ir.Value | int) -> ir.Value:
    """An element, signless whatever the array says."""
    indices = [_index(place) if isinstance(place, int) else place for place in where or (0,)]
    value = memref.LoadOp(array, indices).result
    return _signless(value)


def _signless(value: ir.Value) -> ir.Value:
    if not str(value.type).startswith("ui"):
        return value
    return _convert(value, integer(ir.IntegerType(value.type).width))


def _convert(value: ir.Value, type_: ir.Type) -> ir.Value:
    return ir.Operation.create("builtin.unrealized_conversion_cast", results=[type_], operands=[value]).result


def _store(value: ir.Value, array: ir.Value, *where: ir.Value | int) -> None:
    indices = [_index(place) if isinstance(place, int) else place for place in where or (0,)]
    element = _element(array)
    memref.StoreOp(_convert(value, element) if str(element).startswith("ui") else value, array, indices)


def _count_of(count: ir.Value) -> ir.Value:
    """How many are listed, as an index."""
    value = _load(count)
    return value if isinstance(value.type, ir.IndexType) else arith.IndexCastUIOp(ir.IndexType.get(), value).result


def _listed(events: ir.Value, k: ir.Value, name: str) -> ir.Value:
    return named(arith.IndexCastUIOp(ir.IndexType.get(), _load(events, k)).result, name)


def _append(events: ir.Value, count: ir.Value, place: ir.Value) -> None:
    """events[count++] = place"""
    width = ir.IntegerType(_element(events)).width
    _store(arith.IndexCastOp(integer(width), place).result, events, _load(count))
    _store(add_index(_load(count), 1), count)


def add_index(a: ir.Value, b: ir.Value | int) -> ir.Value:
    """Index a + b."""
    return arith.AddIOp(a, _index(b) if isinstance(b, int) else b).result


def _minimum(a: ir.Value, b: ir.Value) -> ir.Value:
    """The smaller index."""
    return scalar.select(arith.CmpIOp(arith.CmpIPredicate.ult, a, b).result, a, b)


def _is_not(value: ir.Value, other: float) -> ir.Value:
    if is_float(value.type):
        return arith.CmpFOp(arith.CmpFPredicate.UNE, value, constant(value.type, other)).result
    return arith.CmpIOp(arith.CmpIPredicate.ne, value, constant(value.type, other)).result


# Lists


def _events(op: _Op) -> None:
    x, events, count = op.one("x"), op.one("events"), op.one("count")
    graded = op.all("graded")
    n, element = _shape(x)[0], _element(x)
    i8 = integer(8)
    with ir.Location.unknown():
        zero = _index(0)
    wide = not isinstance(_element(count), ir.IndexType)
    local = _variable("count", ir.IndexType.get()) if wide else count
    _store(zero, local)
    for flag in graded:
        _store(constant(i8, 0), flag)

    def one(i: ir.Value) -> None:
        with _if(_is_not(_load(x, i), 0)):
            _append(events, local, i)
            for flag in graded:
                if is_float(element):
                    bit = scalar.flag(_is_not(_load(x, i), 1), i8)
                elif str(element) == "i8":
                    bit = scalar.mask(_load(x, i), -2)
                else:
                    bit = scalar.flag(_is_not(_load(x, i), 1), i8)
                _store(arith.OrIOp(_load(flag), bit).result, flag)

    words = n // 4 * 4 if str(element) == "i8" and n >= 8 else 0
    if words:
        with (
            _loop(0, words, 4) as i,
            _if(func.CallOp([integer(1)], ANY_OF_FOUR, [x, i]).results[0]),
            _loop(i, add_index(i, 4)) as j,
        ):
            one(j)
    if words < n:
        with _loop(words, n) as i:
            one(i)
    if wide:
        _store(arith.IndexCastOp(integer(ir.IntegerType(_element(count)).width), _load(local)).result, count)


def _spread(op: _Op) -> None:
    events, count, y = op.one("events"), op.one("count"), op.one("y")
    element = _element(y)
    with _loop(0, _shape(y)[0]) as i:
        _store(constant(element, 0), y, i)
    with _loop(0, _count_of(count)) as k:
        _store(constant(element, 1), y, _listed(events, k, "input"))


def _keep(op: _Op) -> None:
    events, count, kept, kept_count = (op.one(name) for name in ("events", "count", "kept", "kept_count"))
    width = integer(ir.IntegerType(_element(kept_count)).width)
    _store(arith.IndexCastOp(width, _count_of(count)).result, kept_count)
    with _loop(0, _count_of(count)) as k:
        _store(_load(events, k), kept, k)


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
        if self._clamp:
            return super().integrate(name, decay, state, x, leak)
        terms = [self._decayed(decay, state), x, self.parameter(leak) if leak else None]
        total, *rest = [term for term in terms if term is not None]
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
        self.gathers = [_Gather(each, self.n) for each in self.steps if each.name == "snn.gather"]
        self.values: dict[ir.Value, ir.Value] = {}
        self.resets: dict[ir.Value, tuple[ir.Value, ir.Value]] = {}  # by spikes: the state, and what it becomes
        self.o: ir.Value | None = None

    def lower(self) -> None:
        for step in self.steps:
            if step.name == "snn.emit":
                _store(_index(0), _Op(step).one("count"))
        if not self.gathers:
            with _loop(0, self.n) as o:
                self._outputs(o, None)
            return
        width = self.gathers[0].width
        if width >= self.n:
            self._block(_index(0), self.n)
            return
        with _loop(0, self.n // width) as block, ir.Location.unknown():
            self._block(block, width)
        if self.n % width:
            self._block(_index(self.n // width), self.n % width)

    def _block(self, block: ir.Value, count: int) -> None:
        """`count` outputs, from block * width on."""
        sums = [gather.sums(block, count) for gather in self.gathers]
        width = self.gathers[0].width
        first = None if width >= self.n else named(arith.MulIOp(block, _index(width)).result, "first")
        with _loop(0, count, unrolled=self.gathers[0].packed) as k:
            o = k if first is None else add_index(first, k)
            self.values.clear()
            for gather, array in zip(self.gathers, sums, strict=True):
                self.values[gather.y] = _load(array, k)
            self._outputs(o, first)

    def _outputs(self, o: ir.Value, first: ir.Value | None) -> None:
        self.o = o
        if first is None:
            self.values.clear() if not self.gathers else None
        for step in self.steps:
            if step.name == "snn.gather":
                gather = next(each for each in self.gathers if each.op == step)
                self.write(gather.y, gather.biased(self.values[gather.y], o))
            elif step.name == "snn.emit":
                emit = _Op(step)
                with _if(_condition(self.read(emit.one("spikes")))):
                    if emit.one("spikes") in self.resets:
                        v, reset = self.resets[emit.one("spikes")]
                        _store(reset, v, o)
                    _append(emit.one("events"), emit.one("count"), o)
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
            return constant(_element(array), 0)
        return _load(array, self.o)

    def write(self, array: ir.Value, value: ir.Value) -> None:
        self.values[array] = value
        if array not in self.buffers:
            _store(value, array, self.o)


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


def _condition(spike: ir.Value) -> ir.Value:
    """What a spike was made of: the comparison."""
    if not isinstance(spike.owner, ir.Block) and spike.owner.name in ("arith.extui", "arith.select"):
        return spike.owner.operands[0]
    return _is_not(spike, 0)


class _Gather:
    """The sums of one synapse."""

    def __init__(self, op: ir.Operation, n: int) -> None:
        known = _Op(op)
        self.op, self.w, self.y = op, known.one("w"), known.one("y")
        self.x, self.b, self.graded = (next(iter(known.all(name)), None) for name in ("x", "b", "graded"))
        self.events, self.count = (next(iter(known.all(name)), None) for name in ("events", "count"))
        _, self.inputs, width = _shape(self.w)
        self.packed = str(_element(self.w)) == "ui32"
        self.words = width
        self.width = width * 4 if self.packed else width
        self.type = _element(self.y)
        self.name = scalar.name_of(self.y, "sum") if not isinstance(self.y.owner, ir.Block) else "sum"

    def biased(self, total: ir.Value, o: ir.Value) -> ir.Value:
        """The sum of one output, with its bias."""
        return total if self.b is None else add(total, resize(_load(self.b, o), self.type))

    def sums(self, block: ir.Value, count: int) -> ir.Value:
        """An array with the sums of a block."""
        if not self.packed:
            sums = _variable(self.name, self.type, count=count)
            self._clear(sums, count)
            self._by_kind(
                lambda: self._add_rows(sums, block, count, False), lambda: self._add_rows(sums, block, count, True)
            )
            return sums
        sums = _variable(self.name, self.type, count=self.width)
        self._by_kind(lambda: self._add_lanes(sums, block), lambda: self._add_products(sums, block))
        return sums

    def _by_kind(self, spikes: Callable[[], None], values: Callable[[], None]) -> None:
        """Spikes are only added; values are multiplied. Whether the network's input holds values is known only at run time."""
        if self.x is None:
            spikes()
        elif self.graded is None:
            values()
        else:
            branch = scf.IfOp(_is_not(_load(self.graded), 0), has_else=True)
            with ir.InsertionPoint(branch.then_block):
                values()
                scf.YieldOp([])
            with ir.InsertionPoint(branch.else_block):
                spikes()
                scf.YieldOp([])

    @contextmanager
    def _each(self, first: ir.Value | int = 0, end: ir.Value | None = None) -> Iterator[ir.Value]:
        """A loop over the inputs that count."""
        rows = not self.packed and self.width > FEW
        if self.events is None:
            with _loop(0, self.inputs, rows=rows) as i:
                yield i
        else:
            with _loop(first, end or _count_of(self.count), rows=rows) as k:
                yield _listed(self.events, k, "input")

    def _clear(self, sums: ir.Value, count: int) -> None:
        with _loop(0, count, unrolled=self.packed) as k:
            _store(constant(self.type, 0), sums, k)

    def _add_rows(self, sums: ir.Value, block: ir.Value, count: int, graded: bool) -> None:
        """Plain weights: one row of the block per input."""
        with self._each() as i:
            x = resize(_load(self.x, i), self.type) if graded else None
            with _loop(0, count) as k:
                weight = resize(_load(self.w, block, i, k), self.type)
                _store(add(_load(sums, k), weight if x is None else multiply(weight, x)), sums, k)

    def _add_products(self, sums: ir.Value, block: ir.Value) -> None:
        """Packed weights times values."""
        i32 = integer(32)
        self._clear(sums, self.width)
        with self._each() as i:
            x = named(resize(_load(self.x, i), self.type), "value")
            with _loop(0, self.words, unrolled=True) as q:
                word = named(_load(self.w, block, i, q), "w")
                first = arith.MulIOp(q, _index(4)).result
                for lane in range(4):
                    byte = scalar.mask(arith.ShRUIOp(word, constant(i32, 8 * lane)).result if lane else word, 0xFF)
                    weight = resize(subtract(byte, constant(i32, BIAS)), self.type)
                    place = add_index(first, lane)
                    _store(add(_load(sums, place), multiply(weight, x)), sums, place)

    def _add_lanes(self, sums: ir.Value, block: ir.Value) -> None:
        """Packed weights of spikes: bytes 0 and 2 of a word in one sum, 1 and 3 in another, each in 16 bits."""
        if self.inputs <= FLUSH:
            self._lanes(sums, block, 0, _count_of(self.count), clear=True)
            return
        self._clear(sums, self.width)
        with _loop(0, _count_of(self.count), FLUSH) as first:
            end = named(_minimum(add_index(first, FLUSH), _count_of(self.count)), "end")
            self._lanes(sums, block, first, end, clear=False)

    def _lanes(self, sums: ir.Value, block: ir.Value, first: ir.Value | int, end: ir.Value, clear: bool) -> None:
        i32, unsigned = integer(32), ir.IntegerType.get_unsigned(32)
        zero = constant(i32, 0)
        pairs = [
            (_variable(f"even{q}", unsigned, zero), _variable(f"odd{q}", unsigned, zero)) for q in range(self.words)
        ]
        with self._each(first, end) as i:
            for q, (even, odd) in enumerate(pairs):
                word = named(memref.LoadOp(self.w, [block, i, _index(q)]).result, "w")
                for lanes, shift in ((even, 0), (odd, 8)):
                    bits = _signless(word)
                    bits = arith.ShRUIOp(bits, constant(i32, shift)).result if shift else bits
                    _store(arith.AddIOp(_load(lanes), scalar.mask(bits, LANES)).result, lanes)
        spikes = end if isinstance(first, int) else arith.SubIOp(end, first).result
        bias = named(multiply(arith.IndexCastOp(i32, spikes).result, constant(i32, BIAS)), "bias")
        for q, (even, odd) in enumerate(pairs):
            for lane in range(4):
                bits = _load((even, odd)[lane % 2])
                high = lane >= 2
                bits = arith.ShRUIOp(bits, constant(i32, 16)).result if high else scalar.mask(bits, 0xFFFF)
                value = resize(subtract(bits, bias), self.type)
                place = 4 * q + lane
                _store(value if clear else add(_load(sums, place), value), sums, place)


def _event(op: _Op) -> None:
    _Layer(op._op).lower()


_EVENT_LOWERINGS: dict[str, Callable[[_Op], None]] = {
    "events": _events,
    "spread": _spread,
    "keep": _keep,
    "event": _event,
}
