# SPDX-License-Identifier: Apache-2.0
"""The generated files as somebody else's firmware meets them: names, symbols, warnings, several networks, several instances."""

from __future__ import annotations

import itertools
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from compiled import EXACT, WARNINGS
from support import CONSTRUCTED, CONSTRUCTED_DT, chain, lif, reset_of, terminal, two_ends, write_nir

from snn_builder.api import generate
from snn_builder.errors import Refused
from snn_builder.options import Options
from snn_builder.pipeline import compile_network
from snn_builder.reference import simulate

RNG = np.random.RandomState(7)
ZIG = [sys.executable, "-m", "ziglang", "cc", "-g0"]
RV32 = ["-target", "riscv32-freestanding-none", "-mcpu=generic_rv32+m+c", "-ffreestanding"]


def build(
    directory: Path, program: str, *files: Path, flags: tuple[str, ...] = ("-fsanitize=address,undefined",)
) -> str:
    """Compiles a C program with generated files and returns what it prints."""
    directory.mkdir(exist_ok=True)
    main = directory / "main.c"
    main.write_text(program)
    folders = {f"-I{file.parent}" for file in files}
    binary = directory / "program"
    command = [
        "gcc",
        *WARNINGS,
        "-Wno-missing-prototypes",
        *EXACT,
        *flags,
        *sorted(folders),
        str(main),
        *map(str, files),
        "-o",
        str(binary),
    ]
    subprocess.run(command, check=True)
    return subprocess.run([binary], check=True, capture_output=True, text=True).stdout


def generated(path: Path, out: Path, **options: Any) -> list[Path]:
    """The two C files."""
    chosen = Options(**options)
    generate(path, out, chosen)
    return [out / f"{chosen.name}.c", out / f"{chosen.name}_weights.c"]


def two_layers(path: Path, seed: int = 1, inputs: int = 6) -> Path:
    """input -> fc1 -> lif1 -> fc2 -> lif2 -> output; |weights| < 1 so that every seed has the scales of the first."""
    rng = np.random.RandomState(seed)
    nodes: dict[str, Any] = {
        "input": terminal("Input", inputs),
        "output": terminal("Output", 3),
        "lif1": lif(5),
        "lif2": lif(3),
    }
    for name, shape in (("fc1", (5, inputs)), ("fc2", (3, 5))):
        weight = rng.uniform(-0.9, 0.9, shape)
        weight[0, 0] = 0.95
        nodes[name] = {"type": "Affine", "weight": weight, "bias": rng.uniform(-0.1, 0.1, shape[0])}
    edges = [("input", "fc1"), ("fc1", "lif1"), ("lif1", "fc2"), ("fc2", "lif2"), ("lif2", "output")]
    return write_nir(path, nodes, edges)


@pytest.mark.parametrize("quantize", [False, True], ids=["float", "int8"])
def test_retraining_changes_the_weights_file_only(tmp_path: Path, quantize: bool) -> None:
    for seed, folder in ((1, "a"), (2, "b")):
        path = two_layers(tmp_path / folder / "net.nir" if (tmp_path / folder).mkdir() is None else tmp_path, seed)
        generate(path, tmp_path / folder, Options(quantize=quantize))
    same = {"snn_network.mlir", "snn_network.lowered.mlir", "snn_network.c", "snn_network.h"}
    different = {"snn_network_weights.c", "snn_network.json"}
    for name in same | different:
        first, second = ((tmp_path / folder / name).read_bytes() for folder in "ab")
        assert (first == second) == (name in same), name


def test_nothing_of_the_machine_is_in_the_files(tmp_path: Path) -> None:
    path = two_layers(tmp_path / "net.nir")
    generate(path, tmp_path / "a")
    shutil.copy(path, tmp_path / "a" / "net.nir")
    generate(tmp_path / "a" / "net.nir", tmp_path / "b")
    for file in (tmp_path / "b").iterdir():
        assert file.read_bytes() == (tmp_path / "a" / file.name).read_bytes()
        assert str(tmp_path) not in file.read_text()


