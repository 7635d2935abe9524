# SPDX-License-Identifier: Apache-2.0
"""Every operation of the snn dialect computes what DESIGN 4.4 and 4.5 say, down to the C that is compiled from it.

The expected values are worked out here, neuron by neuron, in Python's unbounded integers or in NumPy's float32.
"""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from compiled import DTYPES, Kernel, Oracle, build
from support import CONSTRUCTED, CONSTRUCTED_DT

from snn_builder import dialect, to_mlir
from snn_builder.c import emit_c
from snn_builder.dialect import Argument
from snn_builder.errors import Unreadable
from snn_builder.lowering import lower

LOW, HIGH = -(2**31), 2**31 - 1
EXTREMES = {
    "i8": [-128, -127, -65, -2, -1, 0, 1, 2, 63, 127],
    "i32": [LOW, LOW + 1, -(2**24), -4097, -4096, -2, -1, 0, 1, 2, 4095, 4096, 2**19, 2**24 + 1, HIGH - 1, HIGH],
    "i64": [-(2**63), -(2**40) - 1, LOW - 1, LOW, -4097, -1, 0, 1, 4096, HIGH, HIGH + 1, 2**40 + 1, 2**63 - 1],
}


@pytest.fixture(autouse=True)
def _defined(capfd: pytest.CaptureFixture[str]) -> Any:
    """No test may make the undefined-behaviour sanitizer speak."""
    yield
    assert "runtime error" not in capfd.readouterr().err


def sat(value: int) -> int:
    return max(LOW, min(HIGH, value))


def states(kernel: Kernel | Oracle) -> dict[str, Any]:
    return {name: array.copy() for name, array in kernel.state.items()}


# linear


