# SPDX-License-Identifier: Apache-2.0
"""The C that is printed: exact texts, the same values as mlir-translate's C, and clean under every compiler we promise."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from compiled import DTYPES, EXACT, WARNINGS, Kernel, Oracle, build, header, weights_c

from snn_builder import dialect
from snn_builder.c import emit_c
from snn_builder.c.expression import Expr, binary, cast, comparison, conditional, literal, unary
from snn_builder.dialect import Argument, InvalidModule
from snn_builder.errors import Unreadable
from snn_builder.lowering import lower

GOLDEN = Path(__file__).parent / "golden"
ZIG = [sys.executable, "-m", "ziglang", "cc"]
COMPILERS = {
    "gcc": ["gcc", "-O2"],
    "zig": [*ZIG, "-O2", "-g0"],
    "zig-rv32": [*ZIG, "-O2", "-g0", "-target", "riscv32-freestanding-none", "-mcpu=generic_rv32+m+c"],
}


def two_layers(mode: str, name: str = "net") -> tuple[str, list[Argument], dict[str, np.ndarray]]:
    """A network with what most have: two synapses, one with a bias, per-neuron decays, feedback, a kept spike array."""
    rng = np.random.default_rng(6)
    number, spike = ("i32", "i8") if mode == "int8" else ("f32", "f32")
    weights: dict[str, np.ndarray] = {
        "fc1_w": rng.integers(-128, 128, (4, 6)).astype(np.int8),
        "fc2_w": rng.integers(-128, 128, (2, 4)).astype(np.int8),
        "fc2_b": np.array([3, -1], np.int32),
        "lif2_decay": np.array([3277, 3891], np.int32),
    }
    if mode == "f32":
        scale = {"fc1_w": 64, "fc2_w": 32, "fc2_b": 32, "lif2_decay": 4096}
        weights = {name: (values / scale[name]).astype(np.float32) for name, values in weights.items()}
    arguments = [
        Argument("lif1_v", (4,), number, "state"), Argument("lif2_i", (2,), number, "state"),
        Argument("lif2_v", (2,), number, "state"), Argument("lif1_spikes", (4,), spike, "state"),
        Argument("in", (6,), spike, "input"), Argument("out", (2,), spike, "output"),
    ]  # fmt: skip

    def body(module: Any, **a: Any) -> None:
        flags = {"subtract": False, "saturate": mode == "int8", "product_bits": 64}
        w = {constant: dialect.weight(module, constant) for constant in weights}
        fc1, fc2 = dialect.buffer("fc1", (4,), number), dialect.buffer("fc2", (2,), number)
        dialect.linear(a["in"], w["fc1_w"], None, fc1, w_scale=6, loc="fc1 (Linear 6 -> 4)")
        if mode == "int8":
            dialect.rescale(fc1, fc1, shift=6, saturate=False, loc="fc1 (to Q12: << 6)")
        parameters = {"leak": (0.0, 0), "threshold": (1.0, 4096), "reset": (0.0, 0)}
        dialect.lif(fc1, a["lif1_v"], a["lif1_spikes"], decay=(0.9, 3686), **parameters, **flags, loc="lif1 (LIF 4)")
        dialect.linear(a["lif1_spikes"], w["fc2_w"], w["fc2_b"], fc2, w_scale=5, loc="fc2 (Affine 4 -> 2)")
        if mode == "int8":
            dialect.rescale(fc2, fc2, shift=7, saturate=True, loc="fc2 (to Q12: << 7)")
        decays = {"cur_decay": (0.5, 2048), "vol_decay": w["lif2_decay"]}
        neuron = {**decays, "leak": (-0.01, -41), "threshold": (0.5, 2048), "reset": (0.0, 0)}
        dialect.cubalif(fc2, a["lif2_i"], a["lif2_v"], a["out"], **neuron, **flags, loc="lif2 (CubaLIF 2)")

    return build(mode, arguments, weights, body, name), arguments, weights


EVENTS = """
module attributes {snn.name = "net", snn.mode = "int8", snn.kernel = "event", snn.generator = "snn-builder test"} {
  memref.global constant @w : memref<30x2xi32> loc("[input][output / 4]")
  func.func @init(%v: memref<8xi32> {snn.name = "v", snn.role = "state"}) {
    %zero = arith.constant 0 : i32
    linalg.fill ins(%zero : i32) outs(%v : memref<8xi32>) loc("at rest")
    return
  }
  func.func @step(%v: memref<8xi32> {snn.name = "v", snn.role = "state"},
                  %in: memref<30xi8> {snn.name = "in", snn.role = "input"},
                  %out: memref<8xi32> {snn.name = "out", snn.role = "output"}) {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c2 = arith.constant 2 : index
    %c4 = arith.constant 4 : index
    %c30 = arith.constant 30 : index
    %none = arith.constant 0 : i8
    %zero = arith.constant 0 : i32
    %eight = arith.constant 8 : i32
    %sixteen = arith.constant 16 : i32
    %lanes = arith.constant 16711935 : i32
    %half = arith.constant 65535 : i32
    %bias = arith.constant 128 : i32
    %w = memref.get_global @w : memref<30x2xi32>
    %events = memref.alloca() : memref<30xi16> loc("events")
    %count = scf.for %i = %c0 to %c30 step %c1 iter_args(%n = %c0) -> (index) {
      %x = memref.load %in[%i] : memref<30xi8>
      %fired = arith.cmpi ne, %x, %none : i8
      %next = scf.if %fired -> (index) {
        %narrow = arith.index_cast %i : index to i16
        memref.store %narrow, %events[%n] : memref<30xi16>
        %more = arith.addi %n, %c1 : index
        scf.yield %more : index
      } else {
        scf.yield %n : index
      }
      scf.yield %next : index
    } loc("input: list the inputs that fired")
    %number = arith.index_cast %count : index to i32
    %correction = arith.muli %number, %bias overflow<nsw> : i32 loc("bias")
    scf.for %o = %c0 to %c2 step %c1 {
      %sums:2 = scf.for %k = %c0 to %count step %c1 iter_args(%even = %zero, %odd = %zero) -> (i32, i32) {
        %e = memref.load %events[%k] : memref<30xi16>
        %index = arith.index_castui %e : i16 to index
        %packed = memref.load %w[%index, %o] : memref<30x2xi32>
        %low = arith.andi %packed, %lanes : i32
        %shifted = arith.shrui %packed, %eight : i32
        %high = arith.andi %shifted, %lanes : i32
        %even2 = arith.addi %even, %low : i32 loc("even")
        %odd2 = arith.addi %odd, %high : i32 loc("odd")
        scf.yield %even2, %odd2 : i32, i32
      }
      %first = arith.muli %o, %c4 : index loc("first")
      %a = arith.andi %sums#0, %half : i32
      %b = arith.subi %a, %correction overflow<nsw> : i32
      memref.store %b, %v[%first] : memref<8xi32>
      %second = arith.addi %first, %c1 : index
      %c = arith.andi %sums#1, %half : i32
      %d = arith.subi %c, %correction overflow<nsw> : i32
      memref.store %d, %v[%second] : memref<8xi32>
      %third = arith.addi %first, %c2 : index
      %f = arith.shrui %sums#0, %sixteen : i32
      %g = arith.subi %f, %correction overflow<nsw> : i32
      memref.store %g, %v[%third] : memref<8xi32>
    } loc("fc (30 -> 8)")
    linalg.copy ins(%v : memref<8xi32>) outs(%out : memref<8xi32>) loc("out (Output)")
    return
  }
}
"""
EVENT_ARGUMENTS = [
    Argument("v", (8,), "i32", "state"),
    Argument("in", (30,), "i8", "input"),
    Argument("out", (8,), "i32", "output"),
]


def event_weights() -> dict[str, np.ndarray]:
    return {"w": np.random.default_rng(7).integers(-(2**31), 2**31, (30, 2)).astype(np.int32)}


def golden(name: str, text: str) -> None:
    """Compares with the file of that name; SNN_REGENERATE=1 writes it."""
    path = GOLDEN / name
    if os.environ.get("SNN_REGENERATE"):
        GOLDEN.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert path.read_text(encoding="utf-8") == text, f"{name} has changed; SNN_REGENERATE=1 rewrites it"


@pytest.mark.parametrize("mode", ["int8", "f32"])
def test_golden_network(mode: str) -> None:
    text, _, _ = two_layers(mode)
    lowered = lower(text)
    for suffix, content in (("mlir", text), ("lowered.mlir", lowered), ("c", emit_c(lowered))):
        golden(f"two_layers_{mode}.{suffix}", content)


def test_golden_events() -> None:
    golden("events.c", emit_c(EVENTS))


@pytest.mark.parametrize("mode", ["int8", "f32", "events"])
def test_both_printers_agree(tmp_path: Path, mode: str) -> None:
    text, arguments, weights = two_layers(mode) if mode != "events" else (EVENTS, EVENT_ARGUMENTS, event_weights())
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    ours.mkdir()
    theirs.mkdir()
    kernel, oracle = Kernel(ours, text, arguments, weights), Oracle(theirs, text, arguments, weights)
    rng = np.random.default_rng(8)
    spikes = 0
    for density in (0.0, 0.1, 0.3, 0.5, 0.9, 1.0) * 5:
        (source,) = (a for a in arguments if a.role == "input")
        x = (rng.random(source.shape) < density).astype(DTYPES[source.element])
        out, expected = kernel.step(**{"in": x})["out"], oracle.step(**{"in": x})["out"]
        assert np.array_equal(out, expected)
        assert all(np.array_equal(kernel.state[name], oracle.state[name]) for name in kernel.state)
        spikes += int(np.count_nonzero(out))
    assert spikes > 5


def test_events_count_what_fired(tmp_path: Path) -> None:
    weights = event_weights()
    kernel = Kernel(tmp_path, EVENTS, EVENT_ARGUMENTS, weights)
    x = np.arange(30) % 3 == 0
    lanes = weights["w"].view(np.uint8).reshape(30, 8).astype(int) - 128
    expected = lanes[x].sum(axis=0)
    out = kernel.step(**{"in": x.astype(np.int8)})["out"]
    assert out[[0, 1, 2, 4, 5, 6]].tolist() == expected[[0, 1, 2, 4, 5, 6]].tolist()


# Compilers


def sources(mode: str) -> tuple[str, dict[str, str], list[Argument]]:
    """The name, the files and the arguments of a golden network; each has a name of its own."""
    name = f"net_{mode}"
    if mode == "events":
        text, arguments, weights = (
            EVENTS.replace('snn.name = "net"', f'snn.name = "{name}"'),
            EVENT_ARGUMENTS,
            event_weights(),
        )
    else:
        text, arguments, weights = two_layers(mode, name)
    files = {
        f"{name}.h": header(arguments, name),
        f"{name}.c": emit_c(lower(text)),
        f"{name}_weights.c": weights_c(weights, f"{name}_"),
    }
    return name, files, arguments


@pytest.mark.parametrize("compiler", COMPILERS)
def test_no_compiler_warns(tmp_path: Path, compiler: str) -> None:
    for mode in ("int8", "f32", "events"):
        _, files, _ = sources(mode)
        for file, text in files.items():
            tmp_path.joinpath(file).write_text(text)
        for file in files:
            if file.endswith(".c"):
                subprocess.run([*COMPILERS[compiler], *WARNINGS, *EXACT, "-c", file], cwd=tmp_path, check=True)


def test_sanitizers_find_nothing(tmp_path: Path) -> None:
    """A program under the address and the undefined-behaviour sanitizer, with exact buffers on the heap."""
    files: dict[str, str] = {}
    main = ["#include <stdlib.h>", "#include <string.h>"]
    calls = []
    for mode in ("int8", "f32", "events"):
        name, own, arguments = sources(mode)
        files |= own
        sizes = {a.role: a.shape[0] for a in arguments}
        main.append(f'#include "{name}.h"')
        calls += [
            f"    {{ {name}_state *s = malloc(sizeof *s);",
            f"      {name}_input_t *in = calloc({sizes['input']}, sizeof *in);",
            f"      {name}_output_t *out = malloc({sizes['output']} * sizeof *out);",
            f"      {name}_init(s);",
            f"      for (int t = 0; t < 200; t++) {{ in[rand() % {sizes['input']}] = t % 3 != 0; {name}_step(s, in, out); }}",
            "      free(s); free(in); free(out); }",
        ]
    files["main.c"] = "\n".join([*main, "int main(void) {", *calls, "    return 0; }"]) + "\n"
    for file, text in files.items():
        tmp_path.joinpath(file).write_text(text)
    names = [file for file in files if file.endswith(".c")]
    flags = [*EXACT, "-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    subprocess.run(["gcc", *flags, *names, "-o", "program"], cwd=tmp_path, check=True)
    subprocess.run(["./program"], cwd=tmp_path, check=True, env={**os.environ, "ASAN_OPTIONS": "detect_leaks=0"})


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["gcc", "-ffast-math"], "-ffast-math"),
        ([*ZIG, "-target", "x86-freestanding-none", "-mcpu=i386"], "float must be computed as float"),
        (["gcc", "-D__FP_FAST_FMAF=1"], "-ffp-contract=off"),
        (["gcc", "-DNET_INTERFACE=2"], "net.h is not the header"),
        (["gcc", "-DNET_STATE_BYTES=1"], "net_state is laid out otherwise"),
    ],
)
def test_what_would_give_other_bits_does_not_compile(tmp_path: Path, command: list[str], message: str) -> None:
    text, arguments, _ = two_layers("f32")
    guarded = [
        f"#ifndef {line.split()[1]}\n{line}\n#endif" if line.startswith("#define") else line
        for line in header(arguments).splitlines()
    ]
    tmp_path.joinpath("net.h").write_text("\n".join(guarded) + "\n")
    tmp_path.joinpath("net.c").write_text(emit_c(lower(text)))
    unsaid = [] if "FMAF" in command[-1] else EXACT
    result = subprocess.run([*command, *unsaid, "-fsyntax-only", "net.c"], cwd=tmp_path, capture_output=True, text=True)
    assert result.returncode != 0 and message in result.stderr
    if not unsaid:
        subprocess.run([*command, *EXACT, "-fsyntax-only", "net.c"], cwd=tmp_path, check=True)


# Small modules, exact lines


def step_lines(body: str, outer: str = "") -> list[str]:
    """The lines between the braces of step, for that body in MLIR; arrays v (state), in, f (floats), out."""
    module = f"""
