# SPDX-License-Identifier: Apache-2.0
"""The sums of one synapse over listed inputs: for one block of outputs at a time, in registers where weights are packed.

`Gather` is a linear layer's, each listed input a row of weights. `WindowGather` is a convolution's: the list is ascending and
channels lie last, so that what a row of the kernel sees is one stretch of it, and so are the weights that it meets. They
are put into a list of the window, which all blocks of its outputs then read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager

from mlir import ir
from mlir.dialects import arith, memref, scf

from . import scalar
from .loops import Windows
from .memory import (
    ROW_BY_ROW,
    UNROLLED,
    append,
    as_index,
    count_of,
    element_type,
    extents,
    flat,
    index,
    index_type,
    listed,
    load,
    loop,
    minimum,
    minus,
    plus,
    signless,
    store,
    times,
    variable,
)
from .scalar import add, constant, integer, multiply, named, resize, subtract
from .snn_to_linalg import _Op

FLUSH = 257
"""So many bytes fit a lane of 16 bits: 257 * 255 = 65535."""

FEW = 8
"""Rows of so many weights are no vectors."""

LANES = 0x00FF00FF
BIAS = 128

_Each = Callable[
    [], AbstractContextManager[tuple[ir.Value, ir.Value]]
]  # a loop over (where a value is, its row of weights)


def by_kind(op: _Op, spikes: Callable[[], None], values: Callable[[], None]) -> None:
    """Spikes are only added; values are multiplied. Whether the network's input holds values is known only at run time."""
    if not op.all("x"):
        spikes()
    elif not op.all("graded"):
        values()
    else:
        choice = scf.IfOp(scalar.is_not(load(op.one("graded")), 0), has_else=True)
        with ir.InsertionPoint(choice.then_block):
            values()
            scf.YieldOp([])
        with ir.InsertionPoint(choice.else_block):
            spikes()
            scf.YieldOp([])


class Gather:
    """The sums of a snn.gather."""

    def __init__(self, op: ir.Operation) -> None:
        self.op, self.known = op, _Op(op)
        self.w, self.y = self.known.one("w"), self.known.one("y")
        self.x, self.b, self.events, self.count = (
            next(iter(self.known.all(name)), None) for name in ("x", "b", "events", "count")
        )
        _, self.inputs, width = extents(self.w)
        self.packed = str(element_type(self.w)) == "ui32"
        self.words = width
        self.width = width * 4 if self.packed else width
        self.type = element_type(self.y)
        self.name = scalar.name_of(self.y, "sum") if not isinstance(self.y.owner, ir.Block) else "sum"
        self._rows = ROW_BY_ROW if not self.packed and self.width > FEW else ""

    def sums(self, block: ir.Value, count: int) -> ir.Value:
        """An array with the sums of a block, which has `count` outputs; without the bias."""
        if not self.packed:
            sums = variable(self.name, self.type, count=count)
            self._clear(sums, count)
            by_kind(
                self.known,
                lambda: self._add_rows(sums, block, count, False),
                lambda: self._add_rows(sums, block, count, True),
            )
            return sums
        sums = variable(self.name, self.type, count=self.width)
        by_kind(self.known, lambda: self._add_lanes(sums, block), lambda: self._add_products(sums, block))
        return sums

    @contextmanager
    def _each(self, first: ir.Value | int = 0, end: ir.Value | None = None) -> Iterator[tuple[ir.Value, ir.Value]]:
        if self.events is None:
            with loop(0, self.inputs, hint=self._rows) as i:
                yield i, i
        else:
            with loop(first, end or count_of(self.count), hint=self._rows) as k:
                i = listed(self.events, k, "input")
                yield i, i

    def _clear(self, sums: ir.Value, count: int) -> None:
        with loop(0, count, hint=UNROLLED if self.packed else "") as k:
            store(constant(self.type, 0), sums, k)

    def _add_rows(self, sums: ir.Value, block: ir.Value, count: int, graded: bool) -> None:
        """Plain weights: one row of the block per input."""
        with self._each() as (i, row):
            x = resize(load(self.x, i), self.type) if graded else None
            with loop(0, count) as k:
                weight = resize(load(self.w, block, row, k), self.type)
                store(add(load(sums, k), weight if x is None else multiply(weight, x)), sums, k)

    def _add_products(self, sums: ir.Value, block: ir.Value) -> None:
        """Packed weights times values."""
        i32 = integer(32)
        self._clear(sums, self.width)
        with self._each() as (i, row):
            x = named(resize(load(self.x, i), self.type), "value")
            with loop(0, self.words, hint=UNROLLED) as q:
                word = named(load(self.w, block, row, q), "w")
                first = arith.MulIOp(q, index(4)).result
                for lane in range(4):
                    byte = scalar.mask(arith.ShRUIOp(word, constant(i32, 8 * lane)).result if lane else word, 0xFF)
                    weight = resize(subtract(byte, constant(i32, BIAS)), self.type)
                    place = plus(first, lane)
                    store(add(load(sums, place), multiply(weight, x)), sums, place)

    def _add_lanes(self, sums: ir.Value, block: ir.Value) -> None:
        """Packed weights of spikes, in batches that fit the lanes."""
        if self.inputs <= FLUSH:
            self._batch(sums, block, self._each, lambda: count_of(self.count), clear=True)
            return
        self._clear(sums, self.width)
        with loop(0, count_of(self.count), FLUSH) as first:
            end = named(minimum(plus(first, FLUSH), count_of(self.count)), "end")
            self._batch(sums, block, lambda: self._each(first, end), lambda: minus(end, first), clear=False)

    def _batch(
        self, sums: ir.Value, block: ir.Value, each: _Each, spikes: Callable[[], ir.Value], *, clear: bool
    ) -> None:
        """At most FLUSH spikes: bytes 0 and 2 of a word in one sum, 1 and 3 in another, each in 16 bits."""
        i32, unsigned = integer(32), ir.IntegerType.get_unsigned(32)
        zero = constant(i32, 0)
        pairs = [(variable(f"even{q}", unsigned, zero), variable(f"odd{q}", unsigned, zero)) for q in range(self.words)]
        with each() as (_, row):
            for q, (even, odd) in enumerate(pairs):
                word = named(memref.LoadOp(self.w, [block, row, index(q)]).result, "w")
                for lanes, shift in ((even, 0), (odd, 8)):
                    bits = signless(word)
                    bits = arith.ShRUIOp(bits, constant(i32, shift)).result if shift else bits
                    store(arith.AddIOp(load(lanes), scalar.mask(bits, LANES)).result, lanes)
        bias = named(multiply(arith.IndexCastOp(i32, spikes()).result, constant(i32, BIAS)), "bias")
        for q, (even, odd) in enumerate(pairs):
            for lane in range(4):
                bits = load((even, odd)[lane % 2])
                high = lane >= 2
                bits = arith.ShRUIOp(bits, constant(i32, 16)).result if high else scalar.mask(bits, 0xFFFF)
                value = resize(subtract(bits, bias), self.type)
                place = 4 * q + lane
                store(value if clear else add(load(sums, place), value), sums, place)

    def biased(self, total: ir.Value, channel: ir.Value) -> ir.Value:
        """The sum of one output, with the bias of its channel: the output itself, or a convolution's."""
        return total if self.b is None else add(total, resize(load(self.b, channel), self.type))


