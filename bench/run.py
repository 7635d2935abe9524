# SPDX-License-Identifier: Apache-2.0
"""What a step costs: `python bench/run.py [--quick] [-o DIR]`, a table on stdout and DIR/bench.json (default: build/bench).

On RV32IMC (the xheep board in its emulator) instructions per step and per synaptic event, code and RAM; on x86-64 the time of a step of
the column form as a ratio to a fixed hand-written row-major dot product over the same weights, both in one run of one program.
"""

from __future__ import annotations

import argparse
import itertools
import json
import platform
import re
import shutil
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

import board_images  # noqa: E402
from support import terminal, write_nir  # noqa: E402

from snn_builder.c import emit_c  # noqa: E402
from snn_builder.emulator import emulator  # noqa: E402
from snn_builder.errors import Findings  # noqa: E402
from snn_builder.exporter import texts  # noqa: E402
from snn_builder.exporter.layout import lay_out  # noqa: E402
from snn_builder.lowering import lower  # noqa: E402
from snn_builder.names import CNames  # noqa: E402
from snn_builder.network import Conv, Linear  # noqa: E402
from snn_builder.options import Options  # noqa: E402
from snn_builder.pipeline import compile_network  # noqa: E402
from snn_builder.program import Program  # noqa: E402
from snn_builder.reference import Simulation, simulate  # noqa: E402

DENSITIES = (0.5, 2, 8, 25, 50, 100)  # percent of the inputs that spike
STEPS = 10
TOOLCHAINS = ("gcc", "zig")
X86 = ["-O3", "-march=x86-64-v3", "-g0", "-ffp-contract=off", "-DSNN_FP_CONTRACT_OFF", "-std=c11"]
CORPUS = ROOT.parent / "shared" / "corpus"
OWN = ("oxford", "scnn_mnist")  # networks of the corpus, where it is, with their own input
WINDOWS = ("scnn_mnist",)  # networks with convolutions: on RV32 only, the dense kernel beside the event kernel


# -- Networks -----------------------------------------------------------------------------------------------------------------


def layers(path: Path, sizes: list[int], spread: float, kind: str, seed: int) -> Path:
    """Linear and neuron layers with seeded weights; the spread decides how often hidden neurons spike."""
    rng = np.random.default_rng(seed)
    dt = 1e-3
    nodes: dict[str, dict[str, Any]] = {"input": terminal("Input", sizes[0])}
    edges, last = [], "input"
    for index, (inputs, outputs) in enumerate(itertools.pairwise(sizes), 1):
        ones = np.ones(outputs)
        membrane, synapse = dt / (1 - 0.9), dt / (1 - 0.8)
        fields = {"r": ones * membrane / dt, "v_leak": 0 * ones, "v_threshold": ones, "v_reset": 0 * ones}
        if kind == "CubaLIF":
            fields |= {"tau_mem": ones * membrane, "tau_syn": ones * synapse, "w_in": ones * synapse / dt}
        else:
            fields["tau"] = ones * membrane
        nodes[f"fc{index}"] = {"type": "Linear", "weight": rng.normal(0, spread, (outputs, inputs)).astype(np.float32)}
        nodes[f"lif{index}"] = {"type": kind, **fields}
        edges += [(last, f"fc{index}"), (f"fc{index}", f"lif{index}")]
        last = f"lif{index}"
    nodes["output"] = terminal("Output", sizes[-1])
    return write_nir(path, nodes, [*edges, (last, "output")], {"dt": dt})


def networks(folder: Path) -> dict[str, Path]:
    """The networks of the table, by name."""
    found = {
        "digits": ROOT / "models" / "digits" / "digits.nir",
        "784-128-10": layers(folder / "lif128.nir", [784, 128, 10], 0.065, "LIF", 1),
        "784-256-10": layers(folder / "lif256.nir", [784, 256, 10], 0.065, "LIF", 2),
        "200-256-200": layers(folder / "cuba.nir", [200, 256, 200], 0.06, "CubaLIF", 3),
    }
    return found | {name: CORPUS / name / f"{name}.nir" for name in OWN if CORPUS.is_dir()}


def inputs_of(name: str, program: Program) -> Iterator[tuple[str, np.ndarray]]:
    """Random spikes of each density, and a network's own data; of a convolutional one that alone, and thinned to 2 %."""
    (given,) = program.network.terminals("Input")
    if name in WINDOWS:
        own = np.load(CORPUS / name / "input.npy")[None].astype(np.float32)
        yield "2 %", own * (np.random.default_rng(2).random(own.shape) < 0.02 / np.mean(own != 0))
        yield "own", own
        return
    for density in DENSITIES:
        rng = np.random.default_rng(7)
        yield f"{density:g} %", (rng.random((1, STEPS, *given.shape)) < density / 100).astype(np.float32)
    if name == "oxford":
        yield "own", np.load(CORPUS / name / "input.npy")[None, :50]