module attributes {{snn.name = "net", snn.mode = "int8", snn.kernel = "dense", snn.generator = "snn-builder test"}} {{
  {outer}
  func.func @step(%v: memref<4xi32> {{snn.name = "v", snn.role = "state"}},
                  %f: memref<4xf32> {{snn.name = "f", snn.role = "state"}},
                  %in: memref<4xi8> {{snn.name = "in", snn.role = "input"}},
                  %out: memref<4xi32> {{snn.name = "out", snn.role = "output"}}) {{
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c2 = arith.constant 2 : index
    %c4 = arith.constant 4 : index
    %z = arith.constant 0 : i32
    {body}
    return
  }}
}}"""
    text = emit_c(module)
    lines = text[text.index("net_step") :].splitlines()
    return [line[4:] for line in lines[2 : lines.index("}")] if "(void)" not in line]


def test_a_load_does_not_move_across_a_store() -> None:
    lines = step_lines("""
        %a = memref.load %v[%c0] : memref<4xi32>
        memref.store %z, %v[%c0] : memref<4xi32>
        memref.store %a, %v[%c1] : memref<4xi32>""")
    assert lines == ["const int32_t x = state->v[0];", "state->v[0] = 0;", "state->v[1] = x;"]


def test_a_load_moves_to_its_use() -> None:
    lines = step_lines("""
        %a = memref.load %v[%c0] : memref<4xi32>
        %b = memref.load %v[%c1] : memref<4xi32>
        %s = arith.addi %b, %a overflow<nsw> : i32
        memref.store %s, %v[%c0] : memref<4xi32>""")
    assert lines == ["state->v[0] = state->v[1] + state->v[0];"]


def test_an_index_that_is_read_before_a_store() -> None:
    lines = step_lines("""
        %a = memref.load %v[%c0] : memref<4xi32>
        %i = arith.index_cast %a : i32 to index
        %x = memref.load %v[%i] : memref<4xi32>
        memref.store %z, %v[%c0] : memref<4xi32>
        memref.store %x, %v[%i] : memref<4xi32>""")
    assert lines == [
        "const size_t t = (size_t)state->v[0];",
        "const int32_t x = state->v[t];",
        "state->v[0] = 0;",
        "state->v[t] = x;",
    ]


def test_an_element_that_is_used_after_a_store() -> None:
    """No conversion of MLIR's makes this order, but it is legal: the index is read first, the element used last."""
    text = emit_c("""
module attributes {snn.name = "net", snn.mode = "int8", snn.kernel = "dense", snn.generator = "snn-builder test"} {
  emitc.func @step(%v: !emitc.array<4xi32> {snn.name = "v", snn.role = "state"}) {
    %c0 = "emitc.constant"() <{value = 0 : index}> : () -> !emitc.size_t
    %z = "emitc.constant"() <{value = 5 : i32}> : () -> i32
    %first = emitc.subscript %v[%c0] : (!emitc.array<4xi32>, !emitc.size_t) -> !emitc.lvalue<i32>
    %x = emitc.load %first : <i32>
    %i = emitc.cast %x : i32 to !emitc.size_t
    %last = emitc.subscript %v[%i] : (!emitc.array<4xi32>, !emitc.size_t) -> !emitc.lvalue<i32>
    emitc.assign %z : i32 to %first : <i32>
    emitc.assign %z : i32 to %last : <i32>
    emitc.return
  }
}""")
    assert "    const size_t t = (size_t)state->v[0];\n    state->v[0] = 5;\n    state->v[t] = 5;\n" in text


