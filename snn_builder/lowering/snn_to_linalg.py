# SPDX-License-Identifier: Apache-2.0
"""The pass SNNToLinalg: each snn operation becomes linalg operations on the same memrefs, bit for bit what it means.

An element-wise operation is one linalg.generic whose body is the formula; linear is a fill, a product and the bias.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from mlir import ir
from mlir.dialects import linalg
from mlir.passmanager import ExternalPass
from mlir.rewrite import PatternRewriter, RewritePatternSet, walk_and_apply_patterns

from ..dialect.checks import operands, walk
from . import loops, scalar
from .memory import element_type, extents
from .scalar import add, greater, is_float, less, multiply, named, resize, select, shift_right, subtract

Body = Callable[..., Sequence[ir.Value]]


class SNNToLinalg:
    """The pass: `PassManager.add(SNNToLinalg(), name="snn-to-linalg")`, on a module."""

    def __call__(self, module: ir.Operation, pass_: ExternalPass) -> None:
        failures: list[Exception] = []
        with module.context:
            patterns = RewritePatternSet()
            for name, lowering in _LOWERINGS.items():
                patterns.add(f"snn.{name}", _pattern(lowering, failures))
            walk_and_apply_patterns(module, patterns.freeze())
            if failures:
                raise failures[0]
            block = module.regions[0].blocks[0]
            if _calls(module, scalar.SATURATE) and not _defines(block, scalar.SATURATE):
                with ir.InsertionPoint.at_block_begin(block), ir.Location.unknown():
                    scalar.define_saturate()


def _pattern(
    lowering: Callable[[_Op], None], failures: list[Exception]
) -> Callable[[ir.OpView, PatternRewriter], bool]:
    """A rewrite pattern; an exception must not cross the C++ that calls it, so it is kept for later."""

    def rewrite(op: ir.OpView, rewriter: PatternRewriter) -> bool:
        try:
            with rewriter.ip, op.location:
                lowering(_Op(op.operation))
            rewriter.erase_op(op.operation)
        except Exception as failure:
            failures.append(failure)
        return bool(failures)  # true: no match

    return rewrite


def _calls(module: ir.Operation, callee: str) -> bool:
    calls = (op for op in walk(module) if op.name == "func.call")
    return any(ir.FlatSymbolRefAttr(op.attributes["callee"]).value == callee for op in calls)


def _defines(block: ir.Block, name: str) -> bool:
    symbols = (op.operation.attributes["sym_name"] for op in block.operations if "sym_name" in op.operation.attributes)
    return any(ir.StringAttr(symbol).value == name for symbol in symbols)


class _Op:
    """The operation to be lowered: its operands and attributes by name."""

    def __init__(self, op: ir.Operation) -> None:
        self._op = op
        self._operands = operands(op)

    def elementwise(
        self, inputs: Sequence[ir.Value], outputs: Sequence[ir.Value], body: Body, tables: Sequence[ir.Value] = ()
    ) -> None:
        """Runs a body over all elements, as _elementwise does."""
        _elementwise(inputs, outputs, body, tables)

    def neuron(self, tables: dict[str, ir.Value], type_: ir.Type) -> _Neuron:
        """The formula of a neuron operation."""
        return _Neuron(self, tables, type_)

    def one(self, name: str) -> ir.Value:
        """The only value of an operand."""
        (value,) = self._operands[name]
        return value

    def all(self, name: str) -> list[ir.Value]:
        """The values of an operand: none where it is optional and absent."""
        return self._operands.get(name, [])

    def integer(self, name: str) -> int:
        return int(ir.IntegerAttr(self._op.attributes[name]).value)

    def integers(self, name: str) -> list[int]:
        return list(ir.DenseI64ArrayAttr(self._op.attributes[name]))

    def uniform(self, name: str, type_: ir.Type) -> float:
        """The parameter's attribute for that element type (floats: rounded to it)."""
        if is_float(type_):
            value = ir.FloatAttr(self._op.attributes[f"{name}_float"]).value
            return float(ir.FloatAttr.get(type_, value).value)
        return self.integer(f"{name}_int")


def _row_major(shape: Sequence[int], first: int = 0) -> ir.AffineExpr:
    """The flat index of dimensions first, first + 1, ... of an array."""
    terms = [
        ir.AffineExpr.get_dim(first + n) * math.prod(shape[n + 1 :]) for n in range(len(shape))
    ]  # fmt: skip
    return sum(terms[1:], terms[0])