class WindowGather(Gather):
    """The sums of a snn.gather2d, for the window and the group of channels that it was last moved to: over a list of its own."""

    def __init__(self, op: ir.Operation) -> None:
        super().__init__(op)
        self.groups, self.kernel = self.known.integer("groups"), self.known.integers("kernel")
        self.windows = Windows(self.known, self.kernel, self.known.integers("dilation"))
        self._inputs, self._values, self._prefix = self.known.one("events"), self.x, self.name.removesuffix("_sum")
        self._channels = self.windows.input[2] // self.groups
        # Kernel columns side by side see neighbours, unless something lies between: then each is a stretch of its own.
        self._by_row = self.groups == 1 and self.windows.dilation[1] == 1 and self.windows.always_see(1)

    def move_to(self, place: list[ir.Value], group: ir.Value) -> None:
        """Lists what the window at a place of the output sees, as rows of weights, and beside it the values."""
        self.events = self._per_tap("window", index_type(self.inputs))
        self.count = variable(f"{self._prefix}_seen", ir.IndexType.get(), index(0))
        if self._values is not None:
            self.x = self._per_tap("values", element_type(self._values))
        first = self.known.one("first")
        rows, (left, right) = self.windows.taps(place)
        seen: ir.Value | int = 1
        with ExitStack() as loops:
            row = loops.enter_context(loop(*rows, name="k"))
            if self._by_row:
                seen = right - left if isinstance(left, int) and isinstance(right, int) else minus(right, left)
                column = left
            else:
                column = loops.enter_context(loop(left, right, name="m"))
            tap = [row, index(column) if isinstance(column, int) else column]
            lowest = flat([self.windows.at(place, tap), group], [self.groups])
            weights = times(flat(tap, [self.kernel[1]]), self._channels)
            begin = named(as_index(load(first, lowest)), "begin")
            end = named(as_index(load(first, plus(lowest, seen))), "end")
            with loop(begin, end) as k:
                i = listed(self._inputs, k, "input")
                if self._values is not None:
                    store(load(self._values, i), self.x, load(self.count))
                append(self.events, self.count, plus(minus(i, times(lowest, self._channels)), weights))

    def _per_tap(self, what: str, type_: ir.Type) -> ir.Value:
        """An array with room for all that a window can see."""
        array = variable(f"{self._prefix}_{what}", type_, count=self.inputs)
        if self.inputs == 1:  # a variable in C, and GCC does not see that it is only read where it is written
            store(constant(ir.Type.parse(str(type_).removeprefix("u")), 0), array)
        return array

    @contextmanager
    def _each(self, first: ir.Value | int = 0, end: ir.Value | None = None) -> Iterator[tuple[ir.Value, ir.Value]]:
        with loop(first, end or count_of(self.count), hint=self._rows) as k:
            yield k, listed(self.events, k, "row")