# -- RV32 ---------------------------------------------------------------------------------------------------------------------


def sources(program: Program, folder: Path) -> list[Path]:
    """Generates a network into a folder; the C files to compile."""
    folder.mkdir(parents=True, exist_ok=True)
    name, files = program.options.name, texts(program, Findings(program.network.file))
    files[f"{name}.c"] = emit_c(lower(files[f"{name}.mlir"]))
    for file, text in files.items():
        folder.joinpath(file).write_text(text)
    return [folder / f"{name}.c", folder / f"{name}_weights.c"]


def main_text(program: Program, data: np.ndarray) -> str:
    """A program that runs a network on baked data and prints instructions and a hash of what came out."""
    (given,) = lay_out(program, CNames(program.network.file)).inputs
    (out,) = lay_out(program, CNames(program.network.file)).outputs
    rows = ",\n".join("{" + ",".join(map(str, row)) + "}" for row in data.reshape(len(data), -1).tolist())
    return f"""
#include "board.h"
#include "snn_network.h"
static const snn_network_input_t in[{len(data)}][{given.shape[0]}] = {{{rows}}};
static snn_network_state net;
static snn_network_output_t out[{out.shape[0]}];
int main(void);
int main(void)
{{
    uint32_t cycles = 0, hash = 2166136261u;
    board_init();
    snn_network_init(&net);
    for (int t = 0; t < {len(data)}; t++) {{
        const uint32_t begin = board_cycles();
        snn_network_step(&net, in[t], out);
        cycles += board_cycles() - begin;
        for (int i = 0; i < {out.shape[0]}; i++) hash = (hash ^ (uint32_t)out[i]) * 16777619u;
    }}
    for (int i = 28; i >= 0; i -= 4) board_putc("0123456789abcdef"[(cycles >> i) & 15u]);
    for (int i = 28; i >= 0; i -= 4) board_putc("0123456789abcdef"[(hash >> i) & 15u]);
    board_exit(0);
}}
"""


def fnv(values: np.ndarray) -> int:
    """FNV-1a over values as 32-bit words, as the program computes it."""
    found = 2166136261
    for value in values.reshape(-1).tolist():
        found = ((found ^ (int(value) & 0xFFFFFFFF)) * 16777619) & 0xFFFFFFFF
    return found


def events_of(program: Program, result: Simulation) -> tuple[float, dict[str, float]]:
    """Synaptic events per step, 0 where convolutions make them hard to count, and the rate at which each source of a Linear spikes."""
    total, rates = 0.0, {}
    for node in program.network.nodes.values():
        if isinstance(node, Linear):
            (source,) = program.network.predecessors(node.name)
            fired = result.trace[source] != 0
            rates[source] = float(fired.mean())
            total += float(fired.reshape(*fired.shape[:2], -1).sum(2).mean()) * node.weight.shape[0]
    windows = any(isinstance(node, Conv) for node in program.network.nodes.values())
    return 0.0 if windows else total, rates


def on_rv32(program: Program, data: np.ndarray, folder: Path, toolchain: str, stack: bool = True) -> dict[str, Any]:
    """Instructions per step, checked against the reference; bytes of kernel code and of RAM."""
    (given,) = program.network.terminals("Input")
    result = simulate(program, {given.name: data}, trace=True)
    files = sources(program, folder)
    (folder / "main.c").write_text(main_text(program, result.inputs[0]))
    board = board_images.board("xheep")
    elf = board_images.build(
        board, [folder / "main.c", *files], folder, toolchain, include=[folder], cflags=["-O2"],
        defsyms={"RAM_SIZE": 512 * 1024}, needs_runtime=not program.options.quantize,
    )  # fmt: skip
    done = emulator(board, elf, ram="512k", limit=20_000_000_000).run()
    assert done is not None
    text = bytes(done.output).decode()
    (output,) = result.outputs.values()
    if int(text[8:], 16) != fnv(output) and program.options.quantize:
        raise SystemExit(f"{program.network.file}: the kernel does not compute what the reference does")
    steps = data.shape[1]
    total, rates = events_of(program, result)
    instructions = int(text[:8], 16) / steps
    return {
        "instructions_per_step": round(instructions, 1),
        "synaptic_events_per_step": round(total, 1),
        "instructions_per_event": round(instructions / total, 2) if total else None,
        "rates": {name: round(rate, 4) for name, rate in rates.items()},
        "state_bytes": lay_out(program, CNames(program.network.file)).state_bytes,
        "stack_bytes": done.stack,
        "code_bytes": code_bytes(files[0], toolchain),
    }


