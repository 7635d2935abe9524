# SPDX-License-Identifier: Apache-2.0
"""Operations whose arrays are indexed by more than their own loops: windows that slide, transposed copies, delay lines.

They become scf.for loops. Arrays are flat; a value of shape (C, H, W) lies in memory as (H, W, C).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from mlir import ir
from mlir.dialects import arith, memref, scf

from . import scalar
from .scalar import add, multiply, named, resize, select

if TYPE_CHECKING:
    from .snn_to_linalg import _Op


def _constant(value: int) -> ir.Value:
    return arith.ConstantOp(ir.IndexType.get(), ir.IntegerAttr.get(ir.IndexType.get(), value)).result


@contextmanager
def _loop(upper: ir.Value | int, lower: ir.Value | int = 0, name: str = "i") -> Iterator[ir.Value]:
    """for lower <= index < upper; the body is built inside the with statement, and `name` is the index's in the MLIR."""
    with ir.Location.unknown():
        bounds = [_constant(bound) if isinstance(bound, int) else bound for bound in (lower, upper, 1)]
    loop = scf.ForOp(*bounds)
    loop.induction_variable.set_location(ir.Location.name(name))
    with ir.InsertionPoint(loop.body), ir.Location.unknown():
        yield loop.induction_variable
        scf.YieldOp([])


def _times(index: ir.Value, factor: int) -> ir.Value:
    return index if factor == 1 else arith.MulIOp(index, _constant(factor)).result


def _plus(a: ir.Value, b: ir.Value | int) -> ir.Value:
    """a + b; a negative b is subtracted."""
    if not isinstance(b, int):
        return arith.AddIOp(a, b).result
    if b < 0:
        return arith.SubIOp(a, _constant(-b)).result
    return arith.AddIOp(a, _constant(b)).result if b else a


def _flat(indices: Sequence[ir.Value], extents: Sequence[int]) -> ir.Value:
    """The row-major index; `extents` of all dimensions but the first."""
    total = indices[0]
    for index, extent in zip(indices[1:], extents, strict=True):
        total = _plus(_times(total, extent), index)
    return total


def _load(array: ir.Value, *indices: ir.Value) -> ir.Value:
    return memref.LoadOp(array, list(indices)).result


def _store(value: ir.Value, array: ir.Value, *indices: ir.Value) -> None:
    memref.StoreOp(value, array, list(indices))


def _element(array: ir.Value) -> ir.Type:
    return ir.MemRefType(array.type).element_type


def _count(array: ir.Value) -> int:
    return int(ir.MemRefType(array.type).shape[0])


# Transposed copies


def transpose(op: _Op) -> None:
    """y[j, i] = x[i, j]."""
    _transposed(op, "y", lambda value: value)


def output(op: _Op) -> None:
    """The same into the network's output: floats + 0.0, integers in its width."""
    type_ = _element(op.one("out"))

    def leaving(value: ir.Value) -> ir.Value:
        return add(value, scalar.constant(type_, 0.0)) if scalar.is_float(type_) else resize(value, type_)

    _transposed(op, "out", leaving)


def _transposed(op: _Op, target: str, body: Callable[[ir.Value], ir.Value]) -> None:
    x, y, rows = op.one("x"), op.one(target), op.integer("rows")
    columns = _count(x) // rows
    with _loop(columns, name="i") as j, _loop(rows, name="j") as i:  # writes in order
        _store(body(_load(x, _flat([i, j], [columns]))), y, _flat([j, i], [rows]))


# Windows that slide over (H, W, C)


