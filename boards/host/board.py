# SPDX-License-Identifier: Apache-2.0
"""The machine that builds, as a board: a native program."""

description = "a native program; its UART is stdin and stdout"
sources = ["uart.c"]
cflags = ["-O2", "-g0", "-ffp-contract=off", "-DSNN_FP_CONTRACT_OFF"]
form = "column"  # its compilers vectorise
toolchains = {
    "gcc": {"cc": ["gcc"], "install": "apt-get install gcc"},
    "clang": {"cc": ["clang"], "install": "apt-get install clang"},
    # baseline: the same program whatever processor compiles it, as the other two do by themselves
    "zig": {
        "cc": ["zig"],
        "cflags": ["-mcpu=baseline"],
        "linkflags": ["-mcpu=baseline"],
        "install": "pip install ziglang",
    },
}
