# SPDX-License-Identifier: Apache-2.0
"""Windows, transposed copies, delay lines, Scale and Threshold of the snn dialect against loops written out here."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from compiled import DTYPES, Kernel, Oracle, build

from snn_builder import dialect
from snn_builder.dialect import Argument

LOW, HIGH = -(2**31), 2**31 - 1


@pytest.fixture(autouse=True)
def _defined(capfd: pytest.CaptureFixture[str]) -> Any:
    """No test may make the undefined-behaviour sanitizer speak."""
    yield
    assert "runtime error" not in capfd.readouterr().err


def kernel(
    directory: Path, x: tuple[int, str], y: tuple[int, str], weights: dict[str, np.ndarray], body: Callable[..., None]
) -> Kernel:
    """A kernel of one operation: body(module, x, y)."""
    arguments = [Argument("x", (x[0],), x[1], "input"), Argument("y", (y[0],), y[1], "output")]
    mode = "f32" if y[1] == "f32" else "int8"
    text = build(mode, arguments, weights, lambda module, x, y: body(module, x, y))
    return Kernel(directory, text, arguments, weights)


def values(rng: np.random.Generator, element: str, count: int) -> np.ndarray:
    if element == "f32":
        return (rng.standard_normal(count) * 10.0 ** rng.integers(-3, 4, count)).astype(np.float32)
    return rng.integers(-128, 128, count).astype(DTYPES[element])


# Windows: (H, W, C), (OH, OW), kernel, stride, (top, left), dilation. Padding behind the input follows from the output.
WINDOWS = {
    "no padding": ((5, 6, 2), (4, 4), (2, 3), (1, 1), (0, 0), (1, 1)),
    "padding all round": ((4, 4, 2), (4, 4), (3, 3), (1, 1), (1, 1), (1, 1)),
    "padding behind only": ((4, 4, 1), (4, 4), (2, 2), (1, 1), (0, 0), (1, 1)),
    "stride": ((7, 8, 2), (4, 3), (3, 3), (2, 3), (1, 1), (1, 1)),
    "dilation": ((6, 7, 2), (6, 7), (3, 3), (1, 1), (2, 3), (2, 3)),
    "dilation and stride": ((9, 9, 2), (6, 4), (3, 3), (2, 3), (4, 4), (3, 2)),
    "windows that see nothing": ((2, 1, 2), (8, 9), (2, 3), (1, 1), (3, 4), (1, 1)),
    "height 1": ((1, 9, 3), (1, 5), (1, 3), (1, 2), (0, 1), (1, 1)),
    "one place": ((3, 3, 2), (1, 1), (3, 3), (1, 1), (0, 0), (1, 1)),
}  # fmt: skip


def seen(case: Any, x: np.ndarray, row: int, column: int, i: int, j: int, channel: int) -> Any:
    """What tap (i, j) of the window of an output sees; None in the padding."""
    (height, width, _), _, _, stride, padding, dilation = case
    h, w = row * stride[0] + i * dilation[0] - padding[0], column * stride[1] + j * dilation[1] - padding[1]
    return x.reshape(case[0])[h, w, channel] if 0 <= h < height and 0 <= w < width else None


@pytest.mark.parametrize(("element", "target"), [("f32", "f32"), ("i8", "i32"), ("i32", "i64")])
@pytest.mark.parametrize(
    ("name", "groups"),
    [(name, groups) for name, case in WINDOWS.items() for groups in (1, 2) if case[0][2] % groups == 0],
)
def test_conv2d(tmp_path: Path, name: str, element: str, target: str, groups: int) -> None:
    case = WINDOWS[name]
    (height, width, inputs), places, shape, stride, padding, dilation = case
    outputs, rng = 4, np.random.default_rng(len(name))
    w = values(rng, "f32" if element == "f32" else "i8", outputs * shape[0] * shape[1] * inputs // groups)
    w = w.reshape(outputs, *shape, -1)
    b = values(rng, "f32" if element == "f32" else "i32", outputs)

    def body(module: Any, x: Any, y: Any) -> None:
        dialect.conv2d(
            x, dialect.weight(module, "w"), dialect.weight(module, "b"), y, input=case[0], output=(*places, outputs),
            kernel=shape, stride=stride, padding=padding, dilation=dilation, groups=groups, w_scale=0, loc="conv (Conv2d)",
        )  # fmt: skip

    library = kernel(
        tmp_path, (height * width * inputs, element), (places[0] * places[1] * outputs, target), {"w": w, "b": b}, body
    )
    x = values(rng, element, height * width * inputs)
    dtype = DTYPES[target]
    expected = []
    for row, column, o in itertools.product(range(places[0]), range(places[1]), range(outputs)):
        total = dtype(0)
        for i, j, c in itertools.product(range(shape[0]), range(shape[1]), range(inputs // groups)):
            value = seen(case, x, row, column, i, j, o // (outputs // groups) * (inputs // groups) + c)
            if value is not None:
                total = total + dtype(w[o, i, j, c]) * dtype(value)
        expected.append(total + dtype(b[o]))
    assert np.array_equal(library.step(x=x)["y"], np.array(expected, dtype))


@pytest.mark.parametrize(
    ("element", "target", "saturate"), [("f32", "f32", False), ("i8", "i32", False), ("i32", "i32", True)]
)
@pytest.mark.parametrize("name", [name for name in WINDOWS if "dilation" not in name])
def test_sumpool2d(tmp_path: Path, name: str, element: str, target: str, saturate: bool) -> None:
    case = WINDOWS[name]
    (height, width, channels), places, shape, stride, padding, _ = case

    def body(module: Any, x: Any, y: Any) -> None:
        dialect.sumpool2d(
            x, y, input=case[0], output=(*places, channels), kernel=shape, stride=stride, padding=padding,
            saturate=saturate, loc="pool (SumPool2d)",
        )  # fmt: skip

    library = kernel(
        tmp_path, (height * width * channels, element), (places[0] * places[1] * channels, target), {}, body
    )
    rng = np.random.default_rng(len(name))
    x = values(rng, element, height * width * channels)
    if saturate:
        x = rng.integers(LOW, HIGH, len(x), np.int32, endpoint=True)
    expected = []
    for row, column, c in itertools.product(range(places[0]), range(places[1]), range(channels)):
        total: Any = np.float32(0) if element == "f32" else 0
        for i, j in itertools.product(range(shape[0]), range(shape[1])):
            value = seen(case, x, row, column, i, j, c)
            if value is not None:
                total = total + (value if element == "f32" else int(value))
        expected.append(total if element == "f32" else max(LOW, min(HIGH, total)))
    assert np.array_equal(library.step(x=x)["y"], np.array(expected, DTYPES[target]))


@pytest.mark.parametrize("element", ["f32", "i8", "i32"])
def test_transpose(tmp_path: Path, element: str) -> None:
    def body(module: Any, x: Any, y: Any) -> None:
        dialect.transpose(x, y, rows=3, loc="x -> y (from NIR's order)")

    library = kernel(tmp_path, (12, element), (12, element), {}, body)
    x = values(np.random.default_rng(1), element, 12)
    assert np.array_equal(library.step(x=x)["y"], x.reshape(3, 4).T.ravel())


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize(("element", "target"), [("f32", "f32"), ("i8", "i8"), ("i8", "i32"), ("i32", "i32")])
def test_output(tmp_path: Path, element: str, target: str, rows: int) -> None:
    def body(module: Any, x: Any, y: Any) -> None:
        dialect.output(x, y, rows=rows, loc="out (Output)")

    library = kernel(tmp_path, (12, element), (12, target), {}, body)
    x = values(np.random.default_rng(1), element, 12)
    if element == "f32":
        x[5] = -0.0
    found = library.step(x=x)["y"]
    assert np.array_equal(found, x.reshape(rows, -1).T.ravel() if rows > 1 else x)
    assert element != "f32" or not np.any(np.signbit(found) & (found == 0))


@pytest.mark.parametrize(("element", "target"), [("f32", "f32"), ("i8", "i32"), ("i32", "i64")])
def test_scale(tmp_path: Path, element: str, target: str) -> None:
    rng = np.random.default_rng(1)
    w = values(rng, "f32" if element == "f32" else "i8", 9)
    x = values(rng, element, 9) if element != "i32" else rng.integers(LOW, HIGH, 9, np.int32)

    def body(module: Any, x: Any, y: Any) -> None:
        dialect.scale(x, dialect.weight(module, "w"), y, w_scale=3, loc="s (Scale 9)")

    library = kernel(tmp_path, (9, element), (9, target), {"w": w}, body)
    assert np.array_equal(library.step(x=x)["y"], w.astype(DTYPES[target]) * x.astype(DTYPES[target]))


@pytest.mark.parametrize(
    ("element", "limit"), [("f32", 0.3), ("i8", 5), ("i8", 1000), ("i8", -1000), ("i32", HIGH), ("i32", LOW), ("i32", -7)]
)  # fmt: skip
@pytest.mark.parametrize("table", [False, True])
def test_threshold(tmp_path: Path, element: str, limit: float, table: bool) -> None:
    x = np.array([LOW, -7, -6, 5, 6, 127, HIGH] if element == "i32" else [-128, -7, 0, 5, 6, 100, 127], DTYPES[element])
    if element == "f32":
        x[3:5] = np.float32(0.3), np.nextafter(np.float32(0.3), np.float32(1))
    spikes, wide = ("f32", np.float32) if element == "f32" else ("i8", np.int32)
    limits = np.full(7, limit, wide)
    if table:
        limits[0] = x[0]

    def body(module: Any, x: Any, y: Any) -> None:
        threshold = dialect.weight(module, "t") if table else (float(limit), int(limit))
        dialect.threshold(x, y, threshold=threshold, loc="t (Threshold 7)")

    library = kernel(tmp_path, (7, element), (7, spikes), {"t": limits} if table else {}, body)
    expected = [float(a) > float(b) for a, b in zip(x, limits, strict=True)]
    assert library.step(x=x)["y"].tolist() == expected


@pytest.mark.parametrize(
    ("depth", "steps"),
    [(depth, None) for depth in (1, 2, 3)]
    + [(depth, steps) for steps in ([1, 1, 1, 1], [0, 1, 1, 0]) for depth in (1, 2, 3)]
    + [(3, [0, 3, 2, 1]), (3, [3, 1, 2, 1])],
)
@pytest.mark.parametrize(("element", "kept"), [("f32", "f32"), ("i8", "i8"), ("i8", "i32")])
def test_delay(tmp_path: Path, depth: int, steps: list[int] | None, element: str, kept: str) -> None:
    tables = {} if steps is None else {"steps": np.array(steps, np.int32)}
    arguments = [Argument("at", (1,), "i32", "state")] if depth > 1 else []
    arguments += [Argument("line", (4 * depth,), kept, "state")]
    arguments += [Argument("x", (4,), element, "input"), Argument("y", (4,), kept, "output")]

    def body(module: Any, line: Any, x: Any, y: Any, at: Any = None) -> None:
        table = None if steps is None else dialect.weight(module, "steps")
        dialect.delay_read(line, at, y, x if steps and 0 in steps else None, table, depth=depth, loc="d (Delay 4)")
        dialect.delay_write(x, line, at, depth=depth, loc="d (stored for later steps)")

    text = build("f32" if kept == "f32" else "int8", arguments, tables, body)
    library = Kernel(tmp_path, text, arguments, tables)
    given = [values(np.random.default_rng(step), element, 4) for step in range(9)]
    for step, x in enumerate(given):
        back = [step - steps[i] if steps else step - depth for i in range(4)]
        expected = [given[place][i] if place >= 0 else 0 for i, place in enumerate(back)]
        assert library.step(x=x)["y"].tolist() == expected, step


def test_both_printers_agree(tmp_path: Path) -> None:
    """The windows through mlir-translate's C too."""
    case = WINDOWS["dilation and stride"]
    (height, width, inputs), places, shape, stride, padding, dilation = case
    rng = np.random.default_rng(1)
    weights = {"w": values(rng, "i8", 4 * 9).reshape(4, *shape, 1), "b": values(rng, "i32", 4)}
    arguments = [Argument("x", (height * width * inputs,), "i8", "input")]
    arguments += [Argument("y", (places[0] * places[1] * 4,), "i32", "output")]

    def body(module: Any, x: Any, y: Any) -> None:
        dialect.conv2d(
            x, dialect.weight(module, "w"), dialect.weight(module, "b"), y, input=case[0], output=(*places, 4),
            kernel=shape, stride=stride, padding=padding, dilation=dilation, groups=2, w_scale=0, loc="conv (Conv2d)",
        )  # fmt: skip

    text = build("int8", arguments, weights, body)
    x = values(rng, "i8", height * width * inputs)
    for part in ("ours", "theirs"):
        tmp_path.joinpath(part).mkdir()
    ours, theirs = (
        Kernel(tmp_path / "ours", text, arguments, weights),
        Oracle(tmp_path / "theirs", text, arguments, weights),
    )
    assert np.array_equal(ours.step(x=x)["y"], theirs.step(x=x)["y"])


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"output": (3, 3, 2)}, "y has 8 elements, output is [3, 3, 2]"),
        ({"input": (4, 4, 1)}, "w is [2, 1, 1, 2], not [2, 1, 1, 1]"),
        ({"stride": (0, 1)}, "stride is [0, 1]"),
        ({"groups": 2}, "w is [2, 1, 1, 2], not [2, 1, 1, 1]"),
        ({"padding": (1,)}, "padding is [1]"),
    ],
)
def test_a_wrong_conv2d_is_found(changed: dict[str, Any], problem: str) -> None:
    good = {
        "input": (2, 4, 2), "output": (2, 2, 2), "kernel": (1, 1), "stride": (1, 2), "padding": (0, 0), "dilation": (1, 1), "groups": 1,
        "w_scale": 0,
    }  # fmt: skip
    arguments = [Argument("x", (16,), "i8", "input"), Argument("y", (8,), "i32", "output")]
    weights = {"w": np.zeros((2, 1, 1, 2), np.int8)}

    def body(attributes: dict[str, Any]) -> Callable[..., None]:
        return lambda module, x, y: dialect.conv2d(
            x, dialect.weight(module, "w"), None, y, loc="conv (Conv2d)", **attributes
        )

    build("int8", arguments, weights, body(good))
    with pytest.raises(dialect.InvalidModule) as error:
        build("int8", arguments, weights, body(good | changed))
    assert str(error.value).endswith(problem)