class _Windows:
    """The windows of a conv2d or sumpool2d."""

    def __init__(self, op: _Op, kernel: Sequence[int], dilation: Sequence[int]) -> None:
        self.kernel, self.dilation = kernel, dilation
        self.input, self.output = op.integers("input"), op.integers("output")
        self.stride, self.padding = op.integers("stride"), op.integers("padding")

    @contextmanager
    def places(self) -> Iterator[list[ir.Value]]:
        """Loops over output rows and columns."""
        with _loop(self.output[0], name="row") as row, _loop(self.output[1], name="column") as column:
            yield [row, column]

    def taps(self, place: list[ir.Value]) -> list[tuple[ir.Value | int, ir.Value | int]]:
        """Per dimension, which kernel positions (first, end) of the window at `place` lie inside the input."""
        words = ("row", "column")
        return [self._taps(dimension, place[dimension], words[dimension]) for dimension in (0, 1)]

    def _taps(self, dimension: int, place: ir.Value, word: str) -> tuple[ir.Value | int, ir.Value | int]:
        kernel, step, before = self.kernel[dimension], self.dilation[dimension], self.padding[dimension]
        begin = self._begin(dimension, place)
        last = (self.output[dimension] - 1) * self.stride[dimension]  # the last window's begin
        end = before + self.input[dimension]  # where the padding behind the input starts
        first: ir.Value | int = 0
        if before:
            inside = self._divided_up(arith.SubIOp(_constant(before), begin).result, step)
            first = named(select(_below(begin, before), inside, _constant(0)), f"first_{word}")
        stop: ir.Value | int = kernel
        reach = (kernel - 1) * step
        if last + reach >= end:
            inside = self._divided_up(arith.SubIOp(_constant(end), begin).result, step)
            if last >= end:  # some windows see nothing but the padding behind
                inside = select(_below(begin, end), inside, _constant(0))
            whole = _below(_plus(begin, reach), end)
            stop = named(select(whole, _constant(kernel), inside), f"end_{word}")
        return first, stop

    def _begin(self, dimension: int, place: ir.Value) -> ir.Value:
        """Where the window at `place` begins, counted from the start of the padding."""
        stride = self.stride[dimension]
        return place if stride == 1 else named(_times(place, stride), ("top", "left")[dimension])

    @staticmethod
    def _divided_up(index: ir.Value, divisor: int) -> ir.Value:
        return index if divisor == 1 else arith.DivSIOp(_plus(index, divisor - 1), _constant(divisor)).result

    def at(self, place: list[ir.Value], tap: list[ir.Value]) -> ir.Value:
        """Which place of the input a tap of the window at `place` sees."""
        position = [
            _plus(_plus(self._begin(d, place[d]), _times(tap[d], self.dilation[d])), -self.padding[d]) for d in (0, 1)
        ]
        return named(_flat(position, self.input[1:2]), "place")

    def seen(self, place: ir.Value, channel: ir.Value) -> ir.Value:
        """The index into the input of one channel of a place."""
        return _flat([place, channel], self.input[2:])


def _below(index: ir.Value, limit: int) -> ir.Value:
    return arith.CmpIOp(arith.CmpIPredicate.ult, index, _constant(limit)).result