def _generic(
    inputs: Sequence[ir.Value],
    outputs: Sequence[ir.Value],
    indices: Sequence[Sequence[ir.AffineExpr]],
    parallel: int,
    body: Body,
    reduction: int = 0,
) -> None:
    """Loops over `parallel` + `reduction` dimensions; `indices` says where in each array; `body` gets the elements."""
    maps = [ir.AffineMap.get(parallel + reduction, 0, list(where)) for where in indices]
    kinds = ["parallel"] * parallel + ["reduction"] * reduction
    op = linalg.GenericOp(
        [], inputs, outputs, ir.ArrayAttr.get([ir.AffineMapAttr.get(m) for m in maps]),
        ir.ArrayAttr.get([ir.Attribute.parse(f"#linalg.iterator_type<{kind}>") for kind in kinds]),
    )  # fmt: skip
    elements = [element_type(array) for array in (*inputs, *outputs)]
    block = ir.Block.create_at_start(op.regions[0], elements, [ir.Location.unknown()] * len(elements))
    with ir.InsertionPoint(block), ir.Location.unknown():
        linalg.YieldOp(list(body(*block.arguments)))


def _elementwise(
    inputs: Sequence[ir.Value], outputs: Sequence[ir.Value], body: Body, tables: Sequence[ir.Value] = ()
) -> None:
    """One loop nest over arrays of one shape. body(*inputs, *tables, *outputs); tables are indexed row-major.

    An array of rank 1 among arrays of higher rank is indexed row-major too.
    """
    arrays = [*inputs, *outputs]
    shape = max((extents(array) for array in arrays), key=len)
    natural = [ir.AffineExpr.get_dim(n) for n in range(len(shape))]
    flat = [_row_major(shape)]

    def where(array: ir.Value) -> list[ir.AffineExpr]:
        return natural if extents(array) == shape else flat

    indices = [*map(where, inputs), *([flat] * len(tables)), *map(where, outputs)]
    _generic([*inputs, *tables], outputs, indices, len(shape), body)


def _linear(op: _Op) -> None:
    x, w, y = op.one("x"), op.one("w"), op.one("y")
    type_, shape = element_type(y), extents(x)
    with ir.Location.unknown():
        zero = scalar.constant(type_, 0)
    linalg.fill(zero, outs=[y])
    o = ir.AffineExpr.get_dim(0)
    x_index = [ir.AffineExpr.get_dim(1 + n) for n in range(len(shape))]

    def product(w: ir.Value, x: ir.Value, y: ir.Value) -> list[ir.Value]:
        return [add(y, multiply(resize(w, type_), resize(x, type_)))]

    indices = [[o, _row_major(shape, 1)], x_index, [o]]
    _generic([w, x], [y], indices, 1, product, reduction=len(shape))
    for b in op.all("b"):
        _elementwise([b], [y], lambda b, y: [add(y, resize(b, type_))])


def _rescale(op: _Op) -> None:
    x, y = op.one("x"), op.one("y")
    shift, clamp, target = op.integer("shift"), bool(op.integer("saturate")), element_type(y)
    i32, i64 = scalar.integer(32), scalar.integer(64)

    def body(x: ir.Value, y: ir.Value) -> list[ir.Value]:
        bits = scalar.width(x)
        if shift <= 0:
            result = shift_right(resize(x, i32) if bits < 32 else x, -shift) if shift else x
        elif not clamp:
            result = scalar.shift_left(resize(x, target), shift)
        elif bits + shift < 64:
            result = scalar.shift_left(resize(x, i64), shift)
        else:
            result = _saturating_shift(x, shift)
        return [resize(scalar.saturate(result) if clamp else result, target)]

    op.elementwise([x], [y], body)


def _saturating_shift(x: ir.Value, shift: int) -> ir.Value:
    """x * 2^shift clamped to 32 bits where the product may not even fit 64: compare first, then shift."""
    i32, low, high = scalar.integer(32), -(2**31), 2**31 - 1
    too_low = less(x, scalar.constant(x.type, -(-low >> shift)))
    too_high = greater(x, scalar.constant(x.type, high >> shift))
    fits = scalar.shift_left(resize(x, i32), shift, wrap=True)
    above = select(too_high, scalar.constant(i32, high), fits)
    return select(too_low, scalar.constant(i32, low), above)


