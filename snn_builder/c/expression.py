# SPDX-License-Identifier: Apache-2.0
"""C expressions: text with the precedence and the type that decide about parentheses, casts and conversions.

A type is named as in MLIR: i1, i8 .. i64, ui8 .. ui64, f32, f64, size_t, ptrdiff_t.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass, replace

C_TYPES = {
    "i1": "bool", "f32": "float", "f64": "double", "size_t": "size_t", "ptrdiff_t": "ptrdiff_t",
    **{f"{sign}{bits}": f"{'u' * (sign == 'ui')}int{bits}_t" for sign in ("i", "ui") for bits in (8, 16, 32, 64)},
}  # fmt: skip

CONDITIONAL, MULTIPLY, UNARY, ATOM = 1, 11, 12, 13  # how tightly an expression binds
LEVELS = {
    "||": 2, "&&": 3, "|": 4, "^": 5, "&": 6, "==": 7, "!=": 7, "<": 8, "<=": 8, ">": 8, ">=": 8, "<<": 9, ">>": 9,
    "+": 10, "-": 10, "*": MULTIPLY, "/": MULTIPLY, "%": MULTIPLY,
}  # fmt: skip


@dataclass(frozen=True)
class Expr:
    """An expression. `typed`: its type in C is `type`, not what C's promotions or a literal make of it."""

    text: str
    type: str
    level: int = ATOM
    typed: bool = True
    reads: frozenset[str] = frozenset()
    """What it reads that may change: local variables by name, "" for arrays. It may not move across a write to that."""
    literal: int | float | None = None
    limit: int | None = None
    """Where known: the value is in 0 .. limit."""
    inner: Expr | None = None
    """What the outermost cast is applied to."""
    parts: tuple[str, Expr, Expr] | None = None
    """The outermost arithmetic operator and its operands."""

    def within(self, level: int) -> str:
        """The text as an operand that must bind at least that tightly."""
        return self.text if self.level >= level else f"({self.text})"


def is_float(type_: str) -> bool:
    """f32 or f64."""
    return type_.startswith("f")


def _bits(type_: str) -> tuple[int, int]:
    """The least and the most bits that an integer type has."""
    return (16, 64) if type_ in ("size_t", "ptrdiff_t") else (int(type_.lstrip("ui")),) * 2


def _signed(type_: str) -> bool:
    return (type_.startswith("i") and type_ != "i1") or type_ == "ptrdiff_t"


def _narrow(type_: str) -> bool:
    """Does C compute with int instead?"""
    return not is_float(type_) and type_ != "i1" and _bits(type_)[0] < 32 and type_ not in ("size_t", "ptrdiff_t")


def _widens(narrow: str, wide: str) -> bool:
    """Does C convert every value of one type to the other unchanged, and without a warning?"""
    if is_float(narrow) or is_float(wide) or wide == "i1":
        return narrow == wide
    most, room = _bits(narrow)[1] - _signed(narrow), _bits(wide)[0] - _signed(wide)
    return most <= room and (_signed(wide) or not _signed(narrow))


def _preserved(value: Expr, type_: str) -> bool:
    """Is this value the same in that type?"""
    known = value.limit is not None and not is_float(type_) and type_ != "i1"
    return _widens(value.type, type_) or (known and (value.limit or 0) < 1 << (_bits(type_)[0] - _signed(type_)))


def literal(value: int | float, type_: str) -> Expr:
    """A constant, exact."""
    if is_float(type_):
        text = _float_text(value, type_)
        return Expr(text, type_, UNARY if text.startswith("-") else ATOM, literal=value)
    value = int(value)
    if type_ == "i1":
        return Expr("true" if value else "false", type_, literal=value & 1, limit=1)
    if type_.startswith("u"):
        value %= 1 << _bits(type_)[0]
        text = f"{value:#x}u" if value >= 4096 else f"{value}u"
    else:
        limits = {-(1 << 31): "INT32_MIN", (1 << 31) - 1: "INT32_MAX", -(1 << 63): "INT64_MIN"}
        text = limits.get(value, str(value))
    level = UNARY if text.startswith("-") else ATOM
    return Expr(text, type_, level, typed=False, literal=value, limit=value if value >= 0 else None)


def _float_text(value: float, type_: str) -> str:
    suffix = "f" if type_ == "f32" else ""
    if math.isnan(value):  # the standard's macros for these two need math.h, which is not there without a C library
        return f'__builtin_nan{suffix}("")'
    if math.isinf(value):
        return ("-" if value < 0 else "") + f"__builtin_inf{suffix}()"
    if type_ == "f64":
        return repr(value)
    # The shortest text that is read back as the same float.
    bits = struct.pack("f", value)
    text = next(t for t in (f"{value:.{digits}g}" for digits in range(1, 10)) if struct.pack("f", float(t)) == bits)
    return (text if "." in text or "e" in text else text + ".0") + "f"


def cast(value: Expr, type_: str) -> Expr:
    """(type)value, without the casts on the way that change nothing."""
    if value.literal is not None and not is_float(type_) and not is_float(value.type):
        return literal(_wrapped(int(value.literal), type_), type_)
    while value.inner is not None and value.type != type_ and _redundant(value.inner, value.type, type_):
        value = value.inner
    if value.type == type_:
        return value
    limit = value.limit if _preserved(value, type_) else None
    text = f"({C_TYPES[type_]}){value.within(UNARY)}"
    return Expr(text, type_, UNARY, reads=value.reads, limit=1 if value.type == "i1" else limit, inner=value)


