# SPDX-License-Identifier: Apache-2.0
"""What IRDL cannot say about an snn module: shapes agree and element types fit. A failure is a bug of ours."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Iterator
from importlib import resources

from mlir import ir


class InvalidModule(Exception):
    """A module that the compiler itself built, or read between its stages, is wrong. Never the user's fault."""

    def first_line(self) -> str:
        """What is wrong, without the operation that MLIR prints with it."""
        lines = str(self).splitlines()
        return next((line.removeprefix("error: ") for line in lines if line.startswith("error: ")), lines[0])


@functools.cache
def irdl_text() -> str:
    """The dialect's definition in IRDL, as `mlir-opt --irdl-file=` reads it too."""
    return resources.files(__package__).joinpath("snn.irdl.mlir").read_text(encoding="utf-8")


@functools.cache
def _layout() -> dict[str, list[tuple[str, bool]]]:
    """Operation name -> its operands in order, each as (name, is a single value), taken from the IRDL file."""
    layout = {}
    for name, body in re.findall(r"irdl\.operation @(\w+) \{(.*?)\n  \}", irdl_text(), re.DOTALL):
        listed = re.search(r"irdl\.operands\((.*?)\)", body, re.DOTALL)
        parts = (part.split() for part in listed.group(1).split(",")) if listed is not None else ()
        layout[f"snn.{name}"] = [(p[0].rstrip(":"), len(p) == 2) for p in parts]
    return layout


def walk(op: ir.Operation) -> Iterator[ir.Operation]:
    """An operation and everything in it, in the order of the text."""
    yield op
    for region in op.regions:
        for block in region:
            for child in block.operations:
                yield from walk(child.operation)


def operands(op: ir.Operation) -> dict[str, list[ir.Value]]:
    """The operands of a (verified) snn operation by name; an optional one that is absent is an empty list."""
    layout = _layout()[op.name]
    values = list(op.operands)
    if "operandSegmentSizes" in op.attributes:
        sizes = list(ir.DenseI32ArrayAttr(op.attributes["operandSegmentSizes"]))
    else:  # at most one operand is not a single value: what is left is its
        sizes = [1 if single else len(values) - len(layout) + 1 for _, single in layout]
    result: dict[str, list[ir.Value]] = {}
    for (name, _), size in zip(layout, sizes, strict=True):
        result[name], values = values[:size], values[size:]
    return result


class _Op:
    """An snn operation under verification: operands by name, and `require` to say what is wrong with it."""

    def __init__(self, op: ir.Operation) -> None:
        self.op = op
        self.values = operands(op)

    def require(self, condition: bool, problem: str) -> None:
        if not condition:
            raise InvalidModule(f"{self.op.location}: {self.op.name}: {problem}")

    def has(self, name: str) -> bool:
        return bool(self.values[name])

    def type(self, name: str, index: int = 0) -> ir.MemRefType:
        return ir.MemRefType(self.values[name][index].type)

    def element(self, name: str, index: int = 0) -> str:
        return str(self.type(name, index).element_type)

    def shape(self, name: str, index: int = 0) -> list[int]:
        return list(self.type(name, index).shape)

    def size(self, name: str, index: int = 0) -> int:
        return math.prod(self.shape(name, index))

    def floating(self, name: str) -> bool:
        return self.element(name).startswith("f")

    def integer(self, key: str) -> int:
        return int(ir.IntegerAttr(self.op.attributes[key]).value)

    def integers(self, key: str) -> list[int]:
        return list(ir.DenseI64ArrayAttr(self.op.attributes[key]))

    def same_element(self, *names: str) -> None:
        """All of one element type."""
        self.require(len({self.element(n) for n in names}) == 1, f"{', '.join(names)} differ in element type")

    def same_shape(self, *names: str) -> None:
        """All of one shape."""
        self.require(len({tuple(self.shape(n)) for n in names}) == 1, f"{', '.join(names)} differ in shape")

    def element_in(self, name: str, *elements: str) -> None:
        self.require(self.element(name) in elements, f"{name} has elements {self.element(name)}, not {elements}")

    def widens(self, name: str, to: str, index: int = 0) -> None:
        """Same float type, or an integer that is not wider than `to`."""
        narrow, wide = self.element(name, index), self.element(to)
        fits = narrow == wide or (narrow[0] == wide[0] == "i" and int(narrow[1:]) < int(wide[1:]))
        self.require(fits, f"{name} is {narrow}, which does not fit {to}, {wide}")


_INTEGERS = ("i8", "i16", "i32", "i64")
_FLOATS = ("f32", "f64")


