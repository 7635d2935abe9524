# SPDX-License-Identifier: Apache-2.0
"""The snn dialect (snn.irdl.mlir) from Python: load it, build modules of it, print and read them.

A module declares the weights, has `init` (clears the state) and `step` (one timestep). As text, a two-layer network:

    module attributes {snn.generator = "...", snn.kernel = "dense", snn.mode = "int8", snn.name = "tiny"} {
      memref.global constant @fc1_w : memref<2x3xi8>
      func.func @init(%lif1_v: memref<2xi32> {snn.name = "lif1_v", snn.role = "state"} loc("lif1_v")) {
        %c0_i32 = arith.constant 0 : i32
        linalg.fill ins(%c0_i32 : i32) outs(%lif1_v : memref<2xi32>) loc("lif1 (LIF 2)")
        return
      }
      func.func @step(%lif1_v: memref<2xi32> {snn.name = "lif1_v", snn.role = "state"} loc("lif1_v"),
                      %in: memref<3xi8> {snn.name = "in", snn.role = "input"} loc("in"),
                      %out: memref<2xi8> {snn.name = "out", snn.role = "output"} loc("out")) {
        %fc1_w = memref.get_global @fc1_w : memref<2x3xi8> loc("fc1_w")
        %fc1 = memref.alloca() : memref<2xi32> loc("fc1")
        "snn.linear"(%in, %fc1_w, %fc1) {w_scale = 12 : i64} : (...) -> () loc("fc1 (Linear 3 -> 2)")
        "snn.lif"(%fc1, %lif1_v, %out) {decay_float = 0.9 : f64, ...} : (...) -> () loc("lif1 (LIF 2)")
        return
      }
    }

The same through the builders (which work inside `with context`, like all of MLIR's):

    with new_context():
        module = network("tiny", mode="int8", kernel="dense", generator="snn-builder 0.1.0")
        declare(module, "fc1_w", (2, 3), "i8")
        state = Argument("lif1_v", (2,), "i32", "state")
        with function(module, "init", [state]) as (lif1_v,):
            clear(lif1_v, loc="lif1 (LIF 2)")
        ports = [Argument("in", (3,), "i8", "input"), Argument("out", (2,), "i8", "output")]
        with function(module, "step", [state, *ports]) as (lif1_v, x, out):
            fc1 = buffer("fc1", (2,), "i32")
            linear(x, weight(module, "fc1_w"), None, fc1, w_scale=12, loc="fc1 (Linear 3 -> 2)")
            lif(fc1, lif1_v, out, decay=(0.9, 3686), leak=(0.0, 0), threshold=(1.0, 4096), reset=(0.0, 0),
                subtract=False, saturate=True, product_bits=64, loc="lif1 (LIF 2)")
        verify(module)
        text = to_text(module)

Locations carry names through all stages. On an operation, `loc` is a NameLoc whose text becomes the comment above the
layer's loops in C; it must not read like a C identifier, because a NameLoc that does names a value.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

from mlir import ir
from mlir.dialects import arith, func, irdl, linalg, memref

from .checks import InvalidModule, irdl_text, verify, walk

__all__ = [
    "Argument", "InvalidModule", "Parameter", "buffer", "clear", "conv2d", "copy", "cubali", "cubalif", "declare",
    "delay_read", "delay_write", "function", "gain", "irdl_text", "li", "lif", "linear", "load", "network",
    "new_context", "output", "parse", "rescale", "scale", "sum_", "sumpool2d", "threshold", "to_text", "transpose",
    "verify", "walk", "weight",
]  # fmt: skip

Parameter: TypeAlias = "ir.Value | tuple[float, int]"
"""A neuron parameter: one value for all neurons, as (float, int), or a 1-D table with one element per neuron."""


def load(context: ir.Context) -> None:
    """Registers the snn dialect in a context."""
    with context, ir.Location.unknown():
        irdl.load_dialects(ir.Module.parse(irdl_text()))


def new_context() -> ir.Context:
    """A context with the snn dialect loaded."""
    context = ir.Context()
    context.enable_multithreading(False)  # modules are small; threads would only cost their start
    load(context)
    return context


def parse(text: str, context: ir.Context) -> ir.Module:
    """Reads a module and verifies it; raises InvalidModule. Only names survive of its locations."""
    try:
        module = ir.Module.parse(text, context)
    except ir.MLIRError as error:
        raise InvalidModule(str(error)) from None
    _drop_positions(module)
    verify(module)
    return module


def to_text(module: ir.Module) -> str:
    """A module as text that keeps the NameLocs and uses them as SSA names."""
    text: str = module.operation.get_asm(enable_debug_info=True, use_local_scope=True, use_name_loc_as_prefix=True)
    return re.sub(r" loc\(unknown\)", "", text).rstrip("\n") + "\n"


def _drop_positions(module: ir.Module) -> None:
    """Makes every location that is not a name unknown: line numbers of one text mean nothing in the next."""
    unknown = ir.Location.unknown(module.context)
    for op in walk(module.operation):
        if not op.location.is_a_name():
            op.location = unknown
        for argument in (a for region in op.regions for block in region for a in block.arguments):
            if not argument.location.is_a_name():
                argument.set_location(unknown)


# Modules, functions, buffers


class Argument(NamedTuple):
    """A memref argument of `init` or `step`: name (in C), shape, element type ("i8", "i32", "f32") and role."""

    name: str
    shape: tuple[int, ...]
    element: str
    role: str
    """"state", "input" or "output"."""


def _memref(shape: Sequence[int], element: str) -> ir.MemRefType:
    return ir.MemRefType.get(shape, ir.Type.parse(element), loc=ir.Location.unknown())


def network(name: str, *, mode: str, kernel: str, generator: str) -> ir.Module:
    """An empty module. `name`: prefix of all C names; `mode`: "f32" or "int8"; `generator`: named in the banner."""
    module = ir.Module.create(ir.Location.unknown())
    for key, value in (("name", name), ("mode", mode), ("kernel", kernel), ("generator", generator)):
        module.operation.attributes[f"snn.{key}"] = ir.StringAttr.get(value)
    return module


def declare(module: ir.Module, name: str, shape: Sequence[int], element: str, *, loc: str = "") -> None:
    """Declares a constant array (weights, bias, table) whose values are elsewhere; in C its name gets the prefix.

    `loc` is the comment beside its declaration in C ("scale 2^-5").
    """
    location = ir.Location.name(loc) if loc else ir.Location.unknown()
    with ir.InsertionPoint(module.body), location:
        memref.GlobalOp(name, ir.TypeAttr.get(_memref(shape, element)), constant=True)


def weight(module: ir.Module, name: str) -> ir.Value:
    """The array that `declare` declared, for use in the function that is being built."""
    declared = ir.SymbolTable(module.operation)[name]
    type_ = ir.TypeAttr(declared.attributes["type"]).value
    return memref.GetGlobalOp(type_, name, loc=ir.Location.name(name)).result


@contextlib.contextmanager
def function(module: ir.Module, name: str, arguments: Sequence[Argument]) -> Iterator[list[ir.Value]]:
    """Adds a function; inside the with statement operations go into it, and its arguments are the values it yields."""
    with ir.Location.unknown():
        types = [_memref(a.shape, a.element) for a in arguments]
        with ir.InsertionPoint(module.body):
            op = func.FuncOp(name, (types, []))
        op.arg_attrs = [
            ir.DictAttr.get({"snn.name": ir.StringAttr.get(a.name), "snn.role": ir.StringAttr.get(a.role)})
            for a in arguments
        ]
        block = ir.Block.create_at_start(op.body, types, [ir.Location.name(a.name) for a in arguments])
        with ir.InsertionPoint(block):
            yield list(block.arguments)
            func.ReturnOp([])


def buffer(name: str, shape: Sequence[int], element: str) -> ir.Value:
    """A local array of that C name, uninitialised."""
    return memref.AllocaOp(_memref(shape, element), [], [], loc=ir.Location.name(name)).memref


def clear(target: ir.Value, *, loc: str) -> None:
    """Fills an array with 0."""
    element = ir.MemRefType(target.type).element_type
    unsigned = re.fullmatch(r"ui(\d+)", str(element))  # arith knows no such constants
    type_ = ir.IntegerType.get_signless(int(unsigned[1])) if unsigned else element
    zero = ir.FloatAttr.get(type_, 0.0) if str(type_).startswith("f") else ir.IntegerAttr.get(type_, 0)
    value = arith.ConstantOp(type_, zero, loc=ir.Location.unknown()).result
    if unsigned:
        value = ir.Operation.create(
            "builtin.unrealized_conversion_cast", results=[element], operands=[value], loc=ir.Location.unknown()
        ).result
    with ir.Location.name(loc):
        linalg.fill(value, outs=[target])


# Operations


def _build(
    name: str, operands: Sequence[ir.Value | Sequence[ir.Value] | None], attributes: dict[str, Any], loc: str
) -> None:
    """Creates snn.<name>. Python's bool, int, float and tuple of int become i1, i64, f64 and array<i64> attributes; an attribute stays."""
    groups = [[] if o is None else [o] if isinstance(o, ir.Value) else list(o) for o in operands]
    made: dict[str, ir.Attribute] = {}
    for key, value in attributes.items():
        if isinstance(value, ir.Attribute):
            made[key] = value
        elif isinstance(value, bool):
            made[key] = ir.BoolAttr.get(value)
        elif isinstance(value, int):
            made[key] = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), value)
        elif isinstance(value, tuple):
            made[key] = ir.DenseI64ArrayAttr.get(value)
        else:
            made[key] = ir.FloatAttr.get_f64(float(value), ir.Context.current)
    made["operandSegmentSizes"] = ir.DenseI32ArrayAttr.get([len(group) for group in groups])
    values = [value for group in groups for value in group]
    ir.Operation.create(f"snn.{name}", operands=values, attributes=made, loc=ir.Location.name(loc))