def test_linear_adds_in_order_and_the_bias_last(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    w = (rng.standard_normal((5, 40)) * 10.0 ** rng.integers(-4, 5, (5, 40))).astype(np.float32)
    b = rng.standard_normal(5).astype(np.float32)
    x = rng.standard_normal(40).astype(np.float32)
    arguments = [Argument("in", (40,), "f32", "input"), Argument("out", (5,), "f32", "output")]

    def body(module: Any, **a: Any) -> None:
        args = [dialect.weight(module, "w"), dialect.weight(module, "b")]
        dialect.linear(a["in"], *args, a["out"], w_scale=0, loc="fc (Affine)")

    kernel = Kernel(tmp_path, build("f32", arguments, {"w": w, "b": b}, body), arguments, {"w": w, "b": b})
    expected = []
    for row, bias in zip(w, b, strict=True):
        total = np.float32(0)
        for weight, value in zip(row, x, strict=True):
            total = total + weight * value
        expected.append(total + bias)
    assert np.array_equal(kernel.step(**{"in": x})["out"], np.array(expected, np.float32))


def test_linear_of_integers_flattens(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    w = rng.integers(-128, 128, (3, 24), np.int8)
    b = np.array([HIGH - 24 * 2**14, LOW + 24 * 2**14, 5], np.int32)
    arguments = [Argument("x", (2, 3, 4), "i8", "state"), Argument("out", (3,), "i32", "output")]

    def body(module: Any, **a: Any) -> None:
        args = [dialect.weight(module, "w"), dialect.weight(module, "b")]
        dialect.linear(a["x"], *args, a["out"], w_scale=0, loc="fc (Affine)")

    kernel = Kernel(tmp_path, build("int8", arguments, {"w": w, "b": b}, body), arguments, {"w": w, "b": b})
    kernel.state["x"][:] = rng.integers(-128, 128, (2, 3, 4))
    expected = w.astype(np.int64) @ kernel.state["x"].ravel().astype(np.int64) + b
    assert np.array_equal(kernel.step()["out"], expected)


# rescale, sum, gain


SHIFTS = [-100, -64, -63, -33, -32, -31, -13, -1, 0, 1, 7, 23, 24, 30, 31, 32, 33, 54, 55, 56, 63, 64, 100]


@pytest.mark.parametrize("element", ["i8", "i32", "i64"])
def test_rescale_saturates_the_exact_result(tmp_path: Path, element: str) -> None:
    x = EXTREMES[element]
    outputs = [Argument(f"y{n}", (len(x),), "i32", "output") for n in range(len(SHIFTS))]
    arguments = [Argument("in", (len(x),), element, "input"), *outputs]

    def body(module: Any, **a: Any) -> None:
        for n, shift in enumerate(SHIFTS):
            dialect.rescale(a["in"], a[f"y{n}"], shift=shift, saturate=True, loc=f"by {shift}")

    kernel = Kernel(tmp_path, build("int8", arguments, {}, body), arguments)
    result = kernel.step(**{"in": np.array(x, DTYPES[element])})
    for n, shift in enumerate(SHIFTS):
        assert result[f"y{n}"].tolist() == [sat(v << shift if shift >= 0 else v >> -shift) for v in x], shift


@pytest.mark.parametrize(("element", "target"), [("i8", "i32"), ("i32", "i32"), ("i64", "i32"), ("i32", "i64")])
def test_rescale_that_fits(tmp_path: Path, element: str, target: str) -> None:
    bits = int(target[1:])
    cases = [(shift, [v for v in EXTREMES[element] if -(1 << bits - 1) <= (v << shift if shift >= 0 else v >> -shift) < 1 << bits - 1])
             for shift in SHIFTS]  # fmt: skip
    arguments = [Argument(f"x{n}", (len(x),), element, "input") for n, (_, x) in enumerate(cases)]
    arguments += [Argument(f"y{n}", (len(x),), target, "output") for n, (_, x) in enumerate(cases)]

    def body(module: Any, **a: Any) -> None:
        for n, (shift, _) in enumerate(cases):
            dialect.rescale(a[f"x{n}"], a[f"y{n}"], shift=shift, saturate=False, loc=f"by {shift}")

    kernel = Kernel(tmp_path, build("int8", arguments, {}, body), arguments)
    result = kernel.step(**{f"x{n}": np.array(x, DTYPES[element]) for n, (_, x) in enumerate(cases)})
    for n, (shift, x) in enumerate(cases):
        assert result[f"y{n}"].tolist() == [v << shift if shift >= 0 else v >> -shift for v in x], shift


def test_sum_of_integers_is_exact_then_clamped(tmp_path: Path) -> None:
    triples = list(itertools.product([LOW, -1, 0, 7, HIGH], repeat=3))
    a, b, c = (np.array(column, np.int32) for column in zip(*triples, strict=True))
    small = np.resize(np.array(EXTREMES["i8"], np.int8), len(triples))
    size = (len(triples),)
    arguments = [
        Argument(name, size, element, "input")
        for name, element in (("a", "i32"), ("b", "i32"), ("c", "i32"), ("s", "i8"))
    ]
    arguments += [Argument(name, size, "i32", "output") for name in ("abc", "as_", "s2", "one")]

    def body(module: Any, **v: Any) -> None:
        dialect.sum_([v["a"], v["b"], v["c"]], v["abc"], saturate=True, loc="a + b + c")
        dialect.sum_([v["a"], v["s"]], v["as_"], saturate=True, loc="a + s")
        dialect.sum_([v["s"], v["s"]], v["s2"], saturate=False, loc="s + s")
        dialect.sum_([v["s"]], v["one"], saturate=True, loc="s alone")

    result = Kernel(tmp_path, build("int8", arguments, {}, body), arguments).step(a=a, b=b, c=c, s=small)
    assert result["abc"].tolist() == [sat(sum(triple)) for triple in triples]
    assert result["as_"].tolist() == [sat(int(x) + int(y)) for x, y in zip(a, small, strict=True)]
    assert result["s2"].tolist() == (2 * small.astype(int)).tolist()
    assert result["one"].tolist() == small.tolist()


def test_sum_of_floats_keeps_the_order(tmp_path: Path) -> None:
    values = [np.array(v, np.float32) for v in ([1e8, 0.1], [-1e8, 0.2], [0.3, 0.7], [1.0, 1e-8])]
    arguments = [Argument(f"x{n}", (2,), "f32", "input") for n in range(4)] + [Argument("out", (2,), "f32", "output")]

    def body(module: Any, out: Any, **xs: Any) -> None:
        dialect.sum_(list(xs.values()), out, saturate=False, loc="all of them")

    kernel = Kernel(tmp_path, build("f32", arguments, {}, body), arguments)
    result = kernel.step(**{f"x{n}": v for n, v in enumerate(values)})["out"]
    assert np.array_equal(result, ((values[0] + values[1]) + values[2]) + values[3])


def test_gain_of_integers(tmp_path: Path) -> None:
    x = EXTREMES["i32"]
    uniform = [(0, 0), (1, 0), (HIGH, 0), (LOW, 31), (-4096, 12), (16383, 14), (3, 1)]
    m = np.resize(np.array([m for m, _ in uniform], np.int32), len(x))
    e = np.resize(np.array([e for _, e in uniform], np.int8), len(x))
    tables = {"m": m, "e": e}
    outputs = [Argument(f"y{n}", (len(x),), "i32", "output") for n in range(len(uniform))]
    arguments = [Argument("in", (len(x),), "i32", "input"), *outputs, Argument("yt", (len(x),), "i32", "output")]

    def body(module: Any, **a: Any) -> None:
        for n, (factor, shift) in enumerate(uniform):
            dialect.gain(a["in"], a[f"y{n}"], gain=(0.0, factor), shift=shift, saturate=True, loc=f"gain {n}!")
        args = {"gain": dialect.weight(module, "m"), "shift": dialect.weight(module, "e")}
        dialect.copy(a["in"], a["yt"], loc="a copy")
        dialect.gain(a["yt"], a["yt"], **args, saturate=True, loc="gain in place")

    kernel = Kernel(tmp_path, build("int8", arguments, tables, body), arguments, tables)
    result = kernel.step(**{"in": np.array(x, np.int32)})
    for n, (factor, shift) in enumerate(uniform):
        assert result[f"y{n}"].tolist() == [sat(factor * v >> shift) for v in x], (factor, shift)
    assert result["yt"].tolist() == [sat(int(f) * v >> int(s)) for f, v, s in zip(m, x, e, strict=True)]


def test_gain_of_floats(tmp_path: Path) -> None:
    x = np.array([0.1, -3.7, 1e-40, 1e30], np.float32)
    table = np.array([0.3, 1.0, 2.0, 1e10], np.float32)
    arguments = [Argument("in", (4,), "f32", "input"), *(Argument(n, (4,), "f32", "output") for n in ("a", "b", "c"))]

    def body(module: Any, **v: Any) -> None:
        dialect.gain(v["in"], v["a"], gain=(0.1, 0), saturate=False, loc="gain 0.1")
        dialect.gain(v["in"], v["b"], gain=(1.0, 0), saturate=False, loc="gain 1.0")
        dialect.gain(v["in"], v["c"], gain=dialect.weight(module, "m"), saturate=False, loc="gain by table")

    result = Kernel(tmp_path, build("f32", arguments, {"m": table}, body), arguments, {"m": table}).step(**{"in": x})
    with np.errstate(over="ignore"):
        expected = {"a": x * np.float32(0.1), "b": x, "c": x * table}
    for name, values in expected.items():
        assert np.array_equal(result[name], values), name


# Neurons

SIZE = 8
INT_TABLES = {
    "decay": np.array([0, 1, 2048, 3686, 4095, 4096, 4096, 3000], np.int32),
    "leak": np.array([0, 5, -5, 100, HIGH, LOW, 0, -1], np.int32),
    "threshold": np.array([4096, 0, -3, HIGH, LOW, 1, 2000, 4096], np.int32),
    "reset": np.array([0, -100, 50, 0, HIGH, LOW, 3, 1], np.int32),
}
FLOAT_TABLES = {
    "decay": np.array([0, 0.9, 1, 0.5, 0.99, 1e-6, 0.7, 1], np.float32),
    "leak": np.array([0, 0.1, -0.1, 0.3, 0, 1e-9, 0, 0], np.float32),
    "threshold": np.array([1, 0.5, 0, -1, 2, 0.1, 1, 1e30], np.float32),
    "reset": np.array([0, -0.5, 0.25, 0, 0, 3, 0, 1], np.float32),
}
UNIFORM = {  # (float, int)
    "decay": [(0.9, 3686), (1.0, 4096), (0.0, 0)],
    "leak": [(0.0, 0), (-0.05, -205)],
    "threshold": [(1.0, 4096), (0.0, 0), (-0.5, -2048)],
    "reset": [(0.0, 0), (-0.3, -1229)],
}
TABLE = "table"


def neuron_cases(kinds: list[str], saturate: bool) -> list[dict[str, Any]]:
    """Variants of the four operations: each parameter each way, and every combination that has a branch of its own."""
    cases = []
    for kind in kinds:
        for decay, leak, current in itertools.product(
            [*UNIFORM["decay"], TABLE], [*UNIFORM["leak"], TABLE], UNIFORM["decay"]
        ):
            if not kind.startswith("cuba") and current != UNIFORM["decay"][0]:
                continue
            cases.append({"kind": kind, "decay": decay, "leak": leak, "current": current})
        if kind.endswith("f"):
            for threshold, reset in itertools.product(
                [*UNIFORM["threshold"], TABLE], [*UNIFORM["reset"], TABLE, "subtract"]
            ):
                parameters = {"threshold": threshold, "reset": reset}
                cases.append({"kind": kind, "decay": (0.9, 3686), "leak": (0.0, 0), "current": TABLE, **parameters})
    for case in cases:
        case.setdefault("threshold", (1.0, 4096))
        case.setdefault("reset", (0.0, 0))
        case["saturate"] = saturate
    return cases


class NeuronTest:
    """A module with one layer per case on the same input, and what each should do."""

    def __init__(self, cases: list[dict[str, Any]], element: str, product_bits: int = 64) -> None:
        self.cases, self.element, self.product_bits = cases, element, product_bits
        self.tables = INT_TABLES if element == "i32" else FLOAT_TABLES
        spike = "i8" if element == "i32" else element
        self.arguments = []
        for n, case in enumerate(cases):
            if case["kind"].startswith("cuba"):
                self.arguments.append(Argument(f"i{n}", (SIZE,), element, "state"))
            self.arguments.append(Argument(f"u{n}", (SIZE,), element, "state"))
        self.arguments.append(Argument("in", (SIZE,), element, "input"))
        for n, case in enumerate(cases):
            if case["kind"].endswith("f"):
                self.arguments.append(Argument(f"s{n}", (SIZE,), spike, "output"))
        self.text = build("int8" if element == "i32" else "f32", self.arguments, self.tables, self._body)
        self.expected = {a.name: np.zeros(a.shape, DTYPES[a.element]) for a in self.arguments}

    def _body(self, module: Any, **a: Any) -> None:
        for n, case in enumerate(self.cases):
            kind = case["kind"]
            names = {"decay": "decay" if not kind.startswith("cuba") else "vol_decay", "leak": "leak"}
            if kind.startswith("cuba"):
                names["current"] = "cur_decay"
            if kind.endswith("f"):
                names |= {"threshold": "threshold", "reset": "reset"}
            parameters = {}
            for key, name in names.items():
                value = case[key]
                table = "decay" if key == "current" else key
                parameters[name] = dialect.weight(module, table) if value == TABLE else value
            flags: dict[str, Any] = {"saturate": case["saturate"], "product_bits": self.product_bits}
            if kind.endswith("f"):
                flags["subtract"] = case["reset"] == "subtract"
                if flags["subtract"]:
                    parameters["reset"] = (0.0, 0)
            operands = [a[name] for name in (f"i{n}", f"u{n}", f"s{n}") if name in a]
            getattr(dialect, kind)(a["in"], *operands, **parameters, **flags, loc=f"layer {n}")

    def _parameter(self, case: dict[str, Any], key: str, neuron: int) -> Any:
        value = case[key]
        if value == TABLE:
            value = self.tables["decay" if key == "current" else key][neuron]
            return int(value) if self.element == "i32" else value
        return value[1] if self.element == "i32" else np.float32(value[0])

    def advance(self, x: np.ndarray) -> None:
        """One step of every layer, into self.expected."""
        integer = self.element == "i32"
        for (n, case), neuron in itertools.product(enumerate(self.cases), range(SIZE)):
            decay, leak, threshold = (self._parameter(case, key, neuron) for key in ("decay", "leak", "threshold"))
            v, drive = self.expected[f"u{n}"][neuron], x[neuron]
            if integer:
                v, drive = int(v), int(drive)
            clamp = sat if case["saturate"] else (lambda value: value)
            if f"i{n}" in self.expected:
                current, old = self._parameter(case, "current", neuron), self.expected[f"i{n}"][neuron]
                drive = clamp((current * int(old) >> 12) + drive) if integer else current * old + drive
                self.expected[f"i{n}"][neuron] = drive
            v = clamp((decay * v >> 12) + drive + leak) if integer else (decay * v + drive) + leak
            if f"s{n}" in self.expected:
                fired = v > threshold
                self.expected[f"s{n}"][neuron] = fired
                if fired and case["reset"] == "subtract":
                    v = clamp(v - threshold) if integer else v - threshold
                elif fired:
                    v = self._parameter(case, "reset", neuron)
            self.expected[f"u{n}"][neuron] = v

    def check(self, runner: Kernel | Oracle, inputs: list[np.ndarray]) -> None:
        for step, x in enumerate(inputs):
            with np.errstate(over="ignore", under="ignore", invalid="ignore"):
                self.advance(x)
            actual = {**runner.step(**{"in": x}), **runner.state}
            for name, values in actual.items():
                n = int(name[1:])
                assert np.array_equal(values, self.expected[name], equal_nan=self.element != "i32"), (
                    step,
                    name,
                    self.cases[n],
                )


def _int_inputs(low: int, high: int, steps: int) -> list[np.ndarray]:
    rng = np.random.default_rng(3)
    return [rng.choice([low, high, 0, *rng.integers(-9000, 9000, 6)], SIZE).astype(np.int32) for _ in range(steps)]


def _float_inputs() -> list[np.ndarray]:
    rng = np.random.default_rng(4)
    return [rng.normal(0.3, 1, SIZE).astype(np.float32) * np.float32(10.0 ** (n % 5 - 2)) for n in range(12)]


KINDS = ["li", "lif", "cubali", "cubalif"]


@pytest.mark.parametrize("kind", KINDS)
def test_integer_neurons_saturate(tmp_path: Path, kind: str) -> None:
    test = NeuronTest(neuron_cases([kind], saturate=True), "i32")
    test.check(Kernel(tmp_path, test.text, test.arguments, test.tables), _int_inputs(LOW, HIGH, 12))


@pytest.mark.parametrize("product_bits", [32, 64])
def test_integer_neurons_that_fit(tmp_path: Path, product_bits: int) -> None:
    """Ranges in which 32 bits are known to be enough; without a spike v - threshold may still be out of range."""
    cases = [c for c in neuron_cases(KINDS, saturate=False) if TABLE not in (c["leak"], c["threshold"], c["reset"])]
    test = NeuronTest(cases, "i32", product_bits)
    test.check(Kernel(tmp_path, test.text, test.arguments, test.tables), _int_inputs(-20000, 20000, 10))


def test_a_threshold_is_not_subtracted_without_a_spike(tmp_path: Path) -> None:
    case = {
        "kind": "lif",
        "decay": (0.0, 0),
        "leak": (0.0, 0),
        "threshold": (1e5, HIGH),
        "reset": "subtract",
        "saturate": False,
    }
    test = NeuronTest([case], "i32", 32)
    # mlir-translate's C computes both sides of a choice, so the sanitizer sees a difference that is not wanted.
    oracle = Oracle(tmp_path, test.text, test.arguments, test.tables, flags=["-fsanitize=undefined"])
    test.check(oracle, [np.full(SIZE, LOW, np.int32)])


@pytest.mark.parametrize("kind", KINDS)
def test_float_neurons(tmp_path: Path, kind: str) -> None:
    test = NeuronTest(neuron_cases([kind], saturate=False), "f32")
    test.check(Kernel(tmp_path, test.text, test.arguments, test.tables), _float_inputs())


@pytest.mark.parametrize("element", ["i32", "f32"])
def test_neurons_by_the_other_printer(tmp_path: Path, element: str) -> None:
    """mlir-translate's C of the same modules gives the same values."""
    test = NeuronTest(neuron_cases(["lif", "cubali"], saturate=element == "i32"), element)
    inputs = _int_inputs(LOW, HIGH, 10) if element == "i32" else _float_inputs()
    test.check(Oracle(tmp_path, test.text, test.arguments, test.tables), inputs)


def test_neurons_of_any_rank(tmp_path: Path) -> None:
    shape = (2, 3, 4)
    decay = np.linspace(0, 1, 24, dtype=np.float32)
    arguments = [
        Argument("v", shape, "f32", "state"),
        Argument("x", shape, "f32", "state"),
        Argument("out", (24,), "f32", "output"),
    ]

    def body(module: Any, v: Any, x: Any, out: Any) -> None:
        dialect.li(
            x,
            v,
            decay=dialect.weight(module, "decay"),
            leak=(0.0, 0),
            saturate=False,
            product_bits=32,
            loc="li (LI 2x3x4)",
        )
        dialect.output(v, out, loc="out (Output)")

    kernel = Kernel(tmp_path, build("f32", arguments, {"decay": decay}, body), arguments, {"decay": decay})
    rng = np.random.default_rng(5)
    kernel.state["v"][:], kernel.state["x"][:] = rng.normal(size=(2, *shape))
    expected = decay * kernel.state["v"].ravel() + kernel.state["x"].ravel()
    assert np.array_equal(kernel.step()["out"], expected)


# output, copy, init, the pass


def test_output_has_no_negative_zero(tmp_path: Path) -> None:
    arguments = [Argument("in", (3,), "f32", "input"), Argument("out", (3,), "f32", "output")]
    text = build("f32", arguments, {}, lambda module, **a: dialect.output(a["in"], a["out"], loc="out (Output)"))
    result = Kernel(tmp_path, text, arguments).step(**{"in": np.array([-0.0, 0.0, -1.5], np.float32)})["out"]
    assert result.view(np.uint32).tolist() == np.array([0.0, 0.0, -1.5], np.float32).view(np.uint32).tolist()


def test_copies_and_init(tmp_path: Path) -> None:
    arguments = [
        Argument("kept", (2, 2), "i8", "state"),
        Argument("in", (4,), "i8", "input"),
        Argument("out", (4,), "i8", "output"),
    ]

    def body(module: Any, **a: Any) -> None:
        dialect.output(a["kept"], a["out"], loc="out (Output)")
        dialect.copy(a["in"], a["kept"], loc="kept for the next step")

    kernel = Kernel(tmp_path, build("int8", arguments, {}, body), arguments)
    kernel.state["kept"][:] = 9
    kernel.init()
    assert kernel.step(**{"in": np.array([1, 2, 3, -4])})["out"].tolist() == [0, 0, 0, 0]
    assert kernel.step(**{"in": np.array([0, 0, 0, 0])})["out"].tolist() == [1, 2, 3, -4]


def test_nothing_of_the_snn_dialect_is_left() -> None:
    test = NeuronTest(neuron_cases(KINDS, saturate=True), "i32")
    lowered = lower(test.text)
    assert '"snn.' not in lowered and lowered.count("@sat32(%x") == 1
    assert lower(lowered) == lowered  # nothing to lower, and reading and printing changes nothing


def test_parameters_of_one_cost_nothing() -> None:
    """Decay 1, decay 0, leak 0 and gain 1 have no arithmetic."""
    arguments = [
        Argument("v", (2,), "f32", "state"),
        Argument("w", (2,), "i32", "state"),
        Argument("in", (2,), "f32", "input"),
        Argument("ii", (2,), "i32", "input"),
    ]

    def body(module: Any, **a: Any) -> None:
        flags = {"saturate": False, "product_bits": 64}
        dialect.li(a["in"], a["v"], decay=(1.0, 4096), leak=(0.0, 0), **flags, loc="IF at rest")
        dialect.li(a["in"], a["v"], decay=(0.0, 0), leak=(0.0, 0), **flags, loc="no memory")
        dialect.li(a["ii"], a["w"], decay=(1.0, 4096), leak=(0.0, 0), **flags, loc="I at rest")
        dialect.gain(a["in"], a["in"], gain=(1.0, 1), saturate=False, loc="gain of 1")

    lowered = lower(build("f32", arguments, {}, body))
    assert "mul" not in lowered and "ext" not in lowered
    assert lowered.count("arith.addf") == 1 and lowered.count("arith.addi") == 1


def test_text_without_locations_is_lowered_too() -> None:
    """What somebody wrote by hand has none of the names that export gives to arrays."""
    path = CONSTRUCTED / "recurrent_bias" / "recurrent_bias.nir"
    for kernel in ("dense", "event"):
        text = to_mlir(path, quantize=True, dt=CONSTRUCTED_DT, kernel=kernel)
        bare = re.sub(r' loc\("[^"]*"\)', "", text)
        assert bare != text and "snn." in bare
        assert "snn_network_step(" in emit_c(lower(bare))


def test_what_is_no_module_is_refused_by_name() -> None:
    with pytest.raises(Unreadable) as caught:
        lower("func.func @f(", "dir/net.mlir")
    assert str(caught.value).startswith("dir/net.mlir: not a module of the snn dialect: ")
    assert "\n" not in str(caught.value)