def test_compound_assignment() -> None:
    lines = step_lines("""
        %five = arith.constant -5 : i32
        %one = arith.constant 1 : i32
        %a = memref.load %v[%c0] : memref<4xi32>
        %b = arith.addi %a, %five overflow<nsw> : i32
        memref.store %b, %v[%c0] : memref<4xi32>
        %d = memref.load %v[%c1] : memref<4xi32>
        %e = arith.addi %d, %one overflow<nsw> : i32
        memref.store %e, %v[%c1] : memref<4xi32>
        %g = memref.load %v[%c1] : memref<4xi32>
        %h = arith.subi %z, %g overflow<nsw> : i32
        memref.store %h, %v[%c1] : memref<4xi32>""")
    assert lines == ["state->v[0] -= 5;", "state->v[1]++;", "state->v[1] = 0 - state->v[1];"]


def test_a_loop_bound_is_evaluated_once() -> None:
    lines = step_lines("""
        %n = memref.load %v[%c0] : memref<4xi32>
        %bound = arith.index_cast %n : i32 to index
        scf.for %i = %c0 to %bound step %c2 {
          memref.store %z, %v[%i] : memref<4xi32>
        }""")
    assert lines == [
        "const size_t t = (size_t)state->v[0];",
        "for (size_t i = 0; i < t; i += 2) {",
        "    state->v[i] = 0;",
        "}",
    ]


