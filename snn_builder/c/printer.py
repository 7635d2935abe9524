# SPDX-License-Identifier: Apache-2.0
"""Prints the body of an emitc function as C: our names, one-use values folded into expressions, const locals.

A value that is used once is not printed where it is defined but where it is used, unless memory that it reads may have
been written in between. Everything else gets a local. Whatever has no translation here raises InvalidModule.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from mlir import ir

from ..dialect import InvalidModule, walk
from .expression import (
    C_TYPES,
    UNARY,
    Expr,
    binary,
    cast,
    comparison,
    conditional,
    implicit,
    index,
    is_float,
    literal,
    unary,
)  # fmt: skip

UNROLLED = "unrolled"
"""The name of a loop that compilers are asked to unroll, and its macro in capitals."""

ROW_BY_ROW = "row_by_row"
"""The name of a loop whose rounds compilers are asked to keep apart, and its macro in capitals."""

LONGEST = 90
"""An expression beyond that many characters gets a local of its own, so that a line can be read."""

ARRAYS = frozenset([""])
"""What an expression that reads an array reads: any array, because arguments may overlap."""

_BINARY = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "rem": "%", "bitwise_and": "&", "bitwise_or": "|",
    "bitwise_xor": "^", "bitwise_left_shift": "<<", "bitwise_right_shift": ">>", "logical_and": "&&",
    "logical_or": "||",
}  # fmt: skip
_UNARY = {"unary_minus": "-", "unary_plus": "+", "bitwise_not": "~", "logical_not": "!"}
_COMPARISONS = ["==", "!=", "<", "<=", ">", ">="]
_KEYWORDS = frozenset(
    re.findall(
        r"\w+",
        """auto break case char const continue default do double else enum extern float for goto if inline int long
        register restrict return short signed sizeof static struct switch typedef union unsigned void volatile while
        bool true false asm typeof main""",
    )
)


def element_type(type_: ir.Type) -> str:
    """The scalar type, as C_TYPES names it, of an emitc scalar, array or lvalue."""
    found = re.search(r"(u?i\d+|f32|f64|size_t|ptrdiff_t)>*$", str(type_))
    name = {"ui1": "i1"}.get(found.group(1), found.group(1)) if found else ""
    if name not in C_TYPES:
        raise InvalidModule(f"no C type for {type_}")
    return name


def dimensions(type_: ir.Type) -> str:
    """The dimensions of an emitc array as in a C declaration, "[4][6]"; "" for a scalar."""
    return "".join(f"[{size}]" for size in re.findall(r"(\d+)x", str(type_)))


def comment_of(location: ir.Location) -> str:
    """The location's text if it is a comment, "" if it is a name or nothing. Safe inside /* */."""
    name = _name(location)
    if name.isidentifier():
        return ""
    printable = "".join(c if c.isprintable() else " " for c in name)
    return printable.replace("*/", "* /").replace("/*", "/ *").replace("??/", "?? /")


def name_of(location: ir.Location) -> str:
    """The location's text if it is an identifier, else ""."""
    name = _name(location)
    return name if name.isidentifier() and name.isascii() else ""


def _name(location: ir.Location) -> str:
    if location.is_a_fused():
        return next((name for name in map(_name, location.locations) if name), "")
    return str(location.name_str) if location.is_a_name() else ""


@dataclass
class _Place:
    """What can be read and written: a local variable, or an element of an array."""

    text: str
    type: str
    reads: frozenset[str] = ARRAYS
    variable: ir.Value | None = None
    declared: bool = True
    scalar: bool = False
    """A local array of one element, which C does not need: it reads as a variable."""


