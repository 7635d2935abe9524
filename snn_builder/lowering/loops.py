# SPDX-License-Identifier: Apache-2.0
"""Operations whose arrays are indexed by more than their own loops: windows that slide, transposed copies, delay lines.

They become scf.for loops. Arrays are flat; a value of shape (C, H, W) lies in memory as (H, W, C).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from mlir import ir
from mlir.dialects import arith

from . import scalar
from .memory import (
    below,
    divided,
    element_type,
    flat,
    index,
    load,
    loop,
    minimum,
    minus,
    plus,
    size,
    store,
    times,
    variable,
)
from .scalar import add, multiply, named, resize, select

if TYPE_CHECKING:
    from .snn_to_linalg import _Op


# Transposed copies


def transpose(op: _Op) -> None:
    """y[j, i] = x[i, j]."""
    _transposed(op, "y", lambda value: value)


def output(op: _Op) -> None:
    """The same into the network's output: floats + 0.0, integers in its width."""
    type_ = element_type(op.one("out"))

    def leaving(value: ir.Value) -> ir.Value:
        return add(value, scalar.constant(type_, 0.0)) if scalar.is_float(type_) else resize(value, type_)

    _transposed(op, "out", leaving)


def _transposed(op: _Op, target: str, body: Callable[[ir.Value], ir.Value]) -> None:
    x, y, rows = op.one("x"), op.one(target), op.integer("rows")
    columns = size(x) // rows
    with loop(0, columns, name="i") as j, loop(0, rows, name="j") as i:  # writes in order
        store(body(load(x, flat([i, j], [columns]))), y, flat([j, i], [rows]))


# Windows that slide over (H, W, C)


class Windows:
    """The windows of a conv2d or sumpool2d."""

    def __init__(self, op: _Op, kernel: Sequence[int], dilation: Sequence[int]) -> None:
        self.kernel, self.dilation = kernel, dilation
        self.input, self.output = op.integers("input"), op.integers("output")
        self.stride, self.padding = op.integers("stride"), op.integers("padding")

    @contextmanager
    def places(self) -> Iterator[list[ir.Value]]:
        """Loops over output rows and columns."""
        with loop(0, self.output[0], name="row") as row, loop(0, self.output[1], name="column") as column:
            yield [row, column]

    def always_see(self, dimension: int) -> bool:
        """Is there no window that lies in the padding as a whole?"""
        reach = (self.kernel[dimension] - 1) * self.dilation[dimension]
        last = (self.output[dimension] - 1) * self.stride[dimension]
        return reach >= self.padding[dimension] and last < self.padding[dimension] + self.input[dimension]

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
            inside = self._divided_up(minus(before, begin), step)
            first = named(select(below(begin, before), inside, index(0)), f"first_{word}")
        stop: ir.Value | int = kernel
        reach = (kernel - 1) * step
        if last + reach >= end:
            inside = self._divided_up(minus(end, begin), step)
            if last >= end:  # some windows see nothing but the padding behind
                inside = select(below(begin, end), inside, index(0))
            whole = below(plus(begin, reach), end)
            stop = named(select(whole, index(kernel), inside), f"end_{word}")
        return first, stop

    def _begin(self, dimension: int, place: ir.Value) -> ir.Value:
        """Where the window at `place` begins, counted from the start of the padding."""
        stride = self.stride[dimension]
        return place if stride == 1 else named(times(place, stride), ("top", "left")[dimension])

    @staticmethod
    def _divided_up(a: ir.Value, divisor: int) -> ir.Value:
        return a if divisor == 1 else arith.DivSIOp(plus(a, divisor - 1), index(divisor)).result

    def at(self, place: list[ir.Value], tap: list[ir.Value]) -> ir.Value:
        """Which place of the input a tap of the window at `place` sees."""
        position = [
            plus(plus(self._begin(d, place[d]), times(tap[d], self.dilation[d])), -self.padding[d]) for d in (0, 1)
        ]
        return named(flat(position, self.input[1:2]), "place")

    def split(self, i: ir.Value) -> tuple[ir.Value, list[ir.Value]]:
        """The channel of an element of the input, and its [row, column]."""
        place, channel = divided(i, self.input[2])
        return channel, list(divided(place, self.input[1]))

    @contextmanager
    def seeing(self, place: list[ir.Value]) -> Iterator[list[ir.Value]]:
        """Loops over the windows that see a place of the input; without dilation."""
        bounds = [self._windows_of(dimension, place[dimension]) for dimension in (0, 1)]
        with loop(*bounds[0], name="row") as row, loop(*bounds[1], name="column") as column:
            yield [row, column]

    def _windows_of(self, dimension: int, place: ir.Value) -> tuple[ir.Value, ir.Value]:
        """The windows w with w * stride <= at < w * stride + kernel, counted from the start of the padding."""
        kernel, stride, most = self.kernel[dimension], self.stride[dimension], self.output[dimension]
        at = plus(place, self.padding[dimension])
        last = plus(divided(at, stride)[0], 1)
        if (self.input[dimension] + self.padding[dimension] - 1) // stride >= most:
            last = minimum(last, index(most))
        if kernel == stride:
            first = divided(at, stride)[0]
        else:
            inside = self._divided_up(minus(plus(at, 1), index(kernel)), stride)
            first = select(below(at, kernel), index(0), inside)
        return first, last

    def seen(self, place: ir.Value, channel: ir.Value) -> ir.Value:
        """The index into the input of one channel of a place."""
        return flat([place, channel], self.input[2:])