def _sum(op: _Op) -> None:
    xs, y = [*op.all("xs"), *op.all("others")], op.one("y")
    clamp, type_ = bool(op.integer("saturate")) and not is_float(element_type(y)), element_type(y)
    wide = scalar.integer(64) if clamp and len(xs) > 1 else type_

    def body(*elements: ir.Value) -> list[ir.Value]:
        total = resize(elements[0], wide)
        for element in elements[1:-1]:
            total = add(total, resize(element, wide))
        return [resize(scalar.saturate(total) if clamp else total, type_)]

    op.elementwise(xs, [y], body)


def _gain(op: _Op) -> None:
    x, y, type_ = op.one("x"), op.one("y"), element_type(op.one("y"))
    m, e = op.all("m"), op.all("e")
    uniform, shift, wide = op.uniform("gain", type_), op.integer("gain_shift"), scalar.integer(64)
    if not m and uniform == 1 and (is_float(type_) or shift == 0):
        if x != y:
            op.elementwise([x], [y], lambda x, y: [x])
        return

    def body(x: ir.Value, *others: ir.Value) -> list[ir.Value]:
        factor = others[0] if m else scalar.constant(type_, uniform)
        if is_float(type_):
            return [multiply(factor, x)]
        product = multiply(resize(factor, wide), resize(x, wide))
        # The mask changes no shift that is allowed, and shows every compiler that it is one.
        result = shift_right(product, resize(scalar.mask(others[1], 31), wide) if e else shift)
        return [scalar.saturate(result) if op.integer("saturate") else resize(result, type_)]

    op.elementwise([x], [y], body, tables=[*m, *e])


class _Neuron:
    """The update of one neuron, inside a body: parameters are constants, or elements of their tables."""

    def __init__(self, op: _Op, tables: dict[str, ir.Value], type_: ir.Type) -> None:
        self._op = op
        self._tables = tables
        self._type = type_
        self._clamp = not is_float(type_) and bool(op.integer("saturate"))
        narrow = is_float(type_) or (not self._clamp and op.integer("product_bits") == 32)
        self._wide = type_ if narrow else scalar.integer(64)

    def parameter(self, name: str) -> ir.Value | None:
        """The parameter's value; None if it is 0 for every neuron."""
        if name in self._tables:
            return self._tables[name]
        uniform = self._op.uniform(name, self._type)
        return scalar.constant(self._type, uniform) if uniform else None

    def _decayed(self, decay: str, state: ir.Value) -> ir.Value | None:
        """decay * state, integers >> d_scale; None if decay is 0."""
        factor = self.parameter(decay)
        if factor is None:
            return None
        shift = 0 if is_float(self._type) else self._op.integer("d_scale")
        if decay not in self._tables and self._op.uniform(decay, self._type) == 1 << shift:
            return state
        product = multiply(resize(factor, self._wide), resize(state, self._wide))
        return shift_right(product, shift) if shift else product

    def integrate(self, name: str, decay: str, state: ir.Value, x: ir.Value, leak: str = "") -> ir.Value:
        """The new state: (decay * state + x) + leak, clamped where that can be needed."""
        terms = [self._decayed(decay, state), x, self.parameter(leak) if leak else None]
        first, *rest = [term for term in terms if term is not None]
        if not rest:
            return first
        # A sum of two that is known to fit needs no more than its own width. With three, the first two might not fit.
        wide = self._wide if self._clamp or len(rest) > 1 else self._type
        total = resize(first, wide)
        for term in rest:
            total = add(total, resize(term, wide))
        return named(scalar.saturate(total) if self._clamp else resize(total, self._type), name)

    def _limit(self) -> ir.Value:
        threshold = self.parameter("threshold")
        return scalar.constant(self._type, 0) if threshold is None else threshold

    def _resets(self, late: bool, subtracts: bool) -> bool:
        """Is this the neuron's way to reset?"""
        delay = bool(self._op.all("spikes")) and bool(self._op.integer("reset_delay"))
        return bool(self._op.all("spikes")) and delay == late and bool(self._op.integer("subtract")) == subtracts

    def before(self, old: ir.Value) -> ir.Value:
        """The old v, after the reset that a spike of the previous step left to this one."""
        if not self._resets(late=True, subtracts=False):
            return old
        reset = self.parameter("reset")
        return select(greater(old, self._limit()), scalar.constant(self._type, 0) if reset is None else reset, old)

    def after(self, v: ir.Value, old: ir.Value) -> ir.Value:
        """The new v, less the threshold that a spike of the previous step left to this one."""
        if not self._resets(late=True, subtracts=True):
            return v
        step = select(greater(old, self._limit()), self._limit(), scalar.constant(self._type, 0))
        if self._clamp:
            return named(scalar.saturate(subtract(resize(v, self._wide), resize(step, self._wide))), "v")
        return named(subtract(v, step), "v")

    def fire(self, v: ir.Value, spike: ir.Type) -> list[ir.Value]:
        """[v after the reset, the spike]."""
        threshold = self.parameter("threshold")
        limit = scalar.constant(self._type, 0) if threshold is None else threshold
        fired = named(greater(v, limit), "fired")
        if self._op.integer("reset_delay"):
            after = v
        elif not self._op.integer("subtract"):
            reset = self.parameter("reset")
            after = select(fired, scalar.constant(self._type, 0) if reset is None else reset, v)
        elif threshold is None:
            after = v
        elif self._clamp:
            after = select(fired, scalar.saturate(subtract(resize(v, self._wide), resize(limit, self._wide))), v)
        elif is_float(self._type):
            after = select(fired, subtract(v, limit), v)
        else:  # without a spike v - threshold may overflow, so it must not even be computed
            after = subtract(v, select(fired, limit, scalar.constant(self._type, 0)))
        return [after, scalar.flag(fired, spike)]