class FunctionPrinter:
    """Prints the body of one function: `arguments` and `symbols` (globals, functions) say how they read in C."""

    def __init__(self, op: ir.Operation, arguments: Sequence[str], symbols: Mapping[str, str]) -> None:
        self._op = op
        self._block: ir.Block = op.regions[0].blocks[0]
        self._symbols = symbols
        self._lines: list[str] = []
        self._depth = 1
        self._comment = ""
        self._scopes: list[set[str]] = [set(_KEYWORDS) | set(symbols.values()) | {"state"}]
        self._values: dict[ir.Value, Expr] = {}
        self._pending: dict[ir.Value, Expr] = {}  # used once, later in the same block
        self._places: dict[ir.Value, _Place] = {}
        self._writers: dict[ir.Block, tuple[dict[ir.Operation, int], list[int]]] = {}  # places, and writers before each
        self._rows: dict[tuple[ir.Value, ir.Value], str] = {}  # pointers to a block of an array of rank 3
        for argument, text in zip(self._block.arguments, arguments, strict=True):
            self._scopes[0].add(text)
            if dimensions(argument.type):
                self._places[argument] = _Place(text, element_type(argument.type))
            else:
                self._values[argument] = Expr(text, element_type(argument.type))

    def print(self) -> list[str]:
        """The lines between the function's braces."""
        operations = [op.operation for op in self._block.operations]
        for op in operations:  # arrays are uninitialised, so they can all be declared first
            if op.name == "emitc.variable" and dimensions(op.result.type) not in ("", "[1]"):
                self._declare_array(op)
        self._statements(operations)
        return self._lines

    # Lines and names

    def _emit(self, line: str) -> None:
        self._lines.append("    " * self._depth + line)

    @contextmanager
    def _braces(self) -> Iterator[None]:
        self._depth += 1
        self._scopes.append(set())
        yield
        self._scopes.pop()
        self._depth -= 1

    def _unique(self, wanted: str) -> str:
        """A name that hides nothing, declared in the scope that is open."""
        name, number = wanted, 2
        while any(name in scope for scope in self._scopes):
            name, number = f"{wanted}{number}", number + 1
        self._scopes[-1].add(name)
        return name

    def _comment_layer(self, op: ir.Operation) -> None:
        comment = comment_of(op.location)
        if self._depth == 1 and comment and comment != self._comment:
            if self._lines:
                self._lines.append("")
            self._emit(f"/* {comment} */")
            self._comment = comment

    # Values

    def _use(self, value: ir.Value) -> Expr:
        if value in self._pending:
            return self._pending.pop(value)
        if value in self._values:
            return self._values[value]
        place = self._places[value]  # an array, handed to a helper function
        return Expr(place.text, place.type, reads=ARRAYS)

    def _local(self, value: ir.Value, expression: Expr) -> None:
        """Gives a value a local variable."""
        type_ = element_type(value.type)
        wanted = name_of(value.owner.location) or ("x" if value.owner.operation.name == "emitc.load" else "t")
        name = self._unique(wanted)
        self._emit(f"const {C_TYPES[type_]} {name} = {implicit(expression, type_).text};")
        self._values[value] = Expr(name, type_, limit=expression.limit)

    def _define(self, op: ir.Operation, expression: Expr) -> None:
        """Decides where a result is printed: wherever it is used, at its one use, or now."""
        value = op.result
        uses = list(value.uses)
        atom = expression.inner or expression
        if expression.literal is not None or (atom.text.isidentifier() and not expression.reads):
            self._values[value] = expression
        elif len(uses) == 1 and uses[0].owner.operation.block == op.block and len(expression.text) <= LONGEST:
            self._pending[value] = expression
        elif uses:
            self._local(value, expression)

    def _settle(self, written: frozenset[str] | None = None) -> None:
        """Before a write to that, or to anything: what still waits and reads it has to be read now."""
        for value, expression in list(self._pending.items()):
            if expression.reads if written is None else expression.reads & written:
                self._local(value, self._pending.pop(value))

    # Operations

    def _statements(self, operations: Sequence[ir.Operation]) -> None:
        outer = set(self._pending)
        for op in operations:
            kind = op.name.removeprefix("emitc.")
            statement: Callable[[ir.Operation], None] | None = getattr(self, f"_print_{kind}", None)
            if statement is not None:
                if kind in ("assign", "for", "if"):
                    self._comment_layer(op)
                statement(op)
            else:
                self._define(op, self._expression(op))
        if set(self._pending) - outer:
            raise InvalidModule(f"{self._op.location}: a value was lost on the way to C")

    def _expression(self, op: ir.Operation) -> Expr:
        """What an operation computes."""
        kind = op.name.removeprefix("emitc.")
        if kind == "load":
            return self._load(op)
        if kind == "expression":
            return self._nested(op)
        try:
            type_ = element_type(op.result.type)
            if kind == "constant":
                return literal(_number(op.attributes["value"]), type_)
            operands = [self._use(value) for value in op.operands]
            if kind in _BINARY:
                return binary(_BINARY[kind], operands[0], operands[1], type_)
            if kind in _UNARY:
                return unary(_UNARY[kind], operands[0], type_)
            if kind == "cast":
                return cast(operands[0], type_)
            if kind == "conditional":
                return conditional(operands[0], operands[1], operands[2], type_)
            if kind == "cmp":
                predicate = int(ir.IntegerAttr(op.attributes["predicate"]).value)
                return comparison(_COMPARISONS[predicate], operands[0], operands[1])
            if kind == "call":
                types = [element_type(value.type) for value in op.operands]
                texts = [implicit(e, t).text for e, t in zip(operands, types, strict=True)]
                callee = self._symbols[ir.FlatSymbolRefAttr(op.attributes["callee"]).value]
                reads = frozenset[str]().union(*(e.reads for e in operands))
                return Expr(f"{callee}({', '.join(texts)})", type_, reads=reads)
        except (ValueError, KeyError, IndexError) as error:
            raise InvalidModule(f"{op.location}: {op.name} cannot be printed as C: {error}") from error
        raise InvalidModule(f"{op.location}: {op.name} cannot be printed as C")

    def _load(self, op: ir.Operation) -> Expr:
        place = self._places[op.operands[0]]
        settled = place.variable is not None and self._settled(place.variable, op)
        return Expr(place.text, place.type, reads=frozenset() if settled else place.reads)

    def _settled(self, variable: ir.Value, op: ir.Operation) -> bool:
        """Is a local variable never written after that operation of the block that declares it?"""
        if variable.owner.operation.block != op.block:
            return False
        later = False
        for other in op.block.operations:
            if later and _writes(other.operation, variable):
                return False
            later = later or other.operation == op
        return True

    def _nested(self, op: ir.Operation) -> Expr:
        block = op.regions[0].blocks[0]
        for argument, value in zip(block.arguments, op.operands, strict=True):
            expression = self._use(value)
            if expression.level < UNARY and len(list(argument.uses)) > 1:
                self._pending[value] = expression
                self._local(value, self._pending.pop(value))
                expression = self._values[value]
            self._values[argument] = expression
        for inner in block.operations:
            if inner.operation.name == "emitc.yield":
                return self._use(inner.operation.operands[0])
            self._values[inner.operation.result] = self._expression(inner.operation)
        raise InvalidModule(f"{op.location}: an expression without a value")

    # Statements: one method for each operation that is not just a value

    def _print_return(self, op: ir.Operation) -> None:
        for value in op.operands:
            self._emit(f"return {implicit(self._use(value), element_type(value.type)).text};")

    def _print_yield(self, op: ir.Operation) -> None:
        if len(op.operands):
            raise InvalidModule(f"{op.location}: a yield with values outside an expression")

    def _print_get_global(self, op: ir.Operation) -> None:
        name = self._symbols[ir.FlatSymbolRefAttr(op.attributes["name"]).value]
        self._places[op.result] = _Place(name, element_type(op.result.type), reads=frozenset())

    def _declare_array(self, op: ir.Operation) -> None:
        name, type_ = self._unique(name_of(op.location) or "t"), element_type(op.result.type)
        self._emit(f"{C_TYPES[type_]} {name}{dimensions(op.result.type)};")
        self._places[op.result] = _Place(name, type_)

    def _print_variable(self, op: ir.Operation) -> None:
        """A scalar that changes: declared at its first assignment, if that comes first in this block."""
        if op.result in self._places:
            return
        if dimensions(op.result.type) == "[1]":
            self._scalar(op)
            return
        if dimensions(op.result.type):
            self._declare_array(op)
            return
        if str(op.attributes["value"]) != '#emitc.opaque<"">':
            raise InvalidModule(f"{op.location}: a variable with an initial value cannot be printed as C")
        users = {use.owner.operation for use in op.result.uses}
        assigned = (user.operands[1].owner for user in users if user.name == "emitc.assign")
        names = sorted(name_of(owner.location) for owner in assigned if not isinstance(owner, ir.Block))
        name = self._unique(name_of(op.location) or next(filter(None, names), "t"))
        type_ = element_type(op.result.type)
        place = _Place(name, type_, frozenset([name]), op.result, declared=False)
        self._places[op.result] = place
        later = (other.operation for other in op.block.operations)
        first = next(o for o in later if o != op and any(inner in users for inner in walk(o)))
        if first.name != "emitc.assign":
            self._emit(f"{C_TYPES[type_]} {name};")
            place.declared = True

    def _scalar(self, op: ir.Operation) -> None:
        """An array of one element: declared at its first assignment, if that comes first in this block."""
        name, type_ = self._unique(name_of(op.location) or "t"), element_type(op.result.type)
        place = _Place(name, type_, frozenset([name]), declared=False, scalar=True)
        self._places[op.result] = place
        elements = {use.owner.operation for use in op.result.uses}
        users = {use.owner.operation for element in elements if len(element.results) for use in element.result.uses}
        later = (other.operation for other in op.block.operations)
        first = next((o for o in later if o != op and any(inner in users for inner in walk(o))), None)
        if first is None or first.name != "emitc.assign":
            self._emit(f"{C_TYPES[type_]} {name};")
            place.declared = True

    def _print_subscript(self, op: ir.Operation) -> None:
        """An element of an array. An index that reads memory gets a local unless it is read right here."""
        array, *indices = op.operands
        if self._places[array].scalar:
            for value in indices:
                self._use(value)
            self._places[op.result] = self._places[array]
            return
        users = [use.owner.operation for use in op.result.uses]
        direct = len(users) == 1 and users[0].block == op.block and not self._written_between(op, users[0])
        texts = []
        for value in indices:
            expression = self._use(value)
            if expression.reads and not direct:
                self._local(value, expression)
                expression = self._values[value]
            texts.append(expression)
        rows = self._rows.get((array, indices[0]))
        if rows is not None:
            texts = texts[1:]
        text = (rows or self._places[array].text) + "".join(f"[{index(e).text}]" for e in texts)
        reads = self._places[array].reads.union(*(e.reads for e in texts))
        self._places[op.result] = _Place(text, element_type(op.result.type), reads)

    def _written_between(self, first: ir.Operation, last: ir.Operation) -> bool:
        """Is anything written between two operations of a block?"""
        if first.block not in self._writers:
            operations = [op.operation for op in first.block.operations]
            writing = [any(inner.name == "emitc.assign" for inner in walk(op)) for op in operations]
            places = {op: place for place, op in enumerate(operations)}
            self._writers[first.block] = places, [0, *itertools.accumulate(writing)]
        places, writers = self._writers[first.block]
        return writers[places[last]] > writers[places[first] + 1]

    def _print_assign(self, op: ir.Operation) -> None:
        target, value = op.operands
        place = self._places[target]
        expression = implicit(self._use(value), place.type)
        self._settle(place.reads if place.variable is not None or place.scalar else ARRAYS)
        if not place.declared:
            self._emit(f"{C_TYPES[place.type]} {place.text} = {expression.text};")
            place.declared = True
        elif expression.parts and expression.type == place.type and expression.parts[1].text == place.text:
            operator, _, right = expression.parts
            step = right.literal == 1 and operator in ("+", "-") and not is_float(place.type)
            self._emit(f"{place.text}{operator * 2};" if step else f"{place.text} {operator}= {right.text};")
        else:
            self._emit(f"{place.text} = {expression.text};")

    def _print_if(self, op: ir.Operation) -> None:
        condition = self._use(op.operands[0])
        self._settle()
        self._emit(f"if ({condition.text}) {{")
        for number, region in enumerate(op.regions):
            operations = [o.operation for block in region for o in block.operations]
            if number and any(o.name != "emitc.yield" for o in operations):
                self._emit("} else {")
            with self._braces():
                self._statements(operations)
        self._emit("}")

    def _print_for(self, op: ir.Operation) -> None:
        lower, upper, step = (self._bound(op, value) for value in op.operands)
        self._settle()
        rows = self._row_pointers(op)
        block = op.regions[0].blocks[0]
        counter = block.arguments[0]
        type_ = element_type(counter.type)
        with self._braces():
            free = [n for n in "ijklmn" if not any(n in scope for scope in self._scopes)]
            name = self._unique(free[0] if free else "i")
            self._values[counter] = Expr(name, type_)
            advance = f"{name}++" if step.literal == 1 else f"{name} += {step.text}"
            self._depth -= 1
            if name_of(op.location) == UNROLLED:
                self._emit(UNROLLED.upper())
            self._emit(f"for ({C_TYPES[type_]} {name} = {lower.text}; {name} < {upper.within(10)}; {advance}) {{")
            self._depth += 1
            if name_of(op.location) == ROW_BY_ROW:
                self._emit(f"{ROW_BY_ROW.upper()};")
            self._statements([o.operation for o in block.operations])
        self._emit("}")
        for key in rows:
            del self._rows[key]

    def _row_pointers(self, loop: ir.Operation) -> list[tuple[ir.Value, ir.Value]]:
        """Blocks of weights that a loop stays in get a pointer, or compilers compute the block's place in each round."""
        made = []
        for op in loop.regions[0].blocks[0].operations:
            if op.operation.name != "emitc.subscript" or len(op.operation.operands) != 4:
                continue
            array, block, *_ = op.operation.operands
            expression = self._values.get(block)
            weights = not isinstance(array.owner, ir.Block) and array.owner.operation.name == "emitc.get_global"
            if not weights or expression is None or (array, block) in self._rows:
                continue
            place = self._places[array]
            inner = re.findall(r"(\d+)x", str(array.type))[2]
            name = self._unique("rows")
            self._emit(
                f"const {C_TYPES[place.type]} (*const {name})[{inner}] = {place.text}[{index(expression).text}];"
            )
            self._rows[array, block] = name
            made.append((array, block))
        return made

    def _bound(self, loop: ir.Operation, value: ir.Value) -> Expr:
        """A bound of a loop. C evaluates it again in each round, so it must be something that does not change."""
        expression = self._use(value)
        if expression.literal is not None or (expression.text.isidentifier() and not expression.reads):
            return expression
        owner = value.owner
        if not isinstance(owner, ir.Block) and owner.operation.name == "emitc.load":
            element = owner.operation.operands[0]
            place = self._places[element]
            if place.variable is not None and not _writes(loop, place.variable):
                return expression
            if place.scalar and not _writes_element(loop, element.owner.operation.operands[0]):
                return expression
        self._local(value, expression)
        return self._values[value]


def _number(attribute: ir.Attribute) -> int | float:
    if isinstance(attribute, ir.FloatAttr):
        return float(attribute.value)
    return int(attribute.value) if isinstance(attribute, ir.BoolAttr) else int(ir.IntegerAttr(attribute).value)


def _writes(op: ir.Operation, target: ir.Value) -> bool:
    """Does an operation, or one in it, assign to that variable?"""
    return any(inner.name == "emitc.assign" and inner.operands[0] == target for inner in walk(op))


def _writes_element(op: ir.Operation, array: ir.Value) -> bool:
    """Does an operation, or one in it, assign to an element of that array?"""
    targets = (inner.operands[0].owner for inner in walk(op) if inner.name == "emitc.assign")
    return any(target.operation.name == "emitc.subscript" and target.operands[0] == array for target in targets)