@pytest.mark.parametrize("quantize", [False, True], ids=["float", "int8"])
def test_symbols(tmp_path: Path, quantize: bool) -> None:
    files = generated(two_layers(tmp_path / "net.nir"), tmp_path, name="gesture", quantize=quantize)
    defined, undefined = set(), set()
    for file in files:
        subprocess.run(["gcc", "-O2", *EXACT, "-c", file, "-o", tmp_path / "out.o"], check=True)
        listing = subprocess.run(
            ["nm", "--extern-only", tmp_path / "out.o"], check=True, capture_output=True, text=True
        ).stdout
        for line in listing.splitlines():
            *_, kind, symbol = line.split()
            (undefined if kind == "U" else defined).add(symbol)
    assert defined and all(symbol.startswith("gesture_") for symbol in defined)
    assert {"gesture_init", "gesture_step", "gesture_model_id"} <= defined
    assert undefined - defined <= {"memset", "memcpy", "memmove", "memcmp"}


def test_constants_are_read_only(tmp_path: Path) -> None:
    _, weights = generated(two_layers(tmp_path / "net.nir"), tmp_path, quantize=True)
    subprocess.run(["gcc", "-c", weights, "-o", tmp_path / "w.o"], check=True)
    sizes = subprocess.run(["size", "-A", tmp_path / "w.o"], check=True, capture_output=True, text=True).stdout
    by_section = {line.split()[0]: int(line.split()[1]) for line in sizes.splitlines() if line.startswith(".")}
    assert by_section.get(".data", 0) == by_section.get(".bss", 0) == 0 and by_section[".rodata"] > 0


@pytest.mark.parametrize("quantize", [False, True], ids=["float", "int8"])
@pytest.mark.parametrize("name", ["leak_reset", "per_neuron_gain", "recurrent_bias", "saturation", "tiny_weights"])
def test_no_compiler_warns(tmp_path: Path, name: str, quantize: bool) -> None:
    path = CONSTRUCTED / name / f"{name}.nir"
    files = generated(path, tmp_path, quantize=quantize, dt=CONSTRUCTED_DT, reset=reset_of(name))
    for file in files:
        for compiler in (["gcc", "-O2"], [*ZIG, "-O2"], [*ZIG, "-Os", *RV32]):
            subprocess.run([*compiler, *WARNINGS, *EXACT, "-c", file, "-o", tmp_path / "out.o"], check=True)
    header = files[0].with_suffix(".h")
    flags = ["-x", "c++", "-std=c++11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only"]
    subprocess.run(["g++", *flags, header], check=True)
    subprocess.run(
        [*ZIG[:3], "c++", *flags[:-1], "-Wno-pragma-once-outside-header", "-c", header, "-o", tmp_path / "out.o"],
        check=True,
    )


def test_two_networks_and_two_instances_in_one_program(tmp_path: Path) -> None:
    """Two networks with the same node names link; two instances that take turns give what they give alone."""
    one, other = two_layers(tmp_path / "one.nir", 1), two_layers(tmp_path / "other.nir", 2)
    files = generated(one, tmp_path / "one", name="one", quantize=True) + generated(
        other, tmp_path / "other", name="other", quantize=True
    )
    data = (RNG.random_sample((2, 20, 6)) < 0.5).astype(np.int8)
    rows = ", ".join("{" + ", ".join("{" + ", ".join(map(str, step)) + "}" for step in run) + "}" for run in data)
    program = f"""
#include <stdio.h>
#include "one.h"
#include "other.h"
static const int8_t data[2][20][6] = {{{rows}}};
static one_state a, b;
static other_state c;
static void print(const int8_t *out) {{ printf("%d%d%d\\n", out[0], out[1], out[2]); }}
int main(void)
{{
    int8_t out[3];
    one_init(&a); one_init(&b); other_init(&c);
    for (int t = 0; t < 20; t++) {{
        one_step(&a, data[0][t], out); print(out);
        one_step(&b, data[1][t], out); print(out);
        other_step(&c, data[0][t], out); print(out);
    }}
    printf("%s\\n%s\\n", one_model_id, other_model_id);
}}
"""
    *lines, first_id, second_id = build(tmp_path / "p", program, *files).splitlines()
    assert (
        first_id.startswith("one.nir sha256:")
        and second_id.startswith("other.nir sha256:")
        and first_id[4:] != second_id[6:]
    )
    printed = np.array([[int(digit) for digit in line] for line in lines]).reshape(20, 3, 3)
    for index, (path, run) in enumerate(((one, 0), (one, 1), (other, 0))):
        expected = simulate(compile_network(path, Options(quantize=True)), {"input": data[run][None]}).outputs[
            "output"
        ][0]
        np.testing.assert_array_equal(printed[:, index], expected)
    assert printed.any()