def _neuron(op: _Op) -> None:
    states = [*op.all("i"), *op.all("v")]
    outputs = [*states, *op.all("spikes")]
    type_ = element_type(op.one("v"))
    names = [name for name in ("decay", "cur_decay", "vol_decay", "leak", "threshold", "reset") if op.all(name)]

    def body(x: ir.Value, *others: ir.Value) -> list[ir.Value]:
        neuron = op.neuron(dict(zip(names, others, strict=False)), type_)
        old = others[len(names) :]
        if len(states) == 1:
            new = [neuron.integrate("v", "decay", neuron.before(old[0]), x, "leak")]
        else:
            current = neuron.integrate("current", "cur_decay", old[0], x)
            new = [current, neuron.integrate("v", "vol_decay", neuron.before(old[1]), current, "leak")]
        new[-1] = neuron.after(new[-1], old[len(states) - 1])
        if op.all("spikes"):
            new[-1:] = neuron.fire(new[-1], element_type(op.one("spikes")))
        return new

    op.elementwise([op.one("x")], outputs, body, tables=[op.one(name) for name in names])


def _scale(op: _Op) -> None:
    y = op.one("y")
    type_ = element_type(y)
    op.elementwise([op.one("x"), op.one("w")], [y], lambda x, w, y: [multiply(resize(w, type_), resize(x, type_))])


def _threshold(op: _Op) -> None:
    x, spikes, tables = op.one("x"), op.one("spikes"), op.all("threshold")
    type_ = element_type(x) if is_float(element_type(x)) else scalar.integer(32)
    highest = (1 << ir.IntegerType(element_type(x)).width - 1) - 1 if not is_float(type_) else 0
    limit = op.uniform("threshold", type_)
    if not tables and not is_float(type_) and not -highest - 1 <= limit < highest:  # no number of that type can decide
        always = scalar.constant(element_type(spikes), limit < highest)
        _elementwise([x], [spikes], lambda x, y: [always])
        return

    def body(x: ir.Value, *others: ir.Value) -> list[ir.Value]:
        least = others[0] if tables else scalar.constant(type_, limit)
        return [scalar.flag(greater(resize(x, type_), least), element_type(spikes))]

    op.elementwise([x], [spikes], body, tables=tables)


def _output(op: _Op) -> None:
    x, out = op.one("x"), op.one("out")
    if op.integer("rows") > 1:
        loops.output(op)
    elif is_float(element_type(x)):
        op.elementwise([x], [out], lambda x, out: [add(x, scalar.constant(x.type, 0.0))])
    else:
        op.elementwise([x], [out], lambda x, out: [resize(x, out.type)])


def _copy_elements(x: ir.Value, y: ir.Value) -> None:
    _elementwise([x], [y], lambda x, y: [resize(x, y.type)])


_LOWERINGS: dict[str, Callable[[_Op], None]] = {
    "linear": _linear,
    "rescale": _rescale,
    "sum": _sum,
    "gain": _gain,
    "li": _neuron,
    "lif": _neuron,
    "cubali": _neuron,
    "cubalif": _neuron,
    "output": _output,
    "copy": lambda op: _copy_elements(op.one("x"), op.one("y")),
    "scale": _scale,
    "threshold": _threshold,
    "transpose": loops.transpose,
    "conv2d": loops.conv2d,
    "sumpool2d": loops.sumpool2d,
    "delay_read": loops.delay_read,
    "delay_write": loops.delay_write,
}
