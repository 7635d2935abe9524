# SPDX-License-Identifier: Apache-2.0
"""X-HEEP, an open RISC-V microcontroller: docs/boards/xheep.md."""

description = "X-HEEP microcontroller, bare metal: RV32IMC, 64 to 512 KiB of RAM"
sources = ["start.S", "uart.c"]
linker_script = "link.ld"

asflags = ["-g0"]
# -falign-loops: a branch to an unaligned 32-bit instruction costs a cycle more
cflags = ["-O2", "-g0", "-ffreestanding", "-ffunction-sections", "-fdata-sections", "-falign-loops=4"]
cflags += ["-fno-asynchronous-unwind-tables", "-ffp-contract=off", "-DSNN_FP_CONTRACT_OFF"]
_clock_hz = 100_000_000
firmware_cflags = ["-Os", f"-DBOARD_CLOCK_HZ={_clock_hz}"]
uart_baud = 256000  # what the UART of X-HEEP's testbench listens with

_link = ["--gc-sections", "--fatal-warnings", "--orphan-handling=error"]
_zig = ["-target", "riscv32-freestanding-none", "-mcpu=generic_rv32+m+c"]
_gcc = ["-march=rv32imc_zicsr", "-mabi=ilp32"]

toolchains = {
    "zig": {
        "cc": ["zig"],
        "cflags": [*_zig, "-fstack-size-section"],
        "asflags": _zig,
        "link": "ld.lld -m elf32lriscv",
        "linkflags": _link,
        "compiler_rt": _zig,
        "install": "pip install ziglang",
    },
    "gcc": {
        "cc": ["riscv32-unknown-elf-gcc", "riscv64-unknown-elf-gcc"],
        "cflags": [*_gcc, "-fstack-usage"],
        "asflags": _gcc,
        # with _zicsr the driver would take the libgcc of another architecture; -S: libgcc has debug sections
        "linkflags": ["-march=rv32imc", "-mabi=ilp32", "-nostdlib", "-static", "-Wl,-S", *(f"-Wl,{f}" for f in _link)],
        "libs": ["-lgcc"],
        "install": "apt-get install gcc-riscv64-unknown-elf",
    },
}

options = {
    "ram": {
        "default": "64k",
        "values": {f"{size}k": size * 1024 for size in range(64, 513, 32)},
        "help": "size of RAM: all banks of 32 KiB together",
        "defsym": "RAM_SIZE",
    },
}
run = "emulator"

# snn_builder/emulator/machine.py says what these mean.
emulator = {
    "cpu": "riscv32",
    "ram": {"base": 0x00000000, "size": "ram"},
    "entry": 0x180,
    "vectors": {"reset": 0x20010000, "align": 256},
    "csrs": {
        0x320: "stored",  # mcountinhibit
        0xB00: "cycles",
        0xB80: "cycles_high",
        **dict.fromkeys((0xC00, 0xC01, 0xC02, 0xC80, 0xC81, 0xC82), "illegal"),  # cycle, time, instret
    },
    "registers": {
        "soc_ctrl.exit_valid": {"at": 0x20000000, "write": "exit"},
        "soc_ctrl.exit_value": {"at": 0x20000004, "write": "exit_code"},
        "soc_ctrl.frequency": {"at": 0x2000001C, "reset": 1},
        "uart.ctrl": {"at": 0x3008000C},
        "uart.status": {
            "at": 0x30080010,
            "reset": 0x10,  # RXIDLE
            "bits": {"tx_full": 0, "tx_empty": 2, "tx_idle": 3, "rx_empty": 5},
        },
        "uart.rdata": {"at": 0x30080014, "read": "receive"},
        "uart.wdata": {"at": 0x30080018, "write": "send"},
        "uart.fifo_ctrl": {"at": 0x3008001C},
    },
    "uart": {"fifo": 32, "enabled_by": ["uart.ctrl", 1], "last_bit": _clock_hz // uart_baud},
}