def _neuron(
    name: str,
    operands: list[ir.Value],
    parameters: dict[str, Parameter],
    attributes: dict[str, Any],
    loc: str,
) -> None:
    tables: list[ir.Value | None] = []
    for key, parameter in parameters.items():
        uniform = isinstance(parameter, tuple)
        attributes[f"{key}_float"] = float(parameter[0]) if uniform else 0.0
        attributes[f"{key}_int"] = int(parameter[1]) if uniform else 0
        tables.append(None if uniform else parameter)
    _build(name, [*operands, *tables], attributes, loc)


def linear(x: ir.Value, w: ir.Value, b: ir.Value | None, y: ir.Value, *, w_scale: int, loc: str) -> None:
    """y[o] = (sum over i ascending of w[o,i]*x[i]) + b[o]. x of any rank, read in row-major order; w (O, I)."""
    _build("linear", [x, w, b, y], {"w_scale": w_scale}, loc)


def rescale(x: ir.Value, y: ir.Value, *, shift: int, saturate: bool, loc: str) -> None:
    """Y = floor(x * 2^shift), integers; clamped to 32 bits if saturate, else the caller knows that it fits y."""
    _build("rescale", [x, y], {"shift": shift, "saturate": saturate}, loc)


def sum_(xs: Sequence[ir.Value], y: ir.Value, *, saturate: bool, loc: str) -> None:
    """Y = ((xs[0] + xs[1]) + xs[2])...; saturate: exact integer sum clamped to 32 bits.

    Integers may be narrower than y, in at most two widths.
    """
    first = [x for x in xs if x.type == xs[0].type]
    others = [x for x in xs if x.type != xs[0].type]
    _build("sum", [first, others, y], {"saturate": saturate}, loc)