def code_bytes(file: Path, toolchain: str) -> int:
    """Code and constants of the kernel, without weights."""
    from elftools.elf.elffile import ELFFile

    board = board_images.board("xheep")
    tools = board.toolchain(toolchain)
    driver = [*board_images._ZIG, "cc"] if toolchain == "zig" else [str(tools.compiler())]
    target = file.with_suffix(".o")
    subprocess.run([*driver, *board.cflags, *tools.cflags, "-c", str(file), "-o", str(target)], check=True)
    with target.open("rb") as stream:
        return sum(section["sh_size"] for section in ELFFile(stream).iter_sections() if section["sh_flags"] & 2)


# -- x86-64 -------------------------------------------------------------------------------------------------------------------

TIMING = """
#define _POSIX_C_SOURCE 199309L
#include <stdio.h>
#include <string.h>
#include <time.h>
#include "snn_network.h"
#define STEPS {steps}
#define ROUNDS {rounds}
static snn_network_input_t in[STEPS][{inputs}];
static snn_network_state net;
static snn_network_output_t out[{outputs}];
extern const int8_t baseline_w1[{hidden}][{inputs}], baseline_w2[{outputs}][{hidden}];
void baseline_step(int32_t *v1, int32_t *v2, const int8_t *x, int8_t *spikes);
static int32_t v1[{hidden}], v2[{outputs}];
static int8_t spikes[{outputs}];
static double now(void)
{{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}}
int main(void)
{{
    if (fread(in, 1, sizeof in, stdin) != sizeof in) return 1;
    for (int run = 0; run < 20; run++) {{
        snn_network_init(&net);
        memset(v1, 0, sizeof v1);
        memset(v2, 0, sizeof v2);
        const double a = now();
        for (int r = 0; r < ROUNDS; r++) for (int t = 0; t < STEPS; t++) snn_network_step(&net, in[t], out);
        const double b = now();
        for (int r = 0; r < ROUNDS; r++) for (int t = 0; t < STEPS; t++) baseline_step(v1, v2, in[t], spikes);
        const double c = now();
        if ({checked} && memcmp(out, spikes, sizeof spikes)) return 2;
        printf("%.1f %.1f\\n", (b - a) / (STEPS * ROUNDS), (c - b) / (STEPS * ROUNDS));
    }}
    return 0;
}}
"""

# What one would write first: a dot product per neuron, in row-major order, over all inputs.
BASELINE = """
#include <stdint.h>
extern const int8_t baseline_w1[{hidden}][{inputs}], baseline_w2[{outputs}][{hidden}];
void baseline_step(int32_t *v1, int32_t *v2, const int8_t *x, int8_t *spikes);
void baseline_step(int32_t *v1, int32_t *v2, const int8_t *x, int8_t *spikes)
{{
    int8_t fired[{hidden}];
    for (int o = 0; o < {hidden}; o++) {{
        int32_t sum = 0;
        for (int i = 0; i < {inputs}; i++) sum += baseline_w1[o][i] * x[i];
        const int32_t v = (int32_t)(((int64_t)v1[o] * {decay1}) >> 12) + sum * {scale1};
        fired[o] = v > {threshold1};
        v1[o] = fired[o] ? 0 : v;
    }}
    for (int o = 0; o < {outputs}; o++) {{
        int32_t sum = 0;
        for (int i = 0; i < {hidden}; i++) sum += baseline_w2[o][i] * fired[i];
        const int32_t v = (int32_t)(((int64_t)v2[o] * {decay2}) >> 12) + sum * {scale2};
        spikes[o] = v > {threshold2};
        v2[o] = spikes[o] ? 0 : v;
    }}
}}
"""


