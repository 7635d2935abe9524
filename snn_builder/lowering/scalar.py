# SPDX-License-Identifier: Apache-2.0
"""Scalar arithmetic for the bodies of lowered operations: arith on one element, by type.

Integer sums and products carry nsw (the ranges are proven, or the type is wide enough), so that C shows a plain + or *.
A name given to a value is its name in C.
"""

from __future__ import annotations

from mlir import ir
from mlir.dialects import arith, func

SATURATE = "sat32"
"""The helper function that clamps an i64 to 32 bits; the pass adds it to a module that calls it."""

_NSW = arith.IntegerOverflowFlags.nsw


def integer(bits: int) -> ir.Type:
    """The signless integer type."""
    return ir.IntegerType.get_signless(bits)


def is_float(type_: ir.Type) -> bool:
    """f32 or f64."""
    return str(type_).startswith("f")


def width(value: ir.Value) -> int:
    """Bits of an integer value."""
    return int(ir.IntegerType(value.type).width)


def named(value: ir.Value, name: str) -> ir.Value:
    """Names an operation's result."""
    value.owner.location = ir.Location.name(name)
    return value


def name_of(value: ir.Value, otherwise: str) -> str:
    """The name that a value's location gives it. (Asking a location without one ends the process.)"""
    location = value.location if isinstance(value.owner, ir.Block) else value.owner.location
    return str(location.name_str) if location.is_a_name() else otherwise


def constant(type_: ir.Type, value: float) -> ir.Value:
    """A constant; a float is rounded once to the type."""
    attribute = ir.FloatAttr.get(type_, value) if is_float(type_) else ir.IntegerAttr.get(type_, int(value))
    return arith.ConstantOp(type_, attribute).result


def add(a: ir.Value, b: ir.Value) -> ir.Value:
    """a + b."""
    if is_float(a.type):
        return arith.AddFOp(a, b).result
    return arith.AddIOp(a, b, overflowFlags=_NSW).result


def subtract(a: ir.Value, b: ir.Value) -> ir.Value:
    """a - b."""
    if is_float(a.type):
        return arith.SubFOp(a, b).result
    return arith.SubIOp(a, b, overflowFlags=_NSW).result


def multiply(a: ir.Value, b: ir.Value) -> ir.Value:
    """a * b."""
    if is_float(a.type):
        return arith.MulFOp(a, b).result
    return arith.MulIOp(a, b, overflowFlags=_NSW).result


def greater(a: ir.Value, b: ir.Value) -> ir.Value:
    """a > b, false where one is NaN."""
    if is_float(a.type):
        return arith.CmpFOp(arith.CmpFPredicate.OGT, a, b).result
    return arith.CmpIOp(arith.CmpIPredicate.sgt, a, b).result


def less(a: ir.Value, b: ir.Value) -> ir.Value:
    """Integer a < b."""
    return arith.CmpIOp(arith.CmpIPredicate.slt, a, b).result


def is_not(a: ir.Value, other: float) -> ir.Value:
    """a != other, true where a is NaN."""
    if is_float(a.type):
        return arith.CmpFOp(arith.CmpFPredicate.UNE, a, constant(a.type, other)).result
    return arith.CmpIOp(arith.CmpIPredicate.ne, a, constant(a.type, other)).result


def select(condition: ir.Value, a: ir.Value, b: ir.Value) -> ir.Value:
    """condition ? a : b."""
    return arith.SelectOp(condition, a, b).result


def shift_left(a: ir.Value, count: int, *, wrap: bool = False) -> ir.Value:
    """Integer a * 2^count, which is known to fit unless `wrap`. Multiplied: C's << is not for negative numbers."""
    bits = width(a)
    wrap = wrap or count >= bits - 1  # the factor itself is not a positive number of that width
    factor = (1 << count) % (1 << bits)
    factor -= (1 << bits) if factor >> (bits - 1) else 0
    flags = arith.IntegerOverflowFlags.none if wrap else _NSW
    return arith.MulIOp(a, constant(a.type, factor), overflowFlags=flags).result


def shift_right(a: ir.Value, count: int | ir.Value) -> ir.Value:
    """Integer a >> count, towards minus infinity; a constant count beyond the width leaves the sign."""
    if isinstance(count, int):
        count = constant(a.type, min(count, width(a) - 1))
    return arith.ShRSIOp(a, count).result


def mask(a: ir.Value, bits: int) -> ir.Value:
    """Integer a & bits."""
    return arith.AndIOp(a, constant(a.type, bits)).result


def resize(value: ir.Value, type_: ir.Type) -> ir.Value:
    """An integer sign-extended, or truncated where its value is known to fit; floats of the same type stay."""
    if value.type == type_:
        return value
    wider = width(value) < ir.IntegerType(type_).width
    return (arith.ExtSIOp if wider else arith.TruncIOp)(type_, value).result


def flag(condition: ir.Value, type_: ir.Type) -> ir.Value:
    """condition ? 1 : 0."""
    if is_float(type_):
        return select(condition, constant(type_, 1.0), constant(type_, 0.0))
    return arith.ExtUIOp(type_, condition).result


def saturate(value: ir.Value) -> ir.Value:
    """An integer clamped to 32 bits."""
    if width(value) <= 32:
        return resize(value, integer(32))
    return func.CallOp([integer(32)], SATURATE, [value]).result


def define_saturate() -> None:
    """Builds the helper at the insertion point."""
    i32, i64 = integer(32), integer(64)
    helper = func.FuncOp(SATURATE, ([i64], [i32]), visibility="private")
    block = ir.Block.create_at_start(helper.body, [i64], [ir.Location.name("x")])
    with ir.InsertionPoint(block):
        x, low, high = block.arguments[0], -(2**31), 2**31 - 1
        below, above = less(x, constant(i64, low)), greater(x, constant(i64, high))
        inner = select(above, constant(i32, high), resize(x, i32))
        func.ReturnOp([select(below, constant(i32, low), inner)])
