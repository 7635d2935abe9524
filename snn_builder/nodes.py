# SPDX-License-Identifier: Apache-2.0
"""One node of a file -> a typed node: which fields each type has, which repairs it takes, how its shape follows from its neighbours.

`draft` checks the fields; the draft's `build` makes the node once a shape is known.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import h5py
import numpy as np

from .errors import Findings
from .hdf5 import PASSAGE, kind_of, text
from .network import F64, Conv, Delay, Flatten, Linear, Neuron, Node, Pool, Scale, Shape, Terminal, Threshold, size

# Per neuron type: the fields NIR gives it (the membrane's time constant first), with the default where files leave it out.
NEURON_FIELDS: dict[str, dict[str, float | None]] = {
    "LIF": {"tau": None, "r": None, "v_leak": 0.0, "v_threshold": None, "v_reset": 0.0},
    "LI": {"tau": None, "r": None, "v_leak": 0.0},
    "CubaLIF": {
        "tau_mem": None,
        "tau_syn": None,
        "r": None,
        "w_in": 1.0,
        "v_leak": 0.0,
        "v_threshold": None,
        "v_reset": 0.0,
    },
    "CubaLI": {"tau_mem": None, "tau_syn": None, "r": None, "w_in": 1.0, "v_leak": 0.0},
    "IF": {"r": None, "v_threshold": None, "v_reset": 0.0},
    "I": {"r": None},
}
MOST = 1 << 20  # of a stride, padding or kernel: more is damage
ELEMENTWISE_FIELDS = {"Scale": "scale", "Threshold": "threshold", "Delay": "delay"}
SUPPORTED = (
    "Input", "Output", "Linear", "Affine", "Scale", "Conv1d", "Conv2d", "SumPool2d", "AvgPool2d", "Flatten", "Delay", "Threshold",
    *NEURON_FIELDS, "NIRGraph",
)  # fmt: skip

Build = Callable[["Shape | None", Findings], "Node | None"]


@dataclasses.dataclass
class Draft:
    """A node whose fields are checked. `build(shape, findings)`: the node, from the shape of a neighbour's values where it needs one; None
    where it needs one and there is none yet, or, with `failed` set, where it cannot be. `elementwise`: input and output have one shape,
    so a successor may say it too."""

    build: Build
    elementwise: bool = False
    unknown_shape: tuple[str, str] = ("nothing says the shape of its input", "store its input_shape")
    failed: bool = False


def draft(name: str, fields: dict[str, Any], findings: Findings) -> Draft | None:
    """None with an error in `findings` where the fields are no node of ours."""
    return _Reader(name, kind_of(fields), fields, findings).draft()


class _Reader:
    """Reads the fields of one node."""

    def __init__(self, name: str, kind: str, fields: dict[str, Any], findings: Findings) -> None:
        self.name, self.kind, self.fields, self.findings = name, kind, fields, findings
        self.ok = True

    def draft(self) -> Draft | None:
        if self.kind in ("Input", "Output"):
            made = self.terminal()
        elif self.kind == PASSAGE:
            made = self.passage()
        elif self.kind in ("Linear", "Affine"):
            made = self.linear()
        elif self.kind in ("Conv1d", "Conv2d"):
            made = self.conv()
        elif self.kind in ("SumPool2d", "AvgPool2d"):
            made = self.pool()
        elif self.kind == "Flatten":
            made = self.flatten()
        elif self.kind in NEURON_FIELDS or self.kind in ELEMENTWISE_FIELDS:
            made = self.elementwise()
        elif not self.kind:
            made = None
            self.error("no type stored", "export the node with its type")
        else:
            made = None
            self.error(f"node type {self.kind} is not supported", "use " + ", ".join(SUPPORTED))
        return made if self.ok else None

    def error(self, problem: str, remedy: str) -> None:
        self.findings.error(self.name, problem, remedy)
        self.ok = False

    # -- Fields

    def array(self, field: str) -> F64 | None:
        """A finite float64 array, or None with an error."""
        if field not in self.fields:
            self.error(f"no {field} stored", f"export the node with its {field}")
            return None
        array = np.asarray(self.fields[field])
        if array.dtype.kind not in "fiub":
            self.error(f"{field} is not a number", f"store {field} as a numeric array")
            return None
        with np.errstate(over="ignore"):  # of a wider type
            array = array.astype(np.float64)
        if not np.all(np.isfinite(array)):
            index = tuple(int(i) for i in np.argwhere(~np.isfinite(array))[0])
            where = f"[{', '.join(map(str, index))}]" if index else ""
            self.error(
                f"{field}{where} is {array[index]:g}", "every parameter must be a finite number: check the training"
            )
            return None
        return array

    def bias(self, outputs: int) -> F64 | None:
        if _is_absent(self.fields.get("bias")):
            return None
        bias = self.array("bias")
        if bias is not None and not bias.ndim:
            self.findings.repair(self.name, f"scalar bias taken for all {outputs} outputs")
            return np.full(outputs, float(bias))
        if bias is not None and bias.size != outputs:
            self.error(f"bias has {bias.size} values for {outputs} outputs", "give one bias per output")
            return None
        return None if bias is None else bias.reshape(-1)

    def integers(self, field: str, count: int, least: int, default: int | None = None) -> tuple[int, ...]:
        """`count` whole numbers of at least `least`; one number stands for all."""
        if field not in self.fields and default is not None:
            return (default,) * count
        value = np.atleast_1d(np.asarray(self.fields.get(field, "missing")))
        if value.dtype.kind not in "iu" or value.ndim != 1 or value.size not in (1, count) or np.any(value < least):
            wanted = "a whole number" if count == 1 else f"{count} whole numbers"
            self.error(f"{field} is not {wanted} of at least {least}", f"store {field} as integers")
            return (least or 1,) * count
        if np.any(value > MOST):
            self.error(f"{field} holds a number above {MOST}", f"correct {field}")
            return (least or 1,) * count
        listed = tuple(int(extent) for extent in value)
        return listed if len(listed) == count else listed * count

    def shape(self, field: str) -> Shape | None:
        """A stored shape without its batch dimension, or None with an error."""
        stored = np.atleast_1d(np.asarray(self.fields.get(field, "missing")))
        if stored.dtype.kind not in "iu" or stored.ndim != 1 or not stored.size or np.any(stored < 1):
            word = self.fields.get("of", self.kind)
            self.error(f"{word} without a usable {field}", f"write its {field} as positive integers")
            return None
        return self.without_batch(tuple(int(extent) for extent in stored), field)

    def without_batch(self, shape: Shape, field: str) -> Shape:
        """Drops a leading 1 where a batch dimension is the only reading: rank 2 and 4 are no layer's own."""
        if len(shape) in (2, 4) and shape[0] == 1:
            self.findings.repair(self.name, f"leading batch of 1 dropped from {field} {shape}")
            return shape[1:]
        return shape

    # -- Node types

    def terminal(self) -> Draft | None:
        shape = self.shape("shape")
        if shape is None:
            return None
        node = Terminal(self.name, self.kind, shape)
        return Draft(lambda _, __: node)

    def passage(self) -> Draft | None:
        """The Input or Output of a nested graph; its stored shape may be missing."""
        shape = self.shape("shape") if "shape" in self.fields else None
        kind = f"{self.fields['of']} of a nested graph"
        return Draft(
            lambda near, _: None if (own := shape or near) is None else Flatten(self.name, kind, own, own),
            elementwise=True,
            unknown_shape=("nothing says its shape", "store it in the nested graph's Input"),
        )

    def linear(self) -> Draft | None:
        weight = self.array("weight")
        if weight is None:
            return None
        if weight.ndim != 2 or weight.size == 0:
            self.error(f"weight has shape {weight.shape}", "give it (outputs, inputs)")
            return None
        bias = self.bias(weight.shape[0])
        if self.kind == "Linear" and bias is not None:
            self.error(
                "a Linear node holds a bias, which NIR's Linear has not", "make it an Affine node, or remove the bias"
            )
            return None
        if self.kind == "Affine" and bias is None:
            self.findings.repair(self.name, "no bias stored, taken as none")
        node = Linear(self.name, self.kind, weight, bias)
        return Draft(lambda _, __: node)

    def conv(self) -> Draft | None:
        spatial = 1 if self.kind == "Conv1d" else 2
        weight = self.array("weight")
        if weight is None:
            return None
        if weight.ndim != 2 + spatial or weight.size == 0:
            self.error(
                f"weight has shape {weight.shape}",
                f"give it (out, in, {'length' if spatial == 1 else 'height, width'})",
            )
            return None
        stride = self.integers("stride", spatial, 1)
        dilation = self.integers("dilation", spatial, 1, 1)
        (groups,) = self.integers("groups", 1, 1, 1)
        if weight.shape[0] % groups:
            self.error(f"{weight.shape[0]} output channels do not divide into {groups} groups", "correct groups")
            return None
        bias = self.bias(weight.shape[0])
        padding = self.padding(spatial, [d * (k - 1) for d, k in zip(dilation, weight.shape[2:], strict=True)], stride)
        channels = weight.shape[1] * groups
        stored = self.conv_input_shape(spatial, channels)
        if not self.ok:
            return None
        flat = spatial == 1  # a Conv1d is a Conv2d of height 1
        kernel = weight[:, :, None] if flat else weight
        strides, paddings, dilations = _two(stride, 1), _two(padding, (0, 0)), _two(dilation, 1)
        node = Conv(self.name, self.kind, kernel, bias, strides, paddings, dilations, groups, (), ())

        def build(near: Shape | None, findings: Findings) -> Node | None:
            given = stored or near
            if given is None:
                return None
            if len(given) != 1 + spatial or given[0] != channels:
                made.failed = True
                wanted = f"{channels} channels x {'length' if flat else 'height x width'}"
                findings.error(
                    self.name,
                    f"its input has shape {given}, not {wanted}",
                    "store input_shape, or make the shapes agree",
                )
                return None
            outputs = _window_outputs(given[1:], weight.shape[2:], stride, padding, dilation)
            if min(outputs) < 1:
                made.failed = True
                findings.error(
                    self.name, f"the kernel is larger than its input {given}", "correct kernel, padding or input_shape"
                )
                return None
            return dataclasses.replace(node, input_shape=given, output_shape=(weight.shape[0], *outputs))

        made = Draft(build)
        return made

    def conv_input_shape(self, spatial: int, channels: int) -> Shape | None:
        """The stored spatial shape with the channels in front; some exporters store those too, some store nothing."""
        stored = self.fields.get("input_shape")
        if stored is None or _is_absent(stored):
            self.findings.repair(self.name, "no input_shape stored, taken from its input")
            return None
        extents = np.atleast_1d(np.asarray(stored))
        if (
            extents.dtype.kind not in "iu"
            or extents.ndim != 1
            or np.any(extents < 1)
            or extents.size not in (1, spatial, spatial + 1)
        ):
            self.error("input_shape is not a shape", "store height and width (Conv1d: the length) as integers")
            return None
        listed = [int(extent) for extent in extents]
        if len(listed) == spatial + 1:
            if listed[0] != channels:
                self.error(f"input_shape has {listed[0]} channels, the weight {channels}", "make them agree")
                return None
            return tuple(listed)
        return (channels, *(listed if len(listed) == spatial else listed * spatial))

    def padding(self, spatial: int, extents: list[int], stride: tuple[int, ...]) -> tuple[tuple[int, int], ...]:
        """(before, after) per dimension; "same" puts the odd one at the end."""
        stored = self.fields.get("padding")
        if isinstance(stored, (bytes, str)):
            word = text(stored)
            if word == "valid":
                return ((0, 0),) * spatial
            if word == "same" and all(step == 1 for step in stride):
                return tuple((extent // 2, extent - extent // 2) for extent in extents)
            problem = "padding 'same' with a stride" if word == "same" else f"padding '{word}' is unknown"
            self.error(problem, "store the padding as integers")
            return ((0, 0),) * spatial
        return tuple((number, number) for number in self.integers("padding", spatial, 0))

    def pool(self) -> Draft | None:
        kernel, stride = self.integers("kernel_size", 2, 1), self.integers("stride", 2, 1)
        padding = self.padding(2, [k - 1 for k in kernel], stride)

        def build(near: Shape | None, findings: Findings) -> Node | None:
            if near is None:
                return None
            outputs = _window_outputs(near[1:], kernel, stride, padding, (1, 1)) if len(near) == 3 else (0,)
            if min(outputs) < 1:
                made.failed = True
                findings.error(
                    self.name,
                    f"its input has shape {near}, which a {kernel[0]}x{kernel[1]} pool does not fit",
                    "give it channels x height x width",
                )
                return None
            return Pool(
                self.name, self.kind, _two(kernel, 1), _two(stride, 1), _two(padding, (0, 0)), near, (near[0], *outputs)
            )

        made = Draft(
            build, unknown_shape=("nothing says the shape of its input", "store the shape of the layer before it")
        )
        return made

    def flatten(self) -> Draft | None:
        start, end = self.integers("start_dim", 1, -8, 1)[0], self.integers("end_dim", 1, -8, -1)[0]
        counted = np.atleast_1d(np.asarray(self.fields.get("input_type", 0)))

        def build(near: Shape | None, findings: Findings) -> Node | None:
            if near is None:
                return None
            rank = len(near)
            batch = 1 if counted.size == rank + 1 else 0  # the dims count a batch dimension that is not there
            first, last = (dim if dim < 0 else dim - batch for dim in (start, end))
            first, last = (max(dim + rank, 0) if dim < 0 else dim for dim in (first, last))
            first, last = min(first, rank - 1), min(last, rank - 1)
            if first > last:
                return Flatten(self.name, self.kind, near, near)
            return Flatten(self.name, self.kind, near, (*near[:first], size(near[first : last + 1]), *near[last + 1 :]))

        return Draft(
            build, unknown_shape=("nothing says the shape of its input", "store the shape of the layer before it")
        )

    def elementwise(self) -> Draft | None:
        """Neurons, Scale, Threshold and Delay: every parameter has the layer's shape, or is a scalar for all."""
        wanted = NEURON_FIELDS.get(self.kind) or {ELEMENTWISE_FIELDS[self.kind]: None}
        values: dict[str, F64] = {}
        for field, default in wanted.items():
            if field not in self.fields and default is not None:
                values[field] = np.full((), default)
                self.findings.repair(self.name, f"no {field} stored, taken as {default:g}")
            elif (array := self.array(field)) is not None:
                values[field] = array.reshape(self.without_batch(array.shape, field))
        if not self.ok:
            return None
        shapes = {field: array.shape for field, array in values.items() if array.ndim}
        if len({size(shape) for shape in shapes.values()}) > 1:
            listed = ", ".join(f"{field} {shape}" for field, shape in shapes.items())
            self.error(
                f"parameters of different sizes: {listed}", "give every parameter the shape of the layer, or a scalar"
            )
            return None
        for field, array in values.items():
            self.check_time(field, array)
        if not self.ok:
            return None
        own: Shape | None = max(shapes.values(), key=len) if shapes else None
        scalars = [field for field, array in values.items() if not array.ndim and field in self.fields]

        def build(near: Shape | None, findings: Findings) -> Node | None:
            shape = own or near
            if shape is None:
                return None
            if own is None:
                findings.repair(
                    self.name, f"scalar parameters taken for all {size(shape)} values, the size of its neighbour"
                )
            elif scalars:
                findings.repair(self.name, f"scalar {', '.join(scalars)} taken for all {size(shape)} values")
            full = {
                field: np.broadcast_to(array.reshape(shape if array.ndim else ()), shape)
                for field, array in values.items()
            }
            return _elementwise_node(self.name, self.kind, shape, full)

        return Draft(
            build,
            elementwise=True,
            unknown_shape=(
                "all parameters are scalars and no neighbour says the size",
                "store the parameters with the layer's shape",
            ),
        )

    def check_time(self, field: str, array: F64) -> None:
        wrong = (
            array <= 0 if field.startswith("tau") else array < 0 if field == "delay" else np.zeros(array.shape, bool)
        )
        if np.any(wrong):
            index = int(np.flatnonzero(wrong.reshape(-1))[0])
            rule = "a time constant must be positive" if field.startswith("tau") else "a delay cannot be negative"
            self.error(f"{field}[{index}] is {array.reshape(-1)[index]:g}", rule)


def _elementwise_node(name: str, kind: str, shape: Shape, values: dict[str, F64]) -> Node:
    if kind == "Scale":
        return Scale(name, kind, values["scale"])
    if kind == "Threshold":
        return Threshold(name, kind, values["threshold"])
    if kind == "Delay":
        return Delay(name, kind, values["delay"])
    if "tau_mem" in values:
        values = {"tau" if field == "tau_mem" else field: array for field, array in values.items()}
    return Neuron(name, kind, shape, **values)


def _is_absent(value: Any) -> bool:
    """What exporters write for "none": nothing, an empty dataset, None as text, or a scalar False."""
    if value is None or isinstance(value, h5py.Empty):
        return True
    if isinstance(value, (bytes, str)):
        return text(value) in ("None", "False", "")
    return bool(np.asarray(value).dtype.kind == "b" and not np.any(value))


def _two(values: tuple[Any, ...], first: Any) -> Any:
    """Two spatial dimensions: a Conv1d gets a height in front."""
    return values if len(values) == 2 else (first, *values)


def _window_outputs(
    inputs: Shape,
    kernel: tuple[int, ...],
    stride: tuple[int, ...],
    padding: tuple[tuple[int, int], ...],
    dilation: tuple[int, ...],
) -> Shape:
    """How many places a sliding window has, per dimension."""
    return tuple(
        (extent + before + after - d * (k - 1) - 1) // step + 1
        for extent, k, step, (before, after), d in zip(inputs, kernel, stride, padding, dilation, strict=True)
    )