def gain(
    x: ir.Value,
    y: ir.Value,
    *,
    gain: Parameter,
    shift: int | ir.Value = 0,
    saturate: bool,
    loc: str,
) -> None:
    """Y = gain*x, integers (gain*x) >> shift, in 64 bits. Tables: gain f32, or gain i32 with shift i8. y may be x."""
    uniform = isinstance(gain, tuple)
    attributes = {
        "gain_float": float(gain[0]) if uniform else 0.0,
        "gain_int": int(gain[1]) if uniform else 0,
        "gain_shift": shift if isinstance(shift, int) else 0,
        "saturate": saturate,
    }
    tables = [None if uniform else gain, None if isinstance(shift, int) else shift]
    _build("gain", [x, y, *tables], attributes, loc)


def li(
    x: ir.Value,
    v: ir.Value,
    *,
    decay: Parameter,
    leak: Parameter,
    saturate: bool,
    product_bits: int,
    d_scale: int = 12,
    loc: str,
) -> None:
    """v = (decay*v + x) + leak; integers ((decay*v) >> d_scale) + x + leak, computed in product_bits (32 or 64)."""
    attributes = {"d_scale": d_scale, "saturate": saturate, "product_bits": product_bits}
    _neuron("li", [x, v], {"decay": decay, "leak": leak}, attributes, loc)