def conv2d(op: _Op) -> None:
    """Per output: the kernel's rows, columns and channels ascending from +0, without the padding; then the bias."""
    x, w, y = op.one("x"), op.one("w"), op.one("y")
    outputs, rows, columns, inputs = ir.MemRefType(w.type).shape
    windows = _Windows(op, (rows, columns), op.integers("dilation"))
    groups, type_ = op.integer("groups"), _element(y)
    with windows.places() as place:
        limits = windows.taps(place)
        with _loop(groups, name="group") as group, _loop(outputs // groups, name="channel") as member:
            channel = member if groups == 1 else named(_flat([group, member], [outputs // groups]), "channel")
            to = named(_flat([*place, channel], windows.output[1:]), "at")
            _store(scalar.constant(type_, 0), y, to)
            with (
                _loop(limits[0][1], limits[0][0], "k") as row,
                _loop(limits[1][1], limits[1][0], "m") as column,
            ):
                below = windows.at(place, [row, column])
                with _loop(inputs, name="n") as source:
                    value = _load(x, windows.seen(below, source if groups == 1 else _flat([group, source], [inputs])))
                    product = multiply(resize(_load(w, channel, row, column, source), type_), resize(value, type_))
                    named(product, "product")
                    _store(named(add(_load(y, to), product), "sum"), y, to)
            for b in op.all("b"):
                _store(add(_load(y, to), resize(_load(b, channel), type_)), y, to)


def sumpool2d(op: _Op) -> None:
    """Per channel: what the window sees, rows and columns ascending, from +0."""
    x, y = op.one("x"), op.one("y")
    windows = _Windows(op, op.integers("kernel"), (1, 1))
    channels, type_ = windows.output[2], _element(y)
    clamp = not scalar.is_float(type_) and bool(op.integer("saturate"))
    wide = scalar.integer(64) if clamp else type_
    sums = y
    if clamp:  # the exact sums of one window
        sums = memref.AllocaOp(ir.MemRefType.get([channels], wide), [], [], loc=ir.Location.name("total")).memref
    with windows.places() as place:

        def to(channel: ir.Value, *, sum_: bool = True) -> ir.Value:
            return channel if clamp and sum_ else named(_flat([*place, channel], windows.output[1:]), "at")

        with _loop(channels, name="channel") as channel:
            _store(scalar.constant(wide, 0), sums, to(channel))
        limits = windows.taps(place)
        with (
            _loop(limits[0][1], limits[0][0], "k") as row,
            _loop(limits[1][1], limits[1][0], "m") as column,
        ):
            below = windows.at(place, [row, column])
            with _loop(channels, name="channel") as channel:
                where = to(channel)
                _store(add(_load(sums, where), resize(_load(x, windows.seen(below, channel)), wide)), sums, where)
        if clamp:
            with _loop(channels, name="channel") as channel:
                _store(scalar.saturate(_load(sums, channel)), y, to(channel, sum_=False))


# Delay lines


def _slot(op: _Op) -> ir.Value | None:
    """The slot that is written in this step, an i32; None where there is only one."""
    return next((_load(at, _constant(0)) for at in op.all("at")), None)


def _kept(slot: ir.Value | None, index: ir.Value, count: int) -> ir.Value:
    """Where in the line a slot keeps an element."""
    if slot is None:
        return index
    return _flat([arith.IndexCastOp(ir.IndexType.get(), slot).result, index], [count])


def delay_read(op: _Op) -> None:
    """y[i] = what went into the line steps[i] steps ago: the oldest of all without a table, x where it is 0."""
    line, y = op.one("line"), op.one("y")
    type_, zero = _element(y), scalar.constant(scalar.integer(32), 0)
    with _loop(_count(y)) as i:
        slot = _slot(op)
        steps = next((named(_load(table, i), "steps") for table in op.all("steps")), None)
        if slot is not None and steps is not None:
            back = named(scalar.subtract(slot, steps), "back")
            wrapped = add(back, scalar.constant(back.type, op.integer("depth")))
            slot = named(select(scalar.less(back, zero), wrapped, back), "slot")
        value = resize(_load(line, _kept(slot, i, _count(y))), type_)
        if op.all("x") and steps is not None:
            value = select(_equal(steps, zero), resize(_load(op.one("x"), i), type_), value)
        _store(value, y, i)


def delay_write(op: _Op) -> None:
    """line[at, i] = x[i], then at moves on."""
    x, line, i32 = op.one("x"), op.one("line"), scalar.integer(32)
    with _loop(_count(x)) as i:
        _store(resize(_load(x, i), _element(line)), line, _kept(_slot(op), i, _count(x)))
    for at in op.all("at"):
        with ir.Location.unknown():
            slot = named(_load(at, _constant(0)), "slot")
            last = _equal(slot, scalar.constant(i32, op.integer("depth") - 1))
            following = select(last, scalar.constant(i32, 0), add(slot, scalar.constant(i32, 1)))
            _store(following, at, _constant(0))


def _equal(a: ir.Value, b: ir.Value) -> ir.Value:
    return arith.CmpIOp(arith.CmpIPredicate.eq, a, b).result