HOSTILE = [
    "int",
    "0",
    "a.b",
    "double",
    "template",
    "x* y",
    'q"uo\\te',
    "ünï",
    "-",
    "state",
    "in",
    "snn_network",
    "%s%n",
    "i",
    "v",
    "size_t",
]


@pytest.mark.parametrize("quantize", [False, True], ids=["float", "int8"])
def test_hostile_names(tmp_path: Path, quantize: bool) -> None:
    """Every node of a chain has a name that is no C identifier, or one that is taken."""
    nodes: dict[str, Any] = {"float": terminal("Input", 2), "while": terminal("Output", 2)}
    names = ["float"]
    for index, name in enumerate(HOSTILE):
        nodes[name] = lif(2) if index % 2 else {"type": "Linear", "weight": np.eye(2)}
        names.append(name)
    names.append("while")
    path = write_nir(tmp_path / "net.nir", nodes, list(itertools.pairwise(names)))
    files = generated(path, tmp_path, quantize=quantize)
    for file in files:
        subprocess.run(["gcc", "-O1", *WARNINGS, *EXACT, "-c", file, "-o", tmp_path / "out.o"], check=True)
    report = json.loads((tmp_path / "snn_network.json").read_text())
    assert {layer["node"] for layer in report["layers"]} == set(names)


@pytest.mark.parametrize(
    ("one", "other", "c_name"),
    [("a.b", "a_b", "a_b_v"), ("a b", "a.b", "a_b_v"), ("0", "n0", "n0_v"), ("ä", "ö", "n__v")],
)
def test_names_that_collide(tmp_path: Path, one: str, other: str, c_name: str) -> None:
    nodes = {"input": terminal("Input", 1), "output": terminal("Output", 1), one: lif(1), other: lif(1)}
    path = write_nir(tmp_path / "net.nir", nodes, [("input", one), (one, other), (other, "output")])
    with pytest.raises(Refused) as caught:
        generate(path, tmp_path / "out")
    first = "?" if not one.isascii() else one
    assert str(caught.value) == (
        f"{path}: {other}: its name in C, {c_name}, is also that of node '{first}'; rename one of the two nodes"
    )
    assert not (tmp_path / "out").exists()


def test_several_terminals(tmp_path: Path) -> None:
    """Inputs then outputs, each in name order; macros carry the terminal's name; types follow what an Output carries."""
    files = generated(two_ends(tmp_path / "net.nir"), tmp_path, quantize=True)
    program = """
#include <stdio.h>
#include "snn_network.h"
int main(void)
{
    snn_network_state net;
    const int8_t left[SNN_NETWORK_LEFT_SIZE] = {1, 0, 1};
    const int8_t right[SNN_NETWORK_RIGHT_SIZE] = {1, 1};
    int8_t echo[SNN_NETWORK_ECHO_SIZE];
    int32_t vote[SNN_NETWORK_VOTE_SIZE];
    snn_network_init(&net);
    snn_network_step(&net, left, right, echo, vote);
    printf("%d %d %d, %d at %d %d\\n", echo[0], echo[1], echo[2], (int)vote[0], SNN_NETWORK_ECHO_FRAC_BITS, SNN_NETWORK_VOTE_FRAC_BITS);
}
"""
    assert build(tmp_path / "p", program, *files) == f"1 0 1, {int(5.75 * 4096)} at 0 12\n"


