# SPDX-License-Identifier: Apache-2.0
"""`generate --layout xheep`: the network as an application of X-HEEP's own build, a folder below sw/applications."""

from __future__ import annotations

import os
import re
from pathlib import Path

from . import __version__
from .errors import Unreadable
from .exporter.header import INTERFACE
from .exporter.layout import C_TYPES, Layout, Variable
from .names import mangle
from .options import Options

MAIN = "main.c"
KINDS = ("freertos", "coremark")  # their CMakeLists.txt builds a project with such a name in another way


def check_folder(out: str | os.PathLike[str], options: Options) -> None:
    """Raises `Unreadable` where X-HEEP's build would not find the application, or take it for another kind."""
    folder = Path(os.path.abspath(out)).name
    if not re.fullmatch(r"[A-Za-z0-9_-]+", folder) or any(kind in folder.lower() for kind in KINDS):
        raise Unreadable(
            out,
            "",
            f"'{folder}' cannot name an X-HEEP application",
            f"use letters, digits, - and _ for the folder, without {' or '.join(KINDS)}",
        )
    if options.name == "main":
        raise Unreadable("", "", "name 'main' is taken by the application's main.c", "pass another --name")


def application(layout: Layout, options: Options) -> str:
    """main.c: runs the network on made-up input, and prints the class that it sees through their printf."""
    name, prefix = options.name, options.name.upper()
    total = "int64_t" if options.quantize else "float"
    inputs, outputs = layout.inputs, layout.outputs
    arguments = ", ".join(["&net", *(variable.name for variable in (*inputs, *outputs))])
    lines = [
        "/* SPDX-License-Identifier: CC0-1.0 */",
        f"/* An application for X-HEEP: runs the network {name} and prints the class that it sees. Made by snn-builder {__version__}.",
        " * This file is yours: it is made once, and left alone when the network is generated again. */",
        "#include <stdint.h>",
        "#include <stdio.h>",
        "#include <stdlib.h>",
        "",
        '#include "csr.h"',
        f'#include "{name}.h"',
        "",
        f"#if {prefix}_INTERFACE != {INTERFACE}",
        f'#error "{name}.h has another interface than this file was made for"',
        "#endif",
        "",
        "#define STEPS 32",
        "",
        f"static {name}_state net;",
        *(f"static {name}_input_t {v.name}[{_size(prefix, v, inputs, 'INPUT')}];" for v in inputs),
        *(
            f"static {C_TYPES[v.element]} {v.name}[{_size(prefix, v, outputs, 'OUTPUT')}];\n"
            f"static {total} {v.name}_sum[{_size(prefix, v, outputs, 'OUTPUT')}];"
            for v in outputs
        ),
        "",
        "/* Your sensor goes here: fills one input for one step. Until then one value in ten is a spike. */",
        f"static void read_sensor({name}_input_t *values, int size)",
        "{",
        "    static uint32_t random = 1;",
        "    for (int i = 0; i < size; i++) {",
        "        random = random * 1664525u + 1013904223u;",
        "        values[i] = (random >> 16) % 10 == 0 ? 1 : 0;",
        "    }",
        "}",
        "",
        "/* The class: the output with the largest sum over all steps, the lowest where several have it. */",
        f"static int largest(const {total} *sums, int size)",
        "{",
        "    int best = 0;",
        "    for (int i = 1; i < size; i++)",
        "        if (sums[i] > sums[best]) best = i;",
        "    return best;",
        "}",
        "",
        "int main(void)",
        "{",
        "    unsigned int start, end, cycles = 0;",
        "",
        "    CSR_CLEAR_BITS(CSR_REG_MCOUNTINHIBIT, 0x1); /* let mcycle count */",
        f"    {name}_init(&net);",
        "    for (int step = 0; step < STEPS; step++) {",
        *(f"        read_sensor({v.name}, {_size(prefix, v, inputs, 'INPUT')});" for v in inputs),
        "        CSR_READ(CSR_REG_MCYCLE, &start);",
        f"        {name}_step({arguments});",
        "        CSR_READ(CSR_REG_MCYCLE, &end);",
        "        cycles += end - start;",
        *(
            f"        for (int i = 0; i < {_size(prefix, v, outputs, 'OUTPUT')}; i++) {v.name}_sum[i] += {v.name}[i];"
            for v in outputs
        ),
        "    }",
        *(
            f'    printf("{v.name}: class %d\\n", largest({v.name}_sum, {_size(prefix, v, outputs, "OUTPUT")}));'
            for v in outputs
        ),
        '    printf("%u cycles per step\\n", cycles / STEPS);',
        "    return EXIT_SUCCESS;",
        "}",
    ]
    return "\n".join(lines) + "\n"


def _size(prefix: str, variable: Variable, variables: list[Variable], word: str) -> str:
    return f"{prefix}_{word if len(variables) == 1 else mangle(variable.node).upper()}_SIZE"
