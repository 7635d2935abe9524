# SPDX-License-Identifier: Apache-2.0
"""A PC without an operating system: docs/boards/x86.md."""

description = "PC, bare metal: 32-bit, multiboot, COM1, ends by QEMU's debug-exit port"
sources = ["start.S", "uart.c"]
linker_script = "link.ld"

asflags = ["-g0"]
cflags = ["-O2", "-g0", "-ffreestanding", "-ffunction-sections", "-fdata-sections"]
cflags += ["-fno-asynchronous-unwind-tables", "-fno-pic", "-fno-stack-protector", "-fcf-protection=none"]
cflags += ["-ffp-contract=off", "-DSNN_FP_CONTRACT_OFF"]
uart_baud = 115200

_link = ["--gc-sections", "--fatal-warnings", "--orphan-handling=error"]
_zig = ["-target", "x86-freestanding-none", "-mcpu=pentium4"]  # the oldest with SSE2

toolchains = {
    "zig": {
        "cc": ["zig"],
        "cflags": [*_zig, "-fstack-size-section"],
        "asflags": _zig,
        "link": "ld.lld -m elf_i386",
        "linkflags": _link,
        "compiler_rt": _zig,
        "install": "pip install ziglang",
    },
    "gcc": {
        "cc": ["i686-linux-gnu-gcc", "gcc"],
        "cflags": ["-m32", "-march=pentium4", "-msse2", "-mfpmath=sse", "-fstack-usage"],
        "asflags": ["-m32"],
        # no -lgcc: most hosts have only the 64-bit one, and networks need nothing of it
        "linkflags": ["-m32", "-nostdlib", "-static", "-no-pie", "-Wl,--build-id=none", *(f"-Wl,{f}" for f in _link)],
        "install": "apt-get install gcc",
    },
}
run = "emulator"

# snn_builder/emulator/machine.py says what these mean.
emulator = {
    "cpu": "x86",
    "ram": {"base": 0x100000, "size": 31 << 20},
    "registers": {
        "com1.data": {"at": 0x3F8, "write": "send", "read": "receive", "plain_while": ["com1.lcr", 0x80]},
        "com1.ier": {"at": 0x3F9},
        "com1.fcr": {"at": 0x3FA},
        "com1.lcr": {"at": 0x3FB},
        "com1.mcr": {"at": 0x3FC},
        "com1.lsr": {"at": 0x3FD, "bits": {"rx_ready": 0, "tx_empty": 5, "tx_idle": 6}},
        "debug_exit": {"at": 0xF4, "write": "exit"},
    },
    "uart": {"fifo": 16, "enabled_by": ["com1.lcr", 3]},
}
