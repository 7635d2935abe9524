# SPDX-License-Identifier: Apache-2.0
"""Loops, branches and the elements of arrays, for the passes that build scf over memref."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from mlir import ir
from mlir.dialects import arith, memref, scf

from . import scalar
from .scalar import constant, integer, named

UNROLLED = "unrolled"
"""The location of a loop that C compilers are asked to unroll."""

ROW_BY_ROW = "row_by_row"
"""The location of a loop whose rounds C compilers are asked not to jam together."""


def element_type(array: ir.Value) -> ir.Type:
    """The type of an array's elements."""
    return ir.MemRefType(array.type).element_type


def extents(array: ir.Value) -> list[int]:
    """The extents of an array."""
    return list(ir.MemRefType(array.type).shape)


def size(array: ir.Value) -> int:
    """How many elements a flat array has."""
    return extents(array)[0]


# Indices


def index(value: int) -> ir.Value:
    """A constant index."""
    return constant(ir.IndexType.get(), value)


def plus(a: ir.Value, b: ir.Value | int) -> ir.Value:
    """Index a + b; a negative number is subtracted, 0 is left out."""
    if not isinstance(b, int):
        return arith.AddIOp(a, b).result
    if b < 0:
        return arith.SubIOp(a, index(-b)).result
    return arith.AddIOp(a, index(b)).result if b else a


def minus(a: ir.Value | int, b: ir.Value) -> ir.Value:
    """Index a - b."""
    return arith.SubIOp(index(a) if isinstance(a, int) else a, b).result


def times(a: ir.Value, factor: int) -> ir.Value:
    """Index a * factor."""
    return a if factor == 1 else arith.MulIOp(a, index(factor)).result


def flat(indices: Sequence[ir.Value], extents: Sequence[int]) -> ir.Value:
    """The row-major index; `extents` of all dimensions but the first."""
    total = indices[0]
    for place, extent in zip(indices[1:], extents, strict=True):
        total = plus(times(total, extent), place)
    return total


def divided(a: ir.Value, divisor: int) -> tuple[ir.Value, ir.Value]:
    """(a / divisor, a % divisor) of an index below 2^32."""
    if divisor == 1:
        return a, index(0)
    i32 = integer(32)
    whole, by = arith.IndexCastOp(i32, a).result, constant(i32, divisor)
    quotient, rest = arith.DivUIOp(whole, by).result, arith.RemUIOp(whole, by).result
    return as_index(quotient), as_index(rest)


def below(a: ir.Value, limit: ir.Value | int) -> ir.Value:
    """Index a < limit."""
    return arith.CmpIOp(arith.CmpIPredicate.ult, a, index(limit) if isinstance(limit, int) else limit).result


def minimum(a: ir.Value, b: ir.Value) -> ir.Value:
    """The smaller index."""
    return scalar.select(below(a, b), a, b)


# Control


@contextmanager
def loop(
    first: ir.Value | int, end: ir.Value | int, step: int = 1, *, name: str = "", hint: str = ""
) -> Iterator[ir.Value]:
    """for (i = first; i < end; i += step); the body is built inside the with statement. `name` is the index's in the MLIR,
    `hint` is UNROLLED (what it indexes can then live in registers) or ROW_BY_ROW (each round adds a row, and is not to be
    mixed with the next)."""
    with ir.Location.unknown():
        bounds = [index(bound) if isinstance(bound, int) else bound for bound in (first, end, step)]
    made = scf.ForOp(*bounds, loc=ir.Location.name(hint) if hint else None)
    if name:
        made.induction_variable.set_location(ir.Location.name(name))
    with ir.InsertionPoint(made.body), ir.Location.unknown():
        yield made.induction_variable
        scf.YieldOp([])


@contextmanager
def branch(condition: ir.Value) -> Iterator[None]:
    """if (condition) {what is built inside the with statement}"""
    made = scf.IfOp(condition)
    with ir.InsertionPoint(made.then_block):
        yield
        scf.YieldOp([])


# Arrays


def variable(name: str, type_: ir.Type, value: ir.Value | None = None, count: int = 1) -> ir.Value:
    """A local array; of one element, and so a variable in C, unless there are more."""
    array = memref.AllocaOp(ir.MemRefType.get([count], type_), [], [], loc=ir.Location.name(name)).memref
    if value is not None:
        store(value, array)
    return array


def load(array: ir.Value, *where: ir.Value | int) -> ir.Value:
    """An element, signless whatever the array says; without an index the first."""
    return signless(memref.LoadOp(array, _indices(array, where)).result)


def store(value: ir.Value, array: ir.Value, *where: ir.Value | int) -> None:
    """array[where] = value; without an index the first."""
    type_ = element_type(array)
    memref.StoreOp(_convert(value, type_) if str(type_).startswith("ui") else value, array, _indices(array, where))


def _indices(array: ir.Value, where: Sequence[ir.Value | int]) -> list[ir.Value]:
    if extents(array) == [1]:  # wherever that is computed to be
        where = (0,)
    return [index(place) if isinstance(place, int) else place for place in where or (0,)]


def signless(value: ir.Value) -> ir.Value:
    """An unsigned integer as arith takes it."""
    if not str(value.type).startswith("ui"):
        return value
    return _convert(value, integer(ir.IntegerType(value.type).width))


def _convert(value: ir.Value, type_: ir.Type) -> ir.Value:
    return ir.Operation.create("builtin.unrealized_conversion_cast", results=[type_], operands=[value]).result


# Lists


def index_type(count: int) -> ir.Type:
    """The element type of a list of indices below `count`."""
    return ir.IntegerType.get_unsigned(16 if count <= 0xFFFF else 32)


def count_of(count: ir.Value) -> ir.Value:
    """How many are listed, as an index."""
    return as_index(load(count))


def listed(events: ir.Value, k: ir.Value, name: str) -> ir.Value:
    """The k-th of a list, as an index."""
    return named(as_index(load(events, k)), name)


def as_index(value: ir.Value) -> ir.Value:
    """An unsigned element as an index."""
    return value if isinstance(value.type, ir.IndexType) else arith.IndexCastUIOp(ir.IndexType.get(), value).result


def as_element(value: ir.Value, array: ir.Value) -> ir.Value:
    """An index in the width of an array's elements."""
    type_ = element_type(array)
    return (
        value
        if isinstance(type_, ir.IndexType)
        else arith.IndexCastOp(integer(ir.IntegerType(type_).width), value).result
    )


def append(events: ir.Value, count: ir.Value, place: ir.Value) -> None:
    """events[count++] = place; count is a variable of type index."""
    store(as_element(place, events), events, load(count))
    store(plus(load(count), 1), count)