def on_x86(program: Program, folder: Path, toolchain: str, density: float, rounds: int) -> dict[str, float]:
    """Median time of a step in ns: ours, and the baseline's, which is Linear, LIF, Linear, LIF. Where the network is that too, both must
    give the same spikes; where it has biases or synaptic currents, the baseline leaves these out and has only the same products."""
    steps = 32
    first, second = program.synapses["fc1"], program.synapses["fc2"]
    (hidden, inputs), outputs = first.weight.shape, second.weight.shape[0]
    sizes = {"inputs": inputs, "hidden": hidden, "outputs": outputs, "steps": steps, "rounds": rounds}
    plain = all(synapse.bias is None for synapse in (first, second)) and program.neurons["lif1"].cur_decay is None
    sizes["checked"] = int(plain)
    for index, synapse in ((1, first), (2, second)):
        neuron = program.neurons[f"lif{index}"]
        assert neuron.threshold is not None
        sizes[f"decay{index}"], sizes[f"threshold{index}"] = int(neuron.decay[0]), int(neuron.threshold[0])
        sizes[f"scale{index}"] = 1 << (12 - synapse.w_scale)
    files = sources(program, folder)
    (folder / "timing.c").write_text(TIMING.format(**sizes))
    (folder / "baseline.c").write_text(BASELINE.format(**sizes))
    weights = ["#include <stdint.h>"]
    for name, values in (("baseline_w1", first.weight), ("baseline_w2", second.weight)):
        extents = "".join(f"[{n}]" for n in values.shape)
        rows = ",\n".join("{" + ",".join(map(str, row)) + "}" for row in values.tolist())
        weights.append(f"extern const int8_t {name}{extents};\nconst int8_t {name}{extents} = {{{rows}}};")
    (folder / "weights.c").write_text("\n".join(weights) + "\n")
    driver = [*board_images._ZIG, "cc"] if toolchain == "zig" else [toolchain]
    flags = [flag.replace("-march=x86-64-v3", "-mcpu=x86_64_v3") if toolchain == "zig" else flag for flag in X86]
    listed = [str(path) for path in (*files, *(folder / f"{part}.c" for part in ("timing", "baseline", "weights")))]
    subprocess.run([*driver, *flags, *listed, "-o", str(folder / "timing")], check=True)
    spikes = (np.random.default_rng(11).random((steps, inputs)) < density / 100).astype(np.int8)
    done = subprocess.run([folder / "timing"], input=spikes.tobytes(), capture_output=True, check=True)
    pairs = [tuple(map(float, line.split())) for line in done.stdout.decode().splitlines()]
    ours, theirs = (statistics.median(column) for column in zip(*pairs, strict=True))
    ratio = statistics.median(theirs / ours for ours, theirs in pairs)
    return {"event_ns": ours, "baseline_ns": theirs, "ratio": round(ratio, 2)}


# -- All of it ----------------------------------------------------------------------------------------------------------------


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("-o", dest="out", type=Path, default=ROOT / "build" / "bench")
    parser.add_argument("--quick", action="store_true", help="one density, one toolchain")
    chosen = parser.parse_args()
    chosen.out.mkdir(parents=True, exist_ok=True)
    known = board_images.board("xheep").toolchains
    toolchains = [name for name in TOOLCHAINS if known[name].compiler()]
    report: dict[str, list[dict[str, Any]]] = {"rv32": [], "x86": []}
    print(
        f"{'network':12} {'kernel':6} {'input':>6} {'tools':5} {'instr/step':>12} {'/event':>7} {'code':>6} {'state':>6} "
        f"{'stack':>6}  rates"
    )
    kernels = [(name, nir, kernel) for name, nir in networks(chosen.out).items() for kernel in ("event", "dense")]
    for name, nir, kernel in kernels:
        if kernel == "dense" and name not in WINDOWS:
            continue
        options = Options(quantize=True, kernel=kernel)
        program = compile_network(nir, options, Findings(nir))
        for label, data in inputs_of(name, program):
            if chosen.quick and label not in ("8 %", "own"):
                continue
            for toolchain in toolchains[: 1 if chosen.quick else None]:
                folder = chosen.out / re.sub(r"\W", "", f"{name}{label}{toolchain}{kernel}")
                row = on_rv32(program, data, folder, toolchain)
                report["rv32"].append(
                    {"network": name, "kernel": kernel, "input": label, "toolchain": toolchain, **row}
                )
                print(
                    f"{name:12} {kernel:6} {label:>6} {toolchain:5} {row['instructions_per_step']:>12,.1f} "
                    f"{row['instructions_per_event'] or 0:>7.2f} {row['code_bytes']:>6} {row['state_bytes']:>6} "
                    f"{row['stack_bytes']:>6}  {row['rates']}",
                    flush=True,
                )
    print(
        f"\n{'network':12} {'input':>6} {'tools':5} {'event ns':>9} {'baseline':>9} {'ratio':>6}   x86-64, {' '.join(X86[:2])}"
    )
    hosts = [name for name in TOOLCHAINS if platform.machine() == "x86_64" and (name == "zig" or shutil.which(name))]
    if not hosts:
        print("not measured: this is no x86-64")
    for name, nir in networks(chosen.out).items() if hosts else ():
        if name in WINDOWS:
            continue
        program = compile_network(nir, Options(quantize=True, kernel="event", form="column"), Findings(nir))
        for density in (5, *DENSITIES) if not chosen.quick else (5, 50):
            for toolchain in hosts:
                folder = chosen.out / re.sub(r"\W", "", f"x86{name}{toolchain}")
                times = on_x86(program, folder, toolchain, density, 20 if chosen.quick else 100)
                report["x86"].append({"network": name, "density": density, "toolchain": toolchain, **times})
                print(
                    f"{name:12} {density:>4g} % {toolchain:5} {times['event_ns']:>9.0f} {times['baseline_ns']:>9.0f} "
                    f"{times['ratio']:>6.1f}",
                    flush=True,
                )
    (chosen.out / "bench.json").write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