def test_names_hide_nothing() -> None:
    lines = step_lines("""
        %i = memref.alloca() : memref<4xi32> loc("i")
        %in2 = memref.alloca() : memref<4xi32> loc("in")
        %while = memref.alloca() : memref<4xi32> loc("while")
        scf.for %k = %c0 to %c4 step %c1 {
          memref.store %z, %i[%k] : memref<4xi32>
          memref.store %z, %in2[%k] : memref<4xi32>
          memref.store %z, %while[%k] : memref<4xi32>
          scf.for %l = %c0 to %c4 step %c1 {
            %a = memref.load %i[%k] : memref<4xi32>
            %b = memref.load %in2[%l] : memref<4xi32>
            %c = memref.load %while[%l] : memref<4xi32>
            %d = arith.muli %a, %b overflow<nsw> : i32 loc("v")
            %e = arith.addi %d, %d overflow<nsw> : i32 loc("state")
            %f2 = arith.addi %e, %c overflow<nsw> : i32
            %g = arith.muli %f2, %e overflow<nsw> : i32
            memref.store %g, %out[%l] : memref<4xi32>
          }
        } loc("a */ comment /* with\\0Aa new line")""")
    assert lines == [
        "int32_t i[4];",
        "int32_t in2[4];",
        "int32_t while2[4];",
        "",
        "/* a * / comment / * with a new line */",
        "for (size_t j = 0; j < 4; j++) {",
        "    i[j] = 0;",
        "    in2[j] = 0;",
        "    while2[j] = 0;",
        "    for (size_t k = 0; k < 4; k++) {",
        "        const int32_t v = i[j] * in2[k];",
        "        const int32_t state2 = v + v;",
        "        out[k] = (state2 + while2[k]) * state2;",
        "    }",
        "}",
    ]


