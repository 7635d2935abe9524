# SPDX-License-Identifier: Apache-2.0
"""The snn dialect: stock mlir-opt reads its IRDL file, the builders make what verifies, and what is wrong is refused."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from mlir import ir
from mlir.passmanager import PassManager
from support import CONSTRUCTED, CONSTRUCTED_DT

from snn_builder import dialect
from snn_builder.api import to_mlir
from snn_builder.dialect import Argument, InvalidModule
from snn_builder.dialect.checks import _CHECKS, operands
from snn_builder.lowering import SNNToEvent

IRDL = Path(dialect.__file__).with_name("snn.irdl.mlir")
INTEGERS = {
    "x": (4, "i32"),
    "y": (4, "i32"),
    "v": (4, "i32"),
    "i": (4, "i32"),
    "s": (4, "i8"),
    "t": (4, "i32"),
    "e": (4, "i8"),
    "w": (4, 4, "i8"),
    "kernel": (1, 2, 1, 1, "i8"),
    "line": (8, "i32"),
    "at": (1, "i32"),
    "steps": (4, "i32"),
}
FLOATS = {name: shape if name in ("at", "steps") else (*shape[:-1], "f32") for name, shape in INTEGERS.items()}
WINDOW: dict[str, Any] = {"input": (2, 2, 1), "stride": (1, 1), "padding": (1, 0)}
CONVOLUTION: dict[str, Any] = {
    **WINDOW,
    "output": (2, 2, 1),
    "kernel": (2, 1),
    "dilation": (1, 1),
    "groups": 1,
    "w_scale": 0,
    "loc": "layer (x)",
}
POOL: dict[str, Any] = {**WINDOW, "output": (2, 2, 1), "kernel": (2, 1), "saturate": False, "loc": "layer (x)"}
NEURON: dict[str, Any] = {"leak": (-0.5, -2048), "saturate": False, "product_bits": 64, "loc": "layer (x)"}
SPIKING: dict[str, Any] = {**NEURON, "threshold": (1.0, 4096), "reset": (0.1, 410), "subtract": False}


def module_with(arrays: dict[str, Any], *builders: Any) -> ir.Module:
    """A module whose step has an argument for each array; each builder gets them by name and adds an operation."""
    module = dialect.network("net", mode="int8", kernel="dense", generator="snn-builder test")
    arguments = [Argument(name, tuple(shape), element, "state") for name, (*shape, element) in arrays.items()]
    with dialect.function(module, "step", arguments) as values:
        for builder in builders:
            builder(dict(zip(arrays, values, strict=True)))
    return module


def every_operation(a: dict[str, ir.Value]) -> None:
    """Each operation, with and without its optional operands."""
    spread = {"decay": a["t"], "leak": a["t"]}
    dialect.linear(a["x"], a["w"], None, a["y"], w_scale=3, loc="fc (Linear)")
    dialect.linear(a["x"], a["w"], a["t"], a["y"], w_scale=3, loc="fc (Affine)")
    dialect.sum_([a["x"]], a["y"], saturate=False, loc="a sum")
    dialect.sum_([a["x"], a["y"], a["x"]], a["y"], saturate=False, loc="a sum")
    dialect.gain(a["x"], a["y"], gain=(0.5, 3), shift=2, saturate=False, loc="a gain")
    dialect.li(a["x"], a["v"], decay=(0.9, 3686), **NEURON)
    dialect.li(a["x"], a["v"], **{**NEURON, **spread})
    dialect.lif(a["x"], a["v"], a["s"], decay=(0.9, 3686), **SPIKING)
    dialect.lif(a["x"], a["v"], a["s"], **{**SPIKING, **spread, "threshold": a["t"], "reset": a["t"]})
    dialect.cubali(a["x"], a["i"], a["v"], cur_decay=(0.9, 1), vol_decay=a["t"], **NEURON)
    dialect.cubalif(a["x"], a["i"], a["v"], a["s"], cur_decay=a["t"], vol_decay=(0.5, 1), **SPIKING)
    dialect.transpose(a["x"], a["y"], rows=2, loc="a transpose")
    dialect.conv2d(a["x"], a["kernel"], None, a["y"], **CONVOLUTION)
    dialect.sumpool2d(a["x"], a["y"], **POOL)
    dialect.scale(a["x"], a["t"], a["y"], w_scale=0, loc="a scale")
    dialect.threshold(a["x"], a["s"], threshold=(0.5, 2048), loc="a threshold")
    dialect.threshold(a["x"], a["s"], threshold=a["t"], loc="a threshold by table")
    dialect.delay_read(a["line"], a["at"], a["y"], a["x"], a["steps"], depth=2, loc="a delay (read)")
    dialect.delay_write(a["x"], a["line"], a["at"], depth=2, loc="a delay (written)")
    dialect.output(a["x"], a["y"], rows=2, loc="out (Output)")
    dialect.copy(a["x"], a["y"], loc="a copy")


def only_integers(a: dict[str, ir.Value]) -> None:
    dialect.rescale(a["x"], a["y"], shift=-3, saturate=True, loc="a rescale")
    dialect.sum_([a["x"], a["s"], a["x"]], a["y"], saturate=True, loc="a sum of two widths")
    dialect.gain(a["x"], a["y"], gain=a["t"], shift=a["e"], saturate=True, loc="a gain")


def mlir_opt(text: str, path: Path) -> subprocess.CompletedProcess[str]:
    path.write_text(text)
    tool = Path(ir.__file__).parent / "bin" / "mlir-opt"
    return subprocess.run([tool, f"--irdl-file={IRDL}", path], capture_output=True, text=True)


EVENT_FORM = {
    f"snn.{name}" for name in ("event", "events", "gather", "gather2d", "scatter2d", "places", "emit", "keep", "spread")
}


def test_the_event_form_is_read_by_both(tmp_path: Path) -> None:
    """What stands between the two passes of kernel=event, of a network whose spikes come back a step later."""
    path = CONSTRUCTED / "recurrent_bias" / "recurrent_bias.nir"
    text = to_mlir(path, quantize=True, dt=CONSTRUCTED_DT, kernel="event")
    with dialect.new_context() as context:
        module = dialect.parse(text, context)
        passes = PassManager("builtin.module")
        passes.add(SNNToEvent(), name="snn-to-event")
        passes.run(module.operation)
        dialect.verify(module)
        form = dialect.to_text(module)
    found = set(re.findall(r"snn\.\w+", form))
    assert {"snn.event", "snn.events", "snn.gather", "snn.emit", "snn.keep"} <= found and "snn.linear" not in found
    result = mlir_opt(form, tmp_path / "event.mlir")
    assert result.returncode == 0, result.stderr
    assert result.stdout.count('"snn.') == form.count('"snn.')


@pytest.mark.parametrize("arrays", [INTEGERS, FLOATS], ids=["int", "float"])
def test_every_operation_is_read_by_both(tmp_path: Path, arrays: dict[str, Any]) -> None:
    """By the bindings, and by stock mlir-opt; and printing what was read gives the same text."""
    with dialect.new_context() as context:
        module = module_with(arrays, every_operation, *([only_integers] if arrays is INTEGERS else []))
        dialect.verify(module)
        text = dialect.to_text(module)
        assert dialect.to_text(dialect.parse(text, context)) == text
    if arrays is INTEGERS:
        assert {f'"{name}"' for name in _CHECKS if name not in EVENT_FORM} <= set(re.findall(r'"snn\.\w+"', text))
    result = mlir_opt(text, tmp_path / "net.mlir")
    assert result.returncode == 0, result.stderr
    assert result.stdout.count('"snn.') == text.count('"snn.')


@pytest.mark.parametrize(
    ("before", "after", "problem"),
    [
        ("saturate = false", "saturate = 3 : i64", "snn.sum"),
        ("product_bits = 64 : i64", "product_bits = 16 : i64", "snn.li"),
        ("decay_float = 9.000000e-01 : f64, ", "", '"decay_float" is expected but not provided'),
        ("w_scale = 3 : i64", 'w_scale = "3"', "snn.linear"),
        ('"snn.copy"', '"snn.copied"', "snn.copied"),
    ],
)
def test_irdl_refuses(tmp_path: Path, before: str, after: str, problem: str) -> None:
    with dialect.new_context() as context:
        text = dialect.to_text(module_with(INTEGERS, every_operation))
        assert before in text
        wrong = text.replace(before, after, 1)
        with pytest.raises(InvalidModule, match=re.escape(problem)):
            dialect.parse(wrong, context)
    result = mlir_opt(wrong, tmp_path / "net.mlir")
    assert result.returncode != 0 and problem in result.stderr


def _wrong(changes: dict[str, Any], builder: Any) -> str:
    with dialect.new_context():
        module = module_with({**INTEGERS, **changes}, builder)
        assert module.operation.verify()  # IRDL has nothing to say
        with pytest.raises(InvalidModule) as caught:
            dialect.verify(module)
    return str(caught.value)


@pytest.mark.parametrize(
    ("changes", "builder", "problem"),
    [
        (
            {"w": (4, 5, "i8")},
            lambda a: dialect.linear(a["x"], a["w"], None, a["y"], w_scale=0, loc="l (x)"),
            "w is [4, 5], not [4, 4]",
        ),
        (
            {"w": (4, 4, "f32")},
            lambda a: dialect.linear(a["x"], a["w"], None, a["y"], w_scale=0, loc="l (x)"),
            "w is f32, which does not fit y, i32",
        ),
        (
            {"t": (3, "i32")},
            lambda a: dialect.linear(a["x"], a["w"], a["t"], a["y"], w_scale=0, loc="l (x)"),
            "b and y differ in shape",
        ),
        (
            {"y": (2, 2, "i32")},
            lambda a: dialect.linear(a["x"], a["w"], None, a["y"], w_scale=0, loc="l (x)"),
            "y is not of rank 1",
        ),
        (
            {"y": (4, "i8")},
            lambda a: dialect.linear(a["s"], a["w"], None, a["y"], w_scale=0, loc="l (x)"),
            "y has elements i8",
        ),
        (
            {"x": (5, "i32")},
            lambda a: dialect.rescale(a["x"], a["y"], shift=0, saturate=True, loc="l (x)"),
            "x, y differ in shape",
        ),
        (
            {"x": (4, "f32")},
            lambda a: dialect.rescale(a["x"], a["y"], shift=0, saturate=True, loc="l (x)"),
            "x has elements f32",
        ),
        (
            {"x": (5, "i32")},
            lambda a: dialect.sum_([a["x"]], a["y"], saturate=True, loc="l (x)"),
            "xs, y differ in shape",
        ),
        (
            {"x": (4, "i64")},
            lambda a: dialect.sum_([a["x"]], a["y"], saturate=True, loc="l (x)"),
            "xs is i64, which does not fit y, i32",
        ),
        ({}, lambda a: dialect.gain(a["x"], a["y"], gain=a["t"], saturate=True, loc="l (x)"), "only one of m and e"),
        (
            {},
            lambda a: dialect.gain(a["x"], a["y"], gain=(1.0, 1), shift=32, saturate=True, loc="l (x)"),
            "gain_shift is outside 0 to 31",
        ),
        (
            {"y": (4, "f32")},
            lambda a: dialect.gain(a["x"], a["y"], gain=(1.0, 1), saturate=True, loc="l (x)"),
            "x, y differ in element type",
        ),
        ({"v": (5, "i32")}, lambda a: dialect.li(a["x"], a["v"], decay=(1.0, 1), **NEURON), "x, v differ in shape"),
        (
            {"x": (4, "i8")},
            lambda a: dialect.li(a["x"], a["v"], decay=(1.0, 1), **NEURON),
            "x, v differ in element type",
        ),
        ({"t": (5, "i32")}, lambda a: dialect.li(a["x"], a["v"], decay=a["t"], **NEURON), "decay is [5], not [4]"),
        (
            {"t": (4, "f32")},
            lambda a: dialect.li(a["x"], a["v"], decay=a["t"], **NEURON),
            "decay, v differ in element type",
        ),
        ({}, lambda a: dialect.li(a["x"], a["v"], decay=(1.0, 1), **NEURON, d_scale=32), "d_scale is outside 0 to 31"),
        (
            {"s": (4, "i32")},
            lambda a: dialect.lif(a["x"], a["v"], a["s"], decay=(1.0, 1), **SPIKING),
            "spikes has elements i32",
        ),
        (
            {},
            lambda a: dialect.lif(
                a["x"], a["v"], a["s"], decay=(1.0, 1), **{**SPIKING, "subtract": True, "reset": a["t"]}
            ),
            "subtract with a table of resets",
        ),
        (
            {},
            lambda a: dialect.cubali(a["x"], a["v"], a["v"], cur_decay=(1.0, 1), vol_decay=(1.0, 1), **NEURON),
            "i, v are not all different",
        ),
        (
            {"y": (2, 2, "i32"), "x": (4, 1, "i32")},
            lambda a: dialect.copy(a["x"], a["y"], loc="l (x)"),
            "differ in rank",
        ),
        ({"y": (5, "i32")}, lambda a: dialect.output(a["x"], a["y"], loc="l (x)"), "x and out differ in size"),
        (
            {"y": (4, "i8")},
            lambda a: dialect.output(a["x"], a["y"], loc="l (x)"),
            "x is i32, which does not fit out, i8",
        ),
        ({}, lambda a: dialect.output(a["x"], a["y"], rows=3, loc="l (x)"), "4 elements are not 3 rows"),
        ({}, lambda a: dialect.transpose(a["x"], a["x"], rows=2, loc="l (x)"), "y is x"),
        ({}, lambda a: dialect.transpose(a["x"], a["s"], rows=2, loc="l (x)"), "x, y differ in element type"),
        (
            {"x": (5, "i32")},
            lambda a: dialect.conv2d(a["x"], a["kernel"], None, a["y"], **CONVOLUTION),
            "x has 5 elements, input is [2, 2, 1]",
        ),
        (
            {},
            lambda a: dialect.conv2d(a["x"], a["kernel"], None, a["y"], **{**CONVOLUTION, "stride": (0, 1)}),
            "stride is [0, 1]",
        ),
        ({}, lambda a: dialect.conv2d(a["x"], a["w"], None, a["y"], **CONVOLUTION), "w is [4, 4], not [1, 2, 1, 1]"),
        (
            {"kernel": (1, 2, 1, 2, "i8")},
            lambda a: dialect.conv2d(a["x"], a["kernel"], None, a["y"], **CONVOLUTION),
            "w is [1, 2, 1, 2], not [1, 2, 1, 1]",
        ),
        (
            {"kernel": (2, 2, 1, 1, "i8")},
            lambda a: dialect.conv2d(a["x"], a["kernel"], None, a["y"], **CONVOLUTION),
            "w is [2, 2, 1, 1], not [1, 2, 1, 1]",
        ),
        ({}, lambda a: dialect.conv2d(a["x"], a["kernel"], a["t"], a["y"], **CONVOLUTION), "b is not of size 1"),
        ({}, lambda a: dialect.sumpool2d(a["x"], a["s"], **POOL), "x is i32, which does not fit y, i8"),
        ({}, lambda a: dialect.sumpool2d(a["x"], a["y"], **{**POOL, "kernel": (0, 1)}), "kernel is [0, 1]"),
        (
            {},
            lambda a: dialect.sumpool2d(a["x"], a["y"], **{**POOL, "input": (1, 2, 2)}),
            "input and output differ in channels",
        ),
        (
            {"t": (5, "i32")},
            lambda a: dialect.scale(a["x"], a["t"], a["y"], w_scale=0, loc="l (x)"),
            "x, w, y differ in shape",
        ),
        ({}, lambda a: dialect.threshold(a["x"], a["y"], threshold=(1.0, 1), loc="l (x)"), "spikes has elements i32"),
        ({}, lambda a: dialect.threshold(a["x"], a["s"], threshold=a["e"], loc="l (x)"), "threshold has elements i8"),
        (
            {},
            lambda a: dialect.delay_read(a["line"], a["at"], a["y"], depth=3, loc="l (x)"),
            "line is not 3 slots of y",
        ),
        ({}, lambda a: dialect.delay_read(a["line"], None, a["y"], depth=2, loc="l (x)"), "no place to write at"),
        (
            {},
            lambda a: dialect.delay_read(a["line"], a["at"], a["y"], a["x"], a["e"], depth=2, loc="l (x)"),
            "steps has elements i8",
        ),
        (
            {"line": (8, "i8")},
            lambda a: dialect.delay_write(a["x"], a["line"], a["at"], depth=2, loc="l (x)"),
            "x is i32, which does not fit line, i8",
        ),
        ({}, lambda a: dialect.delay_write(a["x"], a["line"], a["e"], depth=2, loc="l (x)"), "at has elements i8"),
        ({}, lambda a: dialect.output(a["x"], a["y"], loc="out"), "the comment reads like a C name"),
    ],
)
def test_verify_says_what_irdl_cannot(changes: dict[str, Any], builder: Any, problem: str) -> None:
    message = _wrong(changes, builder)
    assert problem in message
    assert re.match(r'loc\("(l \(x\)|layer \(x\)|out)"\): snn\.\w+: ', message)


def test_floats_have_no_second_group() -> None:
    with dialect.new_context():
        module = module_with({"x": (4, "f32"), "y": (4, "f32")}, lambda a: None)
        (step,) = module.body.operations
        x, y = step.regions[0].blocks[0].arguments
        with ir.InsertionPoint.at_block_terminator(step.regions[0].blocks[0]):
            sizes = ir.DenseI32ArrayAttr.get([1, 1, 1])
            attributes = {"saturate": ir.BoolAttr.get(False), "operandSegmentSizes": sizes}
            ir.Operation.create("snn.sum", operands=[x, x, y], attributes=attributes, loc=ir.Location.name("l (x)"))
        with pytest.raises(InvalidModule, match="floats in two groups have no order"):
            dialect.verify(module)


def test_operands_by_name() -> None:
    with dialect.new_context():
        module = module_with(INTEGERS, lambda a: dialect.linear(a["x"], a["w"], None, a["y"], w_scale=0, loc="l (x)"))
        (step,) = module.body.operations
        x, y, w = (step.regions[0].blocks[0].arguments[n] for n in (0, 1, 7))
        linear = step.regions[0].blocks[0].operations[0].operation
        assert operands(linear) == {"x": [x], "w": [w], "b": [], "y": [y]}
        del linear.attributes["operandSegmentSizes"]  # not needed where one operand at most is optional
        assert operands(linear) == {"x": [x], "w": [w], "b": [], "y": [y]}
        with ir.InsertionPoint(linear):
            ir.Operation.create(
                "snn.linear",
                operands=[x, w, y, y],
                attributes={"w_scale": ir.Attribute.parse("0 : i64")},
                loc=linear.location,
            )
        affine = step.regions[0].blocks[0].operations[0].operation
        assert operands(affine) == {"x": [x], "w": [w], "b": [y], "y": [y]}


def test_text_keeps_names_and_nothing_of_the_file() -> None:
    text = """module attributes {snn.name = "net"} {
  func.func @step(%arg0: memref<2xi32> loc("lif1_v")) {
    "snn.copy"(%arg0, %arg0) : (memref<2xi32>, memref<2xi32>) -> () loc("nothing (Copy)")
    return
  }
}
"""
    with dialect.new_context() as context:
        printed = dialect.to_text(dialect.parse(text, context))
    assert printed == text.replace("%arg0", "%lif1_v")


def test_the_example_in_the_documentation() -> None:
    """The builders' half runs, and makes what the text's half shows."""
    shown, code = dialect.__doc__.split("The same through the builders")  # type: ignore[union-attr]
    lines = code[code.index("    with new_context") :].split("\n\n")[0]
    scope: dict[str, Any] = {name: getattr(dialect, name) for name in dialect.__all__}
    exec("\n".join(line[4:] for line in lines.splitlines()), scope)
    for line in scope["text"].splitlines():
        start = re.split(r"[({]", line)[0].strip()
        assert start in shown
