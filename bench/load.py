# SPDX-License-Identifier: Apache-2.0
"""How much faster the compiled network is on this machine than the NumPy reference.

    python -m bench.load net.nir input.npy [--kernel event] [--dt S]

Prints one row per mode: microseconds of processor time per step, the least of several runs, and their ratio. Both are checked to
give the same bits.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import snn_builder
from snn_builder.data import load_inputs
from snn_builder.options import FORMS, KERNELS, RESETS
from snn_builder.pipeline import compile_network
from snn_builder.reference import simulate


def least(run: Callable[[], Any], times: int) -> tuple[float, Any]:
    """Seconds of processor time, and what `run` returned."""
    best, result = float("inf"), None
    for _ in range(times):
        start = time.process_time()
        result = run()
        best = min(best, time.process_time() - start)
    return best, result


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("network")
    parser.add_argument("input")
    parser.add_argument("--kernel", choices=KERNELS, default="event")
    parser.add_argument("--form", choices=FORMS, default=snn_builder.Options().form)
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
        reference, expected = least(lambda program=program, inputs=inputs: simulate(program, inputs).outputs, 2)
        compiled, found = least(lambda net=net, inputs=inputs: net.run(inputs), 10)
        found = found if isinstance(found, dict) else {next(iter(net.outputs)): found}
        for name, values in expected.items():
            assert np.array_equal(values.view(np.uint8), found[name].view(np.uint8)), f"{name} differs"
        mode = "int8" if quantize else "float"
        per = 1e6 / (samples * steps)
        print(f"{mode:6}{reference * per:12.1f}{compiled * per:12.1f}{reference / compiled:8.0f}")


if __name__ == "__main__":
    main()