def lif(
    x: ir.Value,
    v: ir.Value,
    spikes: ir.Value,
    *,
    decay: Parameter,
    leak: Parameter,
    threshold: Parameter,
    reset: Parameter,
    subtract: bool,
    reset_delay: int = 0,
    saturate: bool,
    product_bits: int,
    d_scale: int = 12,
    loc: str,
) -> None:
    """li, then spikes = v > threshold, and where it fired v = reset (v - threshold if subtract); with `reset_delay` 1, in the next step:
    v counts as reset before it decays, or has the threshold subtracted after."""
    attributes = {
        "d_scale": d_scale,
        "subtract": subtract,
        "reset_delay": reset_delay,
        "saturate": saturate,
        "product_bits": product_bits,
    }
    parameters = {"decay": decay, "leak": leak, "threshold": threshold, "reset": reset}
    _neuron("lif", [x, v, spikes], parameters, attributes, loc)


def cubali(
    x: ir.Value,
    i: ir.Value,
    v: ir.Value,
    *,
    cur_decay: Parameter,
    vol_decay: Parameter,
    leak: Parameter,
    saturate: bool,
    product_bits: int,
    d_scale: int = 12,
    loc: str,
) -> None:
    """i = cur_decay*i + x (clamped alike), then li with vol_decay and the new i in place of x."""
    attributes = {"d_scale": d_scale, "saturate": saturate, "product_bits": product_bits}
    parameters = {"cur_decay": cur_decay, "vol_decay": vol_decay, "leak": leak}
    _neuron("cubali", [x, i, v], parameters, attributes, loc)


def cubalif(
    x: ir.Value,
    i: ir.Value,
    v: ir.Value,
    spikes: ir.Value,
    *,
    cur_decay: Parameter,
    vol_decay: Parameter,
    leak: Parameter,
    threshold: Parameter,
    reset: Parameter,
    subtract: bool,
    reset_delay: int = 0,
    saturate: bool,
    product_bits: int,
    d_scale: int = 12,
    loc: str,
) -> None:
    """cubali, then spikes and reset as in lif."""
    attributes = {
        "d_scale": d_scale,
        "subtract": subtract,
        "reset_delay": reset_delay,
        "saturate": saturate,
        "product_bits": product_bits,
    }
    parameters = {
        "cur_decay": cur_decay, "vol_decay": vol_decay, "leak": leak, "threshold": threshold, "reset": reset,
    }  # fmt: skip
    _neuron("cubalif", [x, i, v, spikes], parameters, attributes, loc)


