# SPDX-License-Identifier: Apache-2.0
"""How much faster the compiled network is on this machine than the NumPy reference.

    python -m bench.load net.nir input.npy [--kernel event] [--dt S]

Prints one row per mode: microseconds of processor time per step, the medians of several rounds in which both run, and the median of
their ratios. Both are checked to give the same bits.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import snn_builder
from snn_builder.data import load_inputs
from snn_builder.options import FORMS, KERNELS, RESETS
from snn_builder.pipeline import compile_network
from snn_builder.reference import simulate

ROUNDS = 9
RUNS = 20  # of what is compiled, in a round: one is too short to be timed


def timed(run: Callable[[], Any], times: int) -> tuple[float, Any]:
    """Seconds of processor time for one run, and what `run` returned."""
    result = run()
    start = time.process_time()
    for _ in range(times):
        result = run()
    return (time.process_time() - start) / times, result


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("network")
    parser.add_argument("input")
    parser.add_argument("--kernel", choices=KERNELS, default="event")
    parser.add_argument("--form", choices=FORMS, default="column")
    parser.add_argument("--reset", choices=RESETS, default="zero")
    parser.add_argument("--dt", type=float)
    chosen = parser.parse_args()
    print(f"{'mode':6}{'reference':>12}{'compiled':>12}{'ratio':>8}   us per step, {chosen.kernel} kernel")
    for quantize in (False, True):
        words = {
            "quantize": quantize,
            "dt": chosen.dt,
            "reset": chosen.reset,
            "kernel": chosen.kernel,
            "form": chosen.form,
        }
        program = compile_network(chosen.network, snn_builder.Options(**words))
        inputs, _ = load_inputs(chosen.input, program.network)
        samples, steps = next(iter(inputs.values())).shape[:2]
        net = snn_builder.load(chosen.network, **words)
        rows = []
        for _ in range(ROUNDS):
            slow, expected = timed(lambda program=program, inputs=inputs: simulate(program, inputs).outputs, 1)
            fast, found = timed(lambda net=net, inputs=inputs: net.run(inputs), RUNS)
            rows.append((slow, fast, slow / fast))
        reference, compiled, ratio = (statistics.median(column) for column in zip(*rows, strict=True))
        found = found if isinstance(found, dict) else {next(iter(net.outputs)): found}
        for name, values in expected.items():
            assert np.array_equal(values.view(np.uint8), found[name].view(np.uint8)), f"{name} differs"
        mode = "int8" if quantize else "float"
        per = 1e6 / (samples * steps)
        print(f"{mode:6}{reference * per:12.1f}{compiled * per:12.1f}{ratio:8.0f}")


if __name__ == "__main__":
    main()