@pytest.mark.parametrize("quantize", [False, True], ids=["float", "int8"])
def test_a_network_without_state(tmp_path: Path, quantize: bool) -> None:
    nodes = {
        "input": terminal("Input", 2),
        "output": terminal("Output", 1),
        "fc": {"type": "Linear", "weight": np.array([[1.0, -2.0]])},
    }
    path = write_nir(tmp_path / "net.nir", nodes, [("input", "fc"), ("fc", "output")])
    files = generated(path, tmp_path, quantize=quantize)
    program = """
#include <stdio.h>
#include "snn_network.h"
int main(void)
{
    snn_network_state net;
    const snn_network_input_t in[2] = {1, 1};
    snn_network_output_t out[1];
    snn_network_init(&net);
    snn_network_step(&net, in, out);
    printf("%g\\n", (double)out[0]);
}
"""
    assert build(tmp_path / "p", program, *files) == ("-4096\n" if quantize else "-1\n")


def test_header_is_for_its_reader(tmp_path: Path) -> None:
    generate(two_layers(tmp_path / "net.nir"), tmp_path, Options(quantize=True, name="gesture"))
    header = (tmp_path / "gesture.h").read_text()
    for line in (
        " * gesture.h: spiking neural network, generated by snn-builder",
        " *   fc1     Affine 6 -> 5, int8 weights, scale 2^-7",
        " *   lif1    LIF 5, decay 0.9, threshold 1",
        " *   output  3 x int8, spikes (0 or 1)",
        " * int8 weights, Q12 state, dt = 0.001, reset to v_reset, event-driven kernel.",
        "#define GESTURE_INPUT_SIZE 6",
        "#define GESTURE_OUTPUT_SIZE 3",
        "#define GESTURE_STATE_BYTES 32",
        "void gesture_step(gesture_state *state, const gesture_input_t *in, gesture_output_t *out);",
    ):
        assert line in header, line
    assert "sha256" not in header.replace("and sha256", "")


def test_float_weights_come_back_to_the_bit(tmp_path: Path) -> None:
    weight = RNG.standard_normal((3, 200)).astype(np.float32)
    weight[0, :4] = [0.1, 1e-40, -3.4028235e38, 1 / 3]  # among them a denormal and the largest
    path = chain(tmp_path / "net.nir", weight, {"type": "I", "r": np.ones(3)})
    files = generated(path, tmp_path, kernel="dense")
    program = """
#include <stdio.h>
#include "snn_network.h"
extern const float snn_network_fc_w[3][200];
int main(void)
{
    for (int i = 0; i < 3; i++) for (int j = 0; j < 200; j++) printf("%a\\n", (double)snn_network_fc_w[i][j]);
}
"""
    printed = np.array([float.fromhex(line) for line in build(tmp_path / "p", program, *files).split()], np.float32)
    np.testing.assert_array_equal(printed.view(np.uint32), weight.reshape(-1).view(np.uint32))


def test_an_unreached_node_is_left_out(tmp_path: Path) -> None:
    nodes = {"input": terminal("Input", 1), "output": terminal("Output", 1), "n": lif(1), "dead": lif(1)}
    path = write_nir(tmp_path / "net.nir", nodes, [("input", "n"), ("n", "output"), ("n", "dead")])
    generate(path, tmp_path)
    report = json.loads((tmp_path / "snn_network.json").read_text())
    assert report["left_out"] == ["dead"] and "dead" not in (tmp_path / "snn_network.h").read_text()
    assert [(item["level"], item["node"]) for item in report["findings"]] == [("warning", ""), ("warning", "dead")]