def test_a_masked_shift_has_no_guard() -> None:
    lines = step_lines("""
        %m = arith.constant 31 : i8
        %a = memref.load %v[%c0] : memref<4xi32>
        %e = memref.load %in[%c0] : memref<4xi8>
        %k = arith.andi %e, %m : i8
        %w = arith.extsi %k : i8 to i32
        %s = arith.shrsi %a, %w : i32
        memref.store %s, %out[%c0] : memref<4xi32>""")
    assert lines == ["out[0] = state->v[0] >> (in[0] & 31);"]


def test_float_literals_are_exact() -> None:
    values = [0.1, -0.0, 16777216.0, 1e10, 1.17549435e-38, 1e-45, 3.4028234e38, -1.5, float("inf"), float("nan")]
    expected = [
        "0.1f",
        "-0.0f",
        "16777216.0f",
        "1e+10f",
        "1.1754944e-38f",
        "1e-45f",
        "3.4028235e+38f",
        "-1.5f",
        "__builtin_inff()",
        '__builtin_nanf("")',
    ]
    assert [literal(float(np.float32(value)), "f32").text for value in values] == expected


def test_expressions_keep_their_types() -> None:
    x, w, n = Expr("x", "i32"), Expr("w", "i8"), Expr("n", "i64")
    wide = cast(x, "i64")
    assert binary("*", cast(w, "i32"), cast(w, "i32"), "i32").text == "(int32_t)w * w"
    assert binary("+", n, wide, "i64").text == "n + x"
    assert binary("*", wide, literal(3686, "i64"), "i64").text == "(int64_t)x * 3686"
    assert binary(">>", wide, literal(3, "i64"), "i64").text == "(int64_t)x >> 3"
    assert binary("-", x, binary("-", x, x, "i32"), "i32").text == "x - (x - x)"
    assert binary("-", binary("-", x, x, "i32"), literal(-1, "i32"), "i32").text == "x - x + 1"
    assert binary("-", x, literal(-(2**31), "i32"), "i32").text == "x - INT32_MIN"
    assert binary("+", w, w, "i8").text == "(int8_t)(w + w)"
    assert cast(cast(cast(n, "ui64"), "ui32"), "i32").text == "(int32_t)n"
    assert cast(cast(w, "ui8"), "i32").text == "(int32_t)(uint8_t)w"
    assert cast(binary("+", w, w, "i8"), "i32").text == "(int32_t)(int8_t)(w + w)"
    assert comparison("<", cast(w, "i32"), x).text == "w < x"
    assert comparison("<", cast(w, "ui32"), cast(x, "ui32")).text == "(uint32_t)w < (uint32_t)x"
    assert unary("-", unary("-", x, "i32"), "i32").text == "-(-x)"
    assert conditional(Expr("c", "i1"), x, conditional(Expr("d", "i1"), x, x, "i32"), "i32").text == "c ? x : d ? x : x"
    with pytest.raises(ValueError, match="ui16"):
        binary("*", Expr("a", "ui16"), Expr("a", "ui16"), "ui16")