def _wrapped(value: int, type_: str) -> int:
    """An integer as the type holds it."""
    if type_ == "i1" or type_ in ("size_t", "ptrdiff_t"):
        return value
    bits = _bits(type_)[0]
    value %= 1 << bits
    return value - (1 << bits) if _signed(type_) and value >> (bits - 1) else value


def _redundant(value: Expr, middle: str, last: str) -> bool:
    """Is (last)(middle)value the same as (last)value?"""
    if any(is_float(t) for t in (value.type, middle, last)) or "i1" in (middle, last):
        return False
    if middle == "ptrdiff_t" and "size_t" in (value.type, last):
        return True
    return _preserved(value, middle) or _bits(middle)[0] >= _bits(last)[1]


def implicit(value: Expr, type_: str) -> Expr:
    """The value where C converts it to the type by itself: initialiser, assignment, argument, return value."""
    while value.inner is not None and value.type == type_ and _widens(value.inner.type, type_):
        value = value.inner
    return value


def index(value: Expr) -> Expr:
    """The value between brackets, or as a shift count: any integer type will do."""
    while value.inner is not None and (value.type in ("size_t", "ptrdiff_t") or _preserved(value.inner, value.type)):
        value = value.inner
    return value


def binary(operator: str, left: Expr, right: Expr, type_: str) -> Expr:
    """Arithmetic in a type: C's conversions must give that type, so one operand at least keeps its cast to it."""
    if operator == "&" and _narrow(type_):
        return _narrow_mask(left, right, type_)
    if operator not in ("<<", ">>") and _signed(type_):  # of unsigned ones GCC complains even where nothing changes
        if right.inner is not None and left.typed and _widens(right.inner.type, type_):
            right = right.inner
        elif left.inner is not None and right.typed and _widens(left.inner.type, type_):
            left = left.inner
    if operator not in ("<<", ">>"):
        if operator in "+-" and right.literal is not None and right.literal < 0 and right.text.startswith("-"):
            operator, right = "-" if operator == "+" else "+", literal(-right.literal, type_)
    else:
        right = index(right)
    if not left.typed and (not right.typed or operator in ("<<", ">>")):
        left = Expr(f"({C_TYPES[type_]}){left.within(UNARY)}", type_, UNARY, reads=left.reads)
    result = _joined(operator, left, right, type_)
    if not _narrow(type_):
        return result
    if operator == "*" and type_.startswith("u"):
        raise ValueError(f"a product of {type_} would be one of int")
    return replace(cast(replace(result, type="i32"), type_), inner=None)  # int is C's choice: the cast must stay


def _narrow_mask(left: Expr, right: Expr, type_: str) -> Expr:
    """x & mask in 8 or 16 bits. Where the mask is positive int does the same, whatever the sign of x."""
    positive = right.literal is not None and 0 <= right.literal < 1 << (_bits(type_)[0] - 1)
    if positive and left.inner is not None and _bits(left.inner.type) == _bits(type_):
        left = left.inner
    if positive:
        bound = int(right.literal or 0)
        return replace(_joined("&", left, literal(bound, "i32"), type_), typed=False, limit=bound)
    return replace(cast(_joined("&", left, right, "i32"), type_), inner=None)


def _joined(operator: str, left: Expr, right: Expr, type_: str) -> Expr:
    level = LEVELS[operator]
    left_level, right_level = level, level + 1
    # Compilers, and people, want more parentheses than the language does.
    if operator in ("<<", ">>"):
        left_level = right_level = UNARY
    elif operator in ("&", "|", "^"):
        left_level, right_level = (level if left.level == level else UNARY), UNARY
    elif operator in ("&&", "||"):
        left_level, right_level = (level if left.level == level else 7), 7
    elif level in (7, 8):
        left_level = right_level = 10
    text = f"{left.within(left_level)} {operator} {right.within(right_level)}"
    return Expr(text, type_, level, reads=left.reads | right.reads, parts=(operator, left, right))


def comparison(operator: str, left: Expr, right: Expr) -> Expr:
    """left <operator> right, of one type; casts that do not change what is compared are dropped."""
    type_ = left.type
    if not is_float(type_) and type_ != "i1":
        plain_left, plain_right = implicit(left, type_), implicit(right, type_)
        kept = [v for v in (plain_left, plain_right) if v.literal is None]
        if _signed(type_) and all(_signed(v.type) or v.type == "i1" for v in kept):
            left, right = plain_left, plain_right
    return replace(_joined(operator, left, right, "i1"), limit=1, parts=None)


def conditional(condition: Expr, then: Expr, other: Expr, type_: str) -> Expr:
    """condition ? then : other."""
    text = f"{condition.within(7)} ? {then.within(2)} : {other.within(CONDITIONAL)}"
    limits = [arm.limit for arm in (then, other) if arm.limit is not None]
    limit = max(limits) if len(limits) == 2 else None
    reads = condition.reads | then.reads | other.reads
    result = Expr(text, type_, CONDITIONAL, then.typed or other.typed, reads, limit=limit)
    if not _narrow(type_):
        return result
    if then.literal is not None and other.literal is not None:
        return replace(result, typed=False)
    return replace(cast(replace(result, type="i32"), type_), inner=None)


def unary(operator: str, value: Expr, type_: str) -> Expr:
    """<operator>value."""
    if value.text.startswith(operator):
        value = replace(value, text=f"({value.text})", level=ATOM)
    if not value.typed:
        value = Expr(f"({C_TYPES[type_]}){value.within(UNARY)}", type_, UNARY, reads=value.reads)
    result = Expr(operator + value.within(UNARY), type_, UNARY, reads=value.reads)
    return replace(cast(replace(result, type="i32"), type_), inner=None) if _narrow(type_) else result