def output(x: ir.Value, out: ir.Value, *, rows: int = 1, loc: str) -> None:
    """out = x (floats: x + 0.0); same number of elements, row-major. With rows: x seen as rows x columns, transposed.

    Integers may be wider in out.
    """
    _build("output", [x, out], {"rows": rows}, loc)


def copy(x: ir.Value, y: ir.Value, *, loc: str) -> None:
    """Y = x; same number of elements, row-major."""
    _build("copy", [x, y], {}, loc)


# Operations on flat arrays; values of shape (C, H, W) lie in them with the channels last


def transpose(x: ir.Value, y: ir.Value, *, rows: int, loc: str) -> None:
    """y[j,i] = x[i,j], x seen as rows x columns; another array, of the same type."""
    _build("transpose", [x, y], {"rows": rows}, loc)


def conv2d(
    x: ir.Value,
    w: ir.Value,
    b: ir.Value | None,
    y: ir.Value,
    *,
    input: tuple[int, int, int],
    output: tuple[int, int, int],
    kernel: tuple[int, int],
    stride: tuple[int, int],
    padding: tuple[int, int],
    dilation: tuple[int, int],
    groups: int,
    w_scale: int,
    loc: str,
) -> None:
    """Convolves; w is (outputs, height, width, inputs / groups) or laid out for events, input and output (H, W, C), kernel (height,
    width), padding (top, left).

    The sum runs over rows, columns and inputs ascending from +0 in the type of y, then + b.
    """
    attributes = {
        "input": input, "output": output, "kernel": kernel, "stride": stride, "padding": padding,
        "dilation": dilation, "groups": groups, "w_scale": w_scale,
    }  # fmt: skip
    _build("conv2d", [x, w, b, y], attributes, loc)


def sumpool2d(
    x: ir.Value,
    y: ir.Value,
    *,
    input: tuple[int, int, int],
    output: tuple[int, int, int],
    kernel: tuple[int, int],
    stride: tuple[int, int],
    padding: tuple[int, int],
    saturate: bool,
    loc: str,
) -> None:
    """Sums over windows, per channel; saturate: the exact integer sum clamped to 32 bits, else known to fit y."""
    attributes = {
        "input": input, "output": output, "kernel": kernel, "stride": stride, "padding": padding,
        "saturate": saturate,
    }  # fmt: skip
    _build("sumpool2d", [x, y], attributes, loc)


def scale(x: ir.Value, w: ir.Value, y: ir.Value, *, w_scale: int, loc: str) -> None:
    """y[i] = w[i]*x[i], in the type of y."""
    _build("scale", [x, w, y], {"w_scale": w_scale}, loc)


def threshold(x: ir.Value, spikes: ir.Value, *, threshold: Parameter, loc: str) -> None:
    """Spikes = x > threshold. Integers: a table is i32, whatever x is."""
    _neuron("threshold", [x, spikes], {"threshold": threshold}, {}, loc)


def delay_read(
    line: ir.Value,
    at: ir.Value | None,
    y: ir.Value,
    x: ir.Value | None = None,
    steps: ir.Value | None = None,
    *,
    depth: int,
    loc: str,
) -> None:
    """y[i] = what delay_write stored steps[i] (i32, 0 to depth) steps ago, x[i] if 0; without steps, depth steps ago.

    line: depth x elements, cleared at the start; at: one i32, None where depth is 1.
    """
    _build("delay_read", [line, at, y, x, steps], {"depth": depth}, loc)


def delay_write(x: ir.Value, line: ir.Value, at: ir.Value | None, *, depth: int, loc: str) -> None:
    """Stores x (integers may be narrower) as this step's values, after delay_read."""
    _build("delay_write", [x, line, at], {"depth": depth}, loc)