def _linear(o: _Op) -> None:
    if len(o.shape("w")) == 3:
        _event_weights(o, o.size("x"), o.size("y"))
    else:
        o.require(o.shape("w") == [o.size("y"), o.size("x")], f"w is {o.shape('w')}, not {[o.size('y'), o.size('x')]}")
        o.widens("w", "y")
    for name in ("x", "b"):
        if o.has(name):
            o.widens(name, "y")
    o.element_in("y", "i32", "i64", *_FLOATS)
    o.require(len(o.shape("y")) == 1, "y is not of rank 1")
    if o.has("b"):
        o.require(o.shape("b") == o.shape("y"), "b and y differ in shape")


def _event_weights(o: _Op, inputs: int, outputs: int, groups: int = 1) -> None:
    """Weights of rank 3: [block of outputs][input][output], in a group's last block perhaps more than there are."""
    blocks, of, width = o.shape("w")
    if o.element("w") == "ui32":
        o.require(not o.floating("y"), "packed weights with floats")
        width *= 4
    else:
        o.widens("w", "y")
    o.require(of == inputs, f"w is of {of} inputs, not {inputs}")
    needed = groups * -(-(outputs // groups) // width)
    o.require(blocks == needed, f"w has {blocks} blocks of {width} for {outputs} outputs")


def _events(o: _Op) -> None:
    _list(o, "events", "count", o.size("x"))
    if o.has("graded"):
        o.element_in("graded", "i8", "i1")
        o.require(o.shape("graded") == [1], "graded is more than one flag")
    o.require(o.has("y") == (o.integer("rows") > 1), "only one of y and rows")
    if o.has("y"):
        o.same_element("x", "y")
        _flat(o)
        _rows(o, "y")


def _spread(o: _Op) -> None:
    _list(o, "events", "count", o.size("y"))


def _keep(o: _Op) -> None:
    _list(o, "events", "count", o.size("events"))
    _list(o, "kept", "kept_count", o.size("events"))


def _list(o: _Op, events: str, count: str, inputs: int) -> None:
    o.element_in(events, "ui16", "ui32")
    o.element_in(count, "index", "ui16", "ui32")
    o.require(o.shape(events) == [inputs], f"{events} is {o.shape(events)}, not {[inputs]}")
    o.require(o.shape(count) == [1], f"{count} is more than one number")
    limit = 1 << int(o.element(events)[2:])
    o.require(inputs < limit, f"{events} cannot list {inputs} inputs")


def _gather(o: _Op) -> None:
    inputs = _listed_inputs(o)
    _sums(o)
    _event_weights(o, inputs, o.size("y"))
    o.require(not o.has("b") or o.shape("b") == o.shape("y"), "b and y differ in shape")


def _gather2d(o: _Op) -> None:
    _flat(o)
    inputs = _listed_inputs(o)
    _sums(o)
    _geometry(o, {"events": "input", "y": "output"})
    channels, groups = o.integers("input")[2], o.integer("groups")
    o.require(channels % groups == 0, f"{channels} channels are not {groups} groups")
    _event_weights(o, math.prod(o.integers("kernel")) * (channels // groups), o.integers("output")[2], groups)
    o.require(not o.has("b") or o.shape("b") == o.integers("output")[2:], "b has not one element for each channel")
    _first(o, inputs // (channels // groups))


def _places(o: _Op) -> None:
    _list(o, "events", "count", o.size("events"))
    channels = o.integer("channels")
    o.require(channels >= 1 and o.size("events") % channels == 0, f"{o.size('events')} elements of {channels} channels")
    _first(o, o.size("events") // channels)


def _first(o: _Op, places: int) -> None:
    o.require(o.element("first") == o.element("events"), "first and events differ in element type")
    o.require(o.shape("first") == [places + 1], f"first is {o.shape('first')}, not {[places + 1]}")


def _scatter2d(o: _Op) -> None:
    _flat(o)
    _listed_inputs(o)
    o.element_in("y", "i32", *_FLOATS)
    o.require(not o.has("x") or o.floating("x") == o.floating("y"), "x and y are not of one kind")
    _geometry(o, {"events": "input", "y": "output"})
    o.require(o.integers("input")[2] == o.integers("output")[2], "input and output differ in channels")


def _sums(o: _Op) -> None:
    """What a synapse over listed inputs adds up."""
    o.element_in("y", "i32", "i64", *_FLOATS)
    o.require(len(o.shape("w")) == 3, "w is not laid out for events")
    for name in ("x", "b"):
        if o.has(name):
            o.widens(name, "y")


def _listed_inputs(o: _Op) -> int:
    """How many inputs there are, listed or not."""
    listed = o.has("events")
    o.require(listed or o.has("x"), "neither a list nor values")
    o.require(listed == o.has("count"), "only one of events and count")
    o.require(not o.has("graded") or (listed and o.has("x")), "graded without a list and values")
    if listed:
        _list(o, "events", "count", o.size("events"))
    inputs = o.size("events" if listed else "x")
    o.require(not o.has("x") or o.size("x") == inputs, "x and events differ in size")
    return inputs


def _emit(o: _Op) -> None:
    _list(o, "events", "count", o.size("spikes"))


def _event(o: _Op) -> None:
    for op in o.op.regions[0].blocks[0].operations:
        name = op.operation.name
        o.require(name in _IN_EVENT, f"{name} in a layer")


_IN_EVENT = frozenset(
    f"snn.{name}"
    for name in (
        "gather",
        "gather2d",
        "emit",
        "rescale",
        "sum",
        "gain",
        "output",
        "scale",
        "threshold",
        "li",
        "lif",
        "cubali",
        "cubalif",
    )
) | {"memref.alloca", "omp.terminator"}


def _rescale(o: _Op) -> None:
    o.same_shape("x", "y")
    o.element_in("x", *_INTEGERS)
    o.element_in("y", "i32", "i64")


def _sum(o: _Op) -> None:
    o.require(o.has("xs"), "nothing to sum")
    o.require(not o.has("others") or not o.floating("y"), "floats in two groups have no order")
    for name in ("xs", "others"):
        if o.has(name):
            o.same_shape(name, "y")
            o.widens(name, "y")
            o.require(o.element(name) != "i64" or not o.integer("saturate"), "i64 cannot be summed exactly")


def _gain(o: _Op) -> None:
    o.same_shape("x", "y")
    o.same_element("x", "y")
    _table(o, "m", "y")
    if o.floating("y"):
        o.require(not o.has("e"), "e with floats")
    else:
        o.element_in("y", "i32")
        o.require(o.has("m") == o.has("e"), "only one of m and e")
        if o.has("e"):
            o.element_in("e", "i8")
            o.require(o.shape("e") == [o.size("y")], f"e is {o.shape('e')}, not {[o.size('y')]}")
        o.require(0 <= o.integer("gain_shift") <= 31, "gain_shift is outside 0 to 31")


def _table(o: _Op, name: str, like: str) -> None:
    if o.has(name):
        o.same_element(name, like)
        o.require(o.shape(name) == [o.size(like)], f"{name} is {o.shape(name)}, not {[o.size(like)]}")


def _neuron(o: _Op) -> None:
    arrays = [n for n in ("x", "i", "v", "spikes") if n in o.values]
    o.same_shape(*arrays)
    o.same_element(*(n for n in arrays if n != "spikes"))
    o.element_in("v", "i32", *_FLOATS)
    if "spikes" in o.values:
        o.element_in("spikes", o.element("v") if o.floating("v") else "i8")
        o.require(not o.integer("subtract") or not o.has("reset"), "subtract with a table of resets")
    for name in ("decay", "cur_decay", "vol_decay", "leak", "threshold", "reset"):
        if name in o.values:
            _table(o, name, "v")
    o.require(0 <= o.integer("d_scale") <= 31, "d_scale is outside 0 to 31")
    names = [n for n in arrays if n != "x"]
    written = [o.values[n][0] for n in names]
    o.require(len(set(written)) == len(written), f"{', '.join(names)} are not all different")


def _same(source: str, target: str) -> Callable[[_Op], None]:
    def check(o: _Op) -> None:
        o.same_element(source, target)
        flat = 1 in (len(o.shape(source)), len(o.shape(target)))
        o.require(o.shape(source) == o.shape(target) or flat, f"{source} and {target} differ in rank, and none is flat")
        o.require(o.size(source) == o.size(target), f"{source} and {target} differ in size")

    return check


def _output(o: _Op) -> None:
    o.widens("x", "out")
    flat = 1 in (len(o.shape("x")), len(o.shape("out")))
    o.require(o.shape("x") == o.shape("out") or flat, "x and out differ in rank, and none is flat")
    _rows(o, "out")


def _transpose(o: _Op) -> None:
    o.same_element("x", "y")
    _flat(o)
    _rows(o, "y")
    o.require(o.values["x"] != o.values["y"], "y is x")


def _rows(o: _Op, target: str) -> None:
    o.require(o.size("x") == o.size(target), f"x and {target} differ in size")
    rows = o.integer("rows")
    o.require(rows >= 1 and o.size("x") % rows == 0, f"{o.size('x')} elements are not {rows} rows")
    o.require(rows == 1 or len(o.shape("x")) == len(o.shape(target)) == 1, "rows of an array that is not flat")


def _flat(o: _Op) -> None:
    """All arrays of rank 1, but weights."""
    for name, values in o.values.items():
        o.require(not values or name == "w" or len(o.shape(name)) == 1, f"{name} is not flat")


def _geometry(o: _Op, arrays: dict[str, str]) -> None:
    """The sizes of the arrays are those of their shapes, and the numbers are counts."""
    dilated = ("dilation",) if "dilation" in o.op.attributes else ()
    for key, rank in (("input", 3), ("output", 3), *((key, 2) for key in ("kernel", "stride", "padding", *dilated))):
        values = o.integers(key)
        o.require(len(values) == rank and min(values) >= (key != "padding"), f"{key} is {values}")
    for name, key in arrays.items():
        values = o.integers(key)
        o.require(o.size(name) == math.prod(values), f"{name} has {o.size(name)} elements, {key} is {values}")


def _conv2d(o: _Op) -> None:
    _flat(o)
    for name in ("x", "b") if len(o.shape("w")) == 3 else ("x", "w", "b"):
        if o.has(name):
            o.widens(name, "y")
    o.element_in("y", "i32", "i64", *_FLOATS)
    _geometry(o, {"x": "input", "y": "output"})
    groups, channels, outputs = o.integer("groups"), o.integers("input")[2], o.integers("output")[2]
    o.require(channels % groups == 0, f"{channels} channels are not {groups} groups")
    o.require(outputs % groups == 0, f"{outputs} outputs are not {groups} groups")
    if len(o.shape("w")) == 3:
        _event_weights(o, math.prod(o.integers("kernel")) * (channels // groups), outputs, groups)
    else:
        wanted = [outputs, *o.integers("kernel"), channels // groups]
        o.require(o.shape("w") == wanted, f"w is {o.shape('w')}, not {wanted}")
    o.require(not o.has("b") or o.shape("b") == [outputs], f"b is not of size {outputs}")


def _sumpool2d(o: _Op) -> None:
    _flat(o)
    o.widens("x", "y")
    o.element_in("y", "i32", *_FLOATS)
    _geometry(o, {"x": "input", "y": "output"})
    o.require(o.integers("input")[2] == o.integers("output")[2], "input and output differ in channels")


def _scale(o: _Op) -> None:
    _flat(o)
    o.same_shape("x", "w", "y")
    o.widens("x", "y")
    o.widens("w", "y")
    o.element_in("y", "i32", "i64", *_FLOATS)


def _threshold(o: _Op) -> None:
    _flat(o)
    o.same_shape("x", "spikes")
    o.element_in("spikes", o.element("x") if o.floating("x") else "i8")
    o.element_in("x", "i8", "i32", *_FLOATS)
    if o.has("threshold"):
        o.same_shape("x", "threshold")
        o.element_in("threshold", o.element("x") if o.floating("x") else "i32")


def _delay_read(o: _Op) -> None:
    o.same_element("line", "y")
    _line(o, "y")
    if o.has("steps"):
        o.same_shape("steps", "y")
        o.element_in("steps", "i32")
    if o.has("x"):
        o.same_shape("x", "y")
        o.widens("x", "y")


def _delay_write(o: _Op) -> None:
    o.widens("x", "line")
    _line(o, "x")


def _line(o: _Op, values: str) -> None:
    _flat(o)
    depth = o.integer("depth")
    o.require(depth >= 1 and o.size("line") == depth * o.size(values), f"line is not {depth} slots of {values}")
    o.require(o.has("at") or depth == 1, "no place to write at")
    if o.has("at"):
        o.element_in("at", "i32")
        o.require(o.shape("at") == [1], "at is not one number")


_CHECKS: dict[str, Callable[[_Op], None]] = {
    "snn.linear": _linear,
    "snn.rescale": _rescale,
    "snn.sum": _sum,
    "snn.gain": _gain,
    "snn.li": _neuron,
    "snn.lif": _neuron,
    "snn.cubali": _neuron,
    "snn.cubalif": _neuron,
    "snn.output": _output,
    "snn.copy": _same("x", "y"),
    "snn.transpose": _transpose,
    "snn.conv2d": _conv2d,
    "snn.sumpool2d": _sumpool2d,
    "snn.scale": _scale,
    "snn.threshold": _threshold,
    "snn.delay_read": _delay_read,
    "snn.delay_write": _delay_write,
    "snn.events": _events,
    "snn.spread": _spread,
    "snn.keep": _keep,
    "snn.event": _event,
    "snn.gather": _gather,
    "snn.gather2d": _gather2d,
    "snn.places": _places,
    "snn.scatter2d": _scatter2d,
    "snn.emit": _emit,
}


def verify(module: ir.Module) -> None:
    """Checks a module against MLIR's rules, the dialect's IRDL and the rules above; raises InvalidModule."""
    try:
        module.operation.verify()
    except ir.MLIRError as error:
        raise InvalidModule(str(error)) from None
    for op in walk(module.operation):
        if op.name.startswith("snn."):
            if op.location.is_a_name() and op.location.name_str.isidentifier():
                raise InvalidModule(f"{op.location}: {op.name}: the comment reads like a C name")
            _CHECKS[op.name](_Op(op))