def conv2d(op: _Op) -> None:
    """Per output: the kernel's rows, columns and channels ascending from +0, without the padding; then the bias."""
    x, w, y = op.one("x"), op.one("w"), op.one("y")
    outputs, rows, columns, inputs = ir.MemRefType(w.type).shape
    windows = Windows(op, (rows, columns), op.integers("dilation"))
    groups, type_ = op.integer("groups"), element_type(y)
    with windows.places() as place:
        limits = windows.taps(place)
        with loop(0, groups, name="group") as group, loop(0, outputs // groups, name="channel") as member:
            channel = member if groups == 1 else named(flat([group, member], [outputs // groups]), "channel")
            to = named(flat([*place, channel], windows.output[1:]), "at")
            store(scalar.constant(type_, 0), y, to)
            with (
                loop(*limits[0], name="k") as row,
                loop(*limits[1], name="m") as column,
            ):
                below = windows.at(place, [row, column])
                with loop(0, inputs, name="n") as source:
                    value = load(x, windows.seen(below, source if groups == 1 else flat([group, source], [inputs])))
                    product = multiply(resize(load(w, channel, row, column, source), type_), resize(value, type_))
                    named(product, "product")
                    store(named(add(load(y, to), product), "sum"), y, to)
            for b in op.all("b"):
                store(add(load(y, to), resize(load(b, channel), type_)), y, to)


def sumpool2d(op: _Op) -> None:
    """Per channel: what the window sees, rows and columns ascending, from +0."""
    x, y = op.one("x"), op.one("y")
    windows = Windows(op, op.integers("kernel"), (1, 1))
    channels, type_ = windows.output[2], element_type(y)
    clamp = not scalar.is_float(type_) and bool(op.integer("saturate"))
    wide = scalar.integer(64) if clamp else type_
    sums = y
    if clamp:  # the exact sums of one window
        sums = variable("total", wide, count=channels)
    with windows.places() as place:

        def to(channel: ir.Value, *, sum_: bool = True) -> ir.Value:
            return channel if clamp and sum_ else named(flat([*place, channel], windows.output[1:]), "at")

        with loop(0, channels, name="channel") as channel:
            store(scalar.constant(wide, 0), sums, to(channel))
        limits = windows.taps(place)
        with (
            loop(*limits[0], name="k") as row,
            loop(*limits[1], name="m") as column,
        ):
            below = windows.at(place, [row, column])
            with loop(0, channels, name="channel") as channel:
                where = to(channel)
                store(add(load(sums, where), resize(load(x, windows.seen(below, channel)), wide)), sums, where)
        if clamp:
            with loop(0, channels, name="channel") as channel:
                store(scalar.saturate(load(sums, channel)), y, to(channel, sum_=False))


# Delay lines


def _slot(op: _Op) -> ir.Value | None:
    """The slot that is written in this step, an i32; None where there is only one."""
    return next((load(at) for at in op.all("at")), None)


def _kept(slot: ir.Value | None, i: ir.Value, count: int) -> ir.Value:
    """Where in the line a slot keeps an element."""
    if slot is None:
        return i
    return flat([arith.IndexCastOp(ir.IndexType.get(), slot).result, i], [count])


def delay_read(op: _Op) -> None:
    """y[i] = what went into the line steps[i] steps ago: the oldest of all without a table, x where it is 0."""
    line, y = op.one("line"), op.one("y")
    type_, zero = element_type(y), scalar.constant(scalar.integer(32), 0)
    with loop(0, size(y), name="i") as i:
        slot = _slot(op)
        steps = next((named(load(table, i), "steps") for table in op.all("steps")), None)
        if slot is not None and steps is not None:
            back = named(scalar.subtract(slot, steps), "back")
            wrapped = add(back, scalar.constant(back.type, op.integer("depth")))
            slot = named(select(scalar.less(back, zero), wrapped, back), "slot")
        value = resize(load(line, _kept(slot, i, size(y))), type_)
        if op.all("x") and steps is not None:
            value = select(_equal(steps, zero), resize(load(op.one("x"), i), type_), value)
        store(value, y, i)


def delay_write(op: _Op) -> None:
    """line[at, i] = x[i], then at moves on."""
    x, line, i32 = op.one("x"), op.one("line"), scalar.integer(32)
    with loop(0, size(x), name="i") as i:
        store(resize(load(x, i), element_type(line)), line, _kept(_slot(op), i, size(x)))
    for at in op.all("at"):
        with ir.Location.unknown():
            slot = named(load(at), "slot")
            last = _equal(slot, scalar.constant(i32, op.integer("depth") - 1))
            following = select(last, scalar.constant(i32, 0), add(slot, scalar.constant(i32, 1)))
            store(following, at)


def _equal(a: ir.Value, b: ir.Value) -> ir.Value:
    return arith.CmpIOp(arith.CmpIPredicate.eq, a, b).result