@pytest.mark.parametrize(
    ("body", "outer", "problem"),
    [
        (
            "%a = memref.load %f[%c0] : memref<4xf32>\n%b = math.sqrt %a : f32\nmemref.store %b, %f[%c0] : memref<4xf32>",
            "",
            "no conversion to C for math.sqrt",
        ),
        ('emitc.verbatim "int x;"', "", "emitc.verbatim"),
        ('emitc.call_opaque "f"() : () -> ()', "", "emitc.call_opaque"),
        ("memref.store %q, %in[%c0] : memref<4xi8>", "", "input in is written"),
        ("", "memref.global @g : memref<2xi32> = dense<1>", "@g is not a constant"),
        ("", "func.func private @h(%x: memref<2xi32>) { return }", "array argument"),
    ],
)
def test_what_has_no_c_is_an_error(body: str, outer: str, problem: str) -> None:
    with pytest.raises(InvalidModule, match=problem):
        step_lines("%q = arith.constant 0 : i8\n" + body, outer)


def test_terminals_are_flat_and_in_order() -> None:
    a, b, c = (
        Argument("a", (2,), "i8", "input"),
        Argument("b", (2, 2), "i8", "input"),
        Argument("c", (2,), "i8", "output"),
    )
    with pytest.raises(InvalidModule, match="input b is not a flat array"):
        emit_c(lower(build("int8", [a, b], {}, lambda module, **_: None)))
    with pytest.raises(InvalidModule, match="not in the order"):
        emit_c(lower(build("int8", [c, a], {}, lambda module, **_: None)))
    with pytest.raises(InvalidModule, match="two parameters have one name"):
        emit_c(lower(build("int8", [a, a._replace(role="output")], {}, lambda module, **_: None)))


