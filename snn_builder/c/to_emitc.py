# SPDX-License-Identifier: Apache-2.0
"""From linalg, scf, arith, memref and func to a module in which every operation is emitc."""

from __future__ import annotations

from collections.abc import Callable

from mlir import ir
from mlir.dialects import arith, emitc
from mlir.passmanager import ExternalPass, PassManager
from mlir.rewrite import PatternRewriter, RewritePatternSet, walk_and_apply_patterns

from ..dialect import InvalidModule, walk


def to_emitc(module: ir.Module) -> None:
    """Converts a module in place; raises InvalidModule if anything is left that is not emitc."""
    to_loops = "canonicalize, func.func(convert-linalg-to-loops), lower-affine, canonicalize, cse"
    passes = PassManager.parse(f"builtin.module({to_loops})", module.context)
    passes.add(plain_operators, name="plain-operators")
    passes.add("convert-to-emitc")
    try:
        passes.run(module.operation)
    except ir.MLIRError as error:
        raise InvalidModule(f"no conversion to C: {error}") from None
    # The conversion is partial, and successful with leftovers.
    left = {op.name for op in walk(module.operation) if not op.name.startswith("emitc.")} - {"builtin.module"}
    if left:
        raise InvalidModule(f"no conversion to C for {', '.join(sorted(left))}")
    _erase_unused(module)


def _erase_unused(module: ir.Module) -> None:
    """The conversion leaves values that nothing uses; in C they would be locals that a compiler warns about."""
    for op in reversed(list(walk(module.operation))):
        if op.name in _PURE and not any(True for _ in op.result.uses):
            op.erase()


_PURE = {
    f"emitc.{name}"
    for name in (
        "add", "sub", "mul", "div", "rem", "bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not",
        "bitwise_left_shift", "bitwise_right_shift", "logical_and", "logical_or", "logical_not", "unary_minus",
        "unary_plus", "cast", "cmp", "conditional", "constant", "expression", "load", "subscript",
    )
}  # fmt: skip


def plain_operators(module: ir.Operation, _: ExternalPass) -> None:
    """Converts what MLIR's conversion guards although it needs no guard in C.

    An ordered comparison of floats is C's own operator; a shift by less than the width needs no test, a division by a constant neither.
    """
    with module.context:
        patterns = RewritePatternSet()
        patterns.add("arith.cmpf", _comparison)
        patterns.add("arith.shrsi", _shift(emitc.BitwiseRightShiftOp, signed=True))
        patterns.add("arith.shrui", _shift(emitc.BitwiseRightShiftOp, signed=False))
        patterns.add("arith.shli", _shift(emitc.BitwiseLeftShiftOp, signed=False))
        patterns.add("arith.ori", _either)
        patterns.add("arith.divui", _division(emitc.DivOp))
        patterns.add("arith.remui", _division(emitc.RemOp))
        patterns.add("builtin.unrealized_conversion_cast", _signedness)
        walk_and_apply_patterns(module, patterns.freeze())


_Pattern = Callable[[ir.OpView, PatternRewriter], bool]

# To the number of emitc's predicate. C's operators are false on NaN, but for != which is true.
_COMPARISONS = {
    arith.CmpFPredicate.OEQ: 0,
    arith.CmpFPredicate.UNE: 1,
    arith.CmpFPredicate.OLT: 2,
    arith.CmpFPredicate.OLE: 3,
    arith.CmpFPredicate.OGT: 4,
    arith.CmpFPredicate.OGE: 5,
}


def _comparison(op: ir.OpView, rewriter: PatternRewriter) -> bool:
    predicate = arith.CmpFPredicate(ir.IntegerAttr(op.operation.attributes["predicate"]).value)
    if predicate not in _COMPARISONS:
        return True  # no match: the general conversion is right
    with rewriter.ip, op.location:
        number = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), _COMPARISONS[predicate])
        result = emitc.CmpOp(op.operation.result.type, number, *op.operation.operands).result
    rewriter.replace_op(op.operation, [result])
    return False


def _signedness(op: ir.OpView, rewriter: PatternRewriter) -> bool:
    """Between an unsigned memory and the signless integers of arith: a cast in C."""
    with rewriter.ip, op.location:
        result = emitc.CastOp(op.operation.results[0].type, op.operation.operands[0]).result
    rewriter.replace_op(op.operation, [result])
    return False


def _either(op: ir.OpView, rewriter: PatternRewriter) -> bool:
    """Of two conditions."""
    type_ = op.operation.result.type
    if not isinstance(type_, ir.IntegerType) or type_.width != 1:
        return True
    with rewriter.ip, op.location:
        result = emitc.LogicalOrOp(type_, *op.operation.operands).result
    rewriter.replace_op(op.operation, [result])
    return False


def _division(operator: type[ir.OpView]) -> _Pattern:
    """Of unsigned integers by a constant that is not 0; MLIR has no conversion for it."""

    def rewrite(op: ir.OpView, rewriter: PatternRewriter) -> bool:
        value, divisor = op.operation.operands
        if not isinstance(value.type, ir.IntegerType) or not _is_constant(divisor) or _is_zero(divisor):
            return True
        unsigned = ir.IntegerType.get_unsigned(value.type.width)
        with rewriter.ip, op.location:
            quotient = operator(unsigned, *(emitc.CastOp(unsigned, each).result for each in (value, divisor))).result
            result = emitc.CastOp(value.type, quotient).result
        rewriter.replace_op(op.operation, [result])
        return False

    return rewrite


def _shift(operator: type[ir.OpView], *, signed: bool) -> _Pattern:
    def rewrite(op: ir.OpView, rewriter: PatternRewriter) -> bool:
        value, count = op.operation.operands
        if not isinstance(value.type, ir.IntegerType) or not _below(count, value.type.width):
            return True
        with rewriter.ip, op.location:
            if signed:
                result = operator(value.type, value, count).result
            else:  # on the bits: signed types shift arithmetically to the right, and not at all to the left
                unsigned = ir.IntegerType.get_unsigned(value.type.width)
                shifted = operator(unsigned, emitc.CastOp(unsigned, value).result, count).result
                result = emitc.CastOp(value.type, shifted).result
        rewriter.replace_op(op.operation, [result])
        return False

    return rewrite


def _below(count: ir.Value, width: int) -> bool:
    """Is a shift count known to be in 0 .. width - 1: a constant, or masked by one?"""
    if isinstance(count.owner, ir.Block):
        return False
    op = count.owner.operation
    if op.name == "arith.constant":
        return 0 <= int(ir.IntegerAttr(op.attributes["value"]).value) < width
    if op.name == "arith.andi":
        return any(_below(operand, width) for operand in op.operands if _is_constant(operand))
    return op.name in ("arith.extsi", "arith.extui") and _below(op.operands[0], width)


def _is_constant(value: ir.Value) -> bool:
    return not isinstance(value.owner, ir.Block) and value.owner.operation.name == "arith.constant"


def _is_zero(constant: ir.Value) -> bool:
    return int(ir.IntegerAttr(constant.owner.operation.attributes["value"]).value) == 0