def test_several_terminals_and_no_state(tmp_path: Path) -> None:
    arguments = [
        Argument("a", (2,), "i8", "input"),
        Argument("b", (2,), "i8", "input"),
        Argument("unused", (1,), "i8", "input"),
    ]
    arguments += [Argument("p", (2,), "i32", "output"), Argument("q", (2,), "i8", "output")]

    def body(module: Any, a: Any, b: Any, unused: Any, p: Any, q: Any) -> None:
        dialect.sum_([a, b], p, saturate=False, loc="p = a + b")
        dialect.output(b, q, loc="q = b")

    text = build("int8", arguments, {}, body)
    kernel = Kernel(tmp_path, text, arguments)
    result = kernel.step(a=np.array([1, 2]), b=np.array([30, -128]), unused=np.array([1]))
    assert result["p"].tolist() == [31, -126] and result["q"].tolist() == [30, -128]
    printed = emit_c(lower(text))
    assert "void net_init(net_state *state)\n{\n    (void)state;\n}" in printed
    assert (
        "(net_state *state, const int8_t *a, const int8_t *b, const int8_t *unused, int32_t *p, int8_t *q)" in printed
    )


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda text: "module {", "expected operation name in quotes"),
        (lambda text: text, "snn.linear is still in it"),
        (lambda text: text.replace("snn.mode", "snn.mood"), "it has no attribute snn.mode"),
    ],
)
def test_text_that_is_no_lowered_module(change: Any, problem: str) -> None:
    text = change(two_layers("int8")[0])
    with pytest.raises(Unreadable) as caught:
        emit_c(text, "dir/x.mlir")
    message = str(caught.value)
    assert message.startswith("dir/x.mlir: not a lowered module: ") and problem in message and "\n" not in message


def test_an_unused_value_is_not_printed() -> None:
    """The conversion leaves such values, and GCC warns about the local that one would get."""
    lines = step_lines("""
        %a = memref.load %v[%c0] : memref<4xi32>
        %b = memref.load %v[%c1] : memref<4xi32>
        %same = arith.extui %a : i32 to i64
        %back = arith.trunci %same : i64 to i32
        memref.store %back, %v[%c2] : memref<4xi32>
        %c = emitc.cast %b : i32 to i64
        memref.store %z, %v[%c1] : memref<4xi32>""")
    assert lines == ["state->v[2] = state->v[0];", "state->v[1] = 0;"]


# Random expressions


class Fuzz:
    """A random straight-line program over integers of all widths and floats, as MLIR."""

    SIZES = (8, 16, 32, 64)

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.lines: list[str] = []
        self.values: dict[str, list[str]] = {"i1": [], "f32": []}
        self.count = 0

    def new(self, type_: str, text: str) -> str:
        name = f"%t{self.count}"
        self.count += 1
        self.lines.append(f"{name} = {text}")
        self.values.setdefault(type_, []).append(name)
        return name

    def pick(self, type_: str) -> str:
        """A recent value mostly, so that expressions become deep, or a constant."""
        known = self.values.get(type_, [])
        if not known or (self.random.random() < 0.1 and type_ != "i1"):
            return self.new(type_, f"arith.constant {self.number(type_)}")
        return self.random.choice(known[-4:] if self.random.random() < 0.7 else known)

    def number(self, type_: str) -> str:
        if type_ == "f32":
            return f"{self.random.choice([0.5, -1.25, 3e20, 0.0, 1e-42]):.9e} : f32"
        if type_ == "i1":
            return self.random.choice(["true", "false"])
        bits = int(type_[1:])
        return f"{self.random.choice([0, 1, -1, 5, -(1 << bits - 1), (1 << bits - 1) - 1, 100])} : {type_}"

    def step(self) -> None:
        choice = self.random.random()
        type_ = f"i{self.random.choice(self.SIZES)}"
        if choice < 0.25:
            operators = ["addi", "subi", "andi", "ori", "xori"] + (["muli"] if type_ in ("i32", "i64") else [])
            self.new(type_, f"arith.{self.random.choice(operators)} {self.pick(type_)}, {self.pick(type_)} : {type_}")
        elif choice < 0.35:
            count = self.new(type_, f"arith.constant {self.random.randrange(int(type_[1:]))} : {type_}")
            self.values[type_].pop()
            self.new(
                type_, f"arith.{self.random.choice(['shrsi', 'shrui', 'shli'])} {self.pick(type_)}, {count} : {type_}"
            )
        elif choice < 0.5:
            other = f"i{self.random.choice([n for n in self.SIZES if f'i{n}' != type_])}"
            operator = "trunci" if int(other[1:]) < int(type_[1:]) else self.random.choice(["extsi", "extui"])
            self.new(other, f"arith.{operator} {self.pick(type_)} : {type_} to {other}")
        elif choice < 0.6:
            predicate = self.random.choice(["eq", "ne", "slt", "sle", "sgt", "sge", "ult", "ule", "ugt", "uge"])
            self.new("i1", f"arith.cmpi {predicate}, {self.pick(type_)}, {self.pick(type_)} : {type_}")
        elif choice < 0.65:
            predicate = self.random.choice(
                ["oeq", "ogt", "oge", "olt", "ole", "one", "ord", "ueq", "ugt", "uge", "ult", "ule", "une", "uno"]
            )
            self.new("i1", f"arith.cmpf {predicate}, {self.pick('f32')}, {self.pick('f32')} : f32")
        elif choice < 0.75:
            kind = self.random.choice([type_, "f32"])
            self.new(kind, f"arith.select {self.pick('i1')}, {self.pick(kind)}, {self.pick(kind)} : {kind}")
        elif choice < 0.9:
            operator = self.random.choice(["addf", "subf", "mulf", "divf"])
            self.new("f32", f"arith.{operator} {self.pick('f32')}, {self.pick('f32')} : f32")
        elif choice < 0.93:
            self.new("f32", f"arith.negf {self.pick('f32')} : f32")
        elif choice < 0.96:
            self.new(
                "i1", f"arith.{self.random.choice(['andi', 'ori', 'xori'])} {self.pick('i1')}, {self.pick('i1')} : i1"
            )
        else:
            self.new(type_, f"arith.extui {self.pick('i1')} : i1 to {type_}")

    def module(self) -> tuple[str, list[Argument]]:
        types = [*(f"i{bits}" for bits in self.SIZES), "f32"]
        arguments = [Argument(f"in_{t}", (4,), t, "input") for t in types] + [
            Argument(f"out_{t}", (40,), t, "output") for t in types
        ]
        for n in range(40):
            self.lines.append(f"%c{n} = arith.constant {n} : index")
        for n in range(4):
            for t in types:
                self.new(t, f"memref.load %in_{t}[%c{n}] : memref<4x{t}>")
        self.values["i1"] = [self.new("i1", "arith.cmpi slt, %t0, %t5 : i8")]
        for n in range(40):
            for _ in range(6):
                self.step()
            t = self.random.choice(types)
            self.lines.append(f"memref.store {self.values[t][-1]}, %out_{t}[%c{n}] : memref<40x{t}>")
        signature = ", ".join(
            f'%{a.name}: memref<{a.shape[0]}x{a.element}> {{snn.name = "{a.name}", snn.role = "{a.role}"}}'
            for a in arguments
        )
        attributes = 'snn.name = "net", snn.mode = "int8", snn.kernel = "dense", snn.generator = "fuzz"'
        body = "\n".join(self.lines)
        return (
            f"module attributes {{{attributes}}} {{\nfunc.func @step({signature}) {{\n{body}\nreturn\n}}\n}}\n",
            arguments,
        )


@pytest.mark.parametrize("seed", range(4))
def test_random_expressions(tmp_path: Path, seed: int) -> None:
    """Precedence, casts, folding and order: our C computes what mlir-translate's does."""
    text, arguments = Fuzz(seed).module()
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    ours.mkdir()
    theirs.mkdir()
    flags = [
        *WARNINGS,
        "-Wno-type-limits",
        "-Wno-bool-compare",
        "-Wno-sign-conversion",
        "-Wno-missing-prototypes",
        "-fsanitize=undefined",
        "-fno-sanitize=float-divide-by-zero",
    ]
    kernel, oracle = Kernel(ours, text, arguments, flags=flags), Oracle(theirs, text, arguments)
    rng = np.random.default_rng(seed)
    for _ in range(50):
        inputs = random_inputs(rng, arguments)
        for name, values in kernel.step(**inputs).items():
            assert np.array_equal(values, oracle.step(**inputs)[name], equal_nan="f32" in name), (name, inputs)


def random_inputs(rng: np.random.Generator, arguments: list[Argument]) -> Mapping[str, np.ndarray]:
    inputs = {}
    for a in arguments:
        if a.role == "input" and a.element == "f32":
            inputs[a.name] = rng.choice(np.array([0, -0.0, 1, -2.5, 1e30, np.inf, np.nan, 1e-40], np.float32), a.shape)
        elif a.role == "input":
            limits = np.iinfo(DTYPES[a.element])
            inputs[a.name] = rng.choice(
                [limits.min, limits.max, 0, 1, -1, int(rng.integers(limits.min, limits.max))], a.shape
            )
    return inputs
