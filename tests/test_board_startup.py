# SPDX-License-Identifier: Apache-2.0
"""What the bare-metal boards do before main, at a trap and at the end: looked at from outside, with noise in RAM."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from board_images import BOARDS, ROOT, TOOLCHAINS, board, build, copy_of

from snn_builder.boards import load
from snn_builder.emulator import Emulator, emulator, run
from snn_builder.image import Image, check, read

PROGRAM = """
#include "board.h"
int main(void);
_Noreturn void deliberate(void);
volatile uint32_t data[3] = {0x11223344, 2, 3};
volatile uint32_t one = 1;
volatile uint8_t zeros[4097];
static const uint32_t constant[2] = {7, 8};

__attribute__((noinline)) _Noreturn void deliberate(void) { __asm__ volatile(".globl trapped\\ntrapped:\\n\\t" ILLEGAL); for (;;) {} }

int main(void)
{
    uint32_t sum = constant[one];
    for (unsigned i = 0; i < 4097; i++) sum += zeros[i];
    data[0]++;
    one = 1;
    zeros[5] = 6;
    if (TRAP) deliberate();
    board_init();
    for (const char *c = "started\\n"; *c != 0; c++) board_putc(*c);
    return (int)(sum + data[1]);
}
"""
ILLEGAL = {"xheep": ".word 0xffffffff", "x86": "ud2"}
both = pytest.mark.parametrize(
    ("name", "toolchain"), [(name, toolchain) for name in BOARDS for toolchain in TOOLCHAINS]
)


def program(name: str, folder: Path, toolchain: str, trap: bool = False, **more: object) -> Path:
    defines = [f"-DTRAP={int(trap)}", f'-DILLEGAL="{ILLEGAL[name]}"']
    return build(board(name), PROGRAM, folder, toolchain, cflags=defines, **more)  # type: ignore[arg-type]


def value(image: Image, symbol: str) -> int:
    found = image.symbol(symbol)
    assert found is not None, symbol
    return found


def at_main(name: str, elf: Path) -> tuple[Emulator, Image]:
    image = read(elf)
    machine = emulator(board(name), elf)
    assert machine.run(until=value(image, "main")) is None
    return machine, image


@both
def test_layout(name: str, toolchain: str, tmp_path: Path) -> None:
    image = read(program(name, tmp_path, toolchain))
    check(image)
    assert [(s.writable, s.executable) for s in image.segments] == [(False, True), (True, False)]
    sections = [".init", ".text", ".rodata", ".data", ".bss"]
    assert [s.name for s in image.sections] == ([".vectors", *sections] if name == "xheep" else sections)
    assert value(image, "__stack_top") % 16 == 0
    assert value(image, "__stack_bottom") - value(image, "__bss_end") < 16
    if name == "xheep":
        assert image.entry == value(image, "_start") == 0x180
        assert value(image, "vectors") == 0
        assert value(image, "__stack_top") == 65536
        assert image.sections[0].size == 0x180
    else:
        header = elf_words(tmp_path / "firmware.elf").index(0x1BADB002)
        assert 4 * header < 8192
        assert sum(elf_words(tmp_path / "firmware.elf")[header : header + 3]) % 2**32 == 0


def elf_words(elf: Path) -> list[int]:
    content = elf.read_bytes()
    return [int.from_bytes(content[i : i + 4], "little") for i in range(0, min(len(content), 65536), 4)]


@both
def test_memory_at_main(name: str, toolchain: str, tmp_path: Path) -> None:
    machine, image = at_main(name, program(name, tmp_path, toolchain))
    memory = machine.engine.mem_read
    start, end, bottom, top = (value(image, s) for s in ("__bss_start", "__bss_end", "__stack_bottom", "__stack_top"))
    assert end - start >= 4097
    assert bytes(memory(start, end - start)) == bytes(end - start)
    data, one = value(image, "data"), value(image, "one")
    assert bytes(memory(data, 12)) == bytes.fromhex("443322110200000003000000")
    assert bytes(memory(one, 4)) == b"\x01\0\0\0"
    # what lies behind .bss is as it was: only what start-up pushed has changed
    base, sp = machine.machine.ram_base, machine.processor.sp
    assert bottom < sp <= top and top - sp < 64
    assert bytes(memory(end, sp - end)) == machine._noise[end - base : sp - base]
    assert (sp + (4 if name == "x86" else 0)) % 16 == 0  # x86: at the call, before the return address


@pytest.mark.parametrize("toolchain", TOOLCHAINS)
def test_reset_without_loading(toolchain: str, tmp_path: Path) -> None:
    """On X-HEEP a reset is enough to run a program again: .data is copied."""
    machine, image = at_main("xheep", program("xheep", tmp_path, toolchain))
    result = machine.run()
    assert result is not None and result.exit_code == 10
    assert bytes(machine.engine.mem_read(value(image, "data"), 4)) == bytes.fromhex("45332211")
    machine.devices.exit_code = None
    machine._next = 0x180
    assert machine.run(until=value(image, "main")) is None
    assert bytes(machine.engine.mem_read(value(image, "data"), 4)) == bytes.fromhex("44332211")
    assert bytes(machine.engine.mem_read(value(image, "zeros") + 5, 1)) == b"\0"


@both
def test_end(name: str, toolchain: str, tmp_path: Path) -> None:
    """What main returns is the exit code; noise in RAM makes no difference."""
    elf = program(name, tmp_path, toolchain)
    results = [run(board(name), elf, seed=seed) for seed in (0, 1)]
    assert results[0] == results[1]
    assert (results[0].exit_code, results[0].output) == (10, b"started\n")


@both
def test_trap_is_reported(name: str, toolchain: str, tmp_path: Path) -> None:
    """Even before board_init, and with a stack that is broken."""
    elf = program(name, tmp_path, toolchain, trap=True)
    result = run(board(name), elf)
    place = value(read(elf), "trapped")
    text = {
        "xheep": f"\ntrap mcause=00000002 mepc={place:08x} mtval=ffffffff\n",
        "x86": f"\ntrap vector=00000006 error=00000000 eip={place:08x}\n",
    }[name]
    assert (result.output.decode(), result.exit_code) == (text, 2)


@pytest.mark.parametrize("toolchain", TOOLCHAINS)
def test_xheep_frequency_and_uart(toolchain: str, tmp_path: Path) -> None:
    machine = emulator(board("xheep"), program("xheep", tmp_path, toolchain))
    machine.run()
    assert machine.devices.values["soc_ctrl.frequency"] == 100_000_000
    assert machine.devices.values["uart.ctrl"] == 2684 << 16 | 3  # floor(256000 * 2^20 / 100 MHz)


@pytest.mark.parametrize("toolchain", TOOLCHAINS)
def test_xheep_loops_are_aligned(toolchain: str, tmp_path: Path) -> None:
    """Loop heads lie on multiples of 4, whatever comes before: an unaligned 32-bit branch target costs a cycle."""
    loop = """
        n = 10;
        __asm__ volatile("nop");
        do { __asm__ volatile(".globl head#\\nhead#:\\n\\tnop" : "+r"(n)); } while (--n != 0);
    """
    loops = "".join(loop.replace("#", str(i)) for i in range(4))
    text = f"#include <stdint.h>\nint main(void);\nint main(void) {{ uint32_t n; {loops} return 0; }}"
    elf = build(board("xheep"), text, tmp_path, toolchain, cflags=["-O2"])  # as networks, not as the harness
    assert [value(read(elf), f"head{i}") % 4 for i in range(4)] == [0] * 4
    assert run(board("xheep"), elf).exit_code == 0


@pytest.mark.parametrize("ram", ["64k", "96k", "512k"])
def test_xheep_ram(ram: str, tmp_path: Path) -> None:
    size = board("xheep").options["ram"].values[ram]
    elf = program("xheep", tmp_path, "zig", defsyms={"RAM_SIZE": size})
    assert value(read(elf), "__stack_top") == size
    assert run(board("xheep"), elf, ram=ram).exit_code == 10
    assert run(board("xheep"), elf).exit_code == 10  # the image says for how much it was linked


def test_board_copied_out_of_the_repository(tmp_path: Path) -> None:
    """A fourth board needs nothing but its directory."""
    fourth = load(copy_of("xheep", tmp_path / "elsewhere"))
    assert fourth.name == "fourth" and ROOT not in fourth.path.parents
    defines = ["-DTRAP=0", f'-DILLEGAL="{ILLEGAL["xheep"]}"']
    elf = build(fourth, PROGRAM, tmp_path / "build", cflags=defines)
    assert run(fourth, elf).exit_code == 10


def test_board_with_another_clock(tmp_path: Path) -> None:
    """The example in docs/boards/adding-a-board.md, whose lines replace those that begin like them."""
    example = (ROOT / "docs" / "boards" / "adding-a-board.md").read_text().split("```python\n")[1].split("```")[0]
    path = copy_of("xheep", tmp_path)
    text = (path / "board.py").read_text()
    lines = [line for line in example.splitlines() if line.strip()]
    assert len(lines) == 3
    for line in lines:
        begin = re.match(r" *[^ ]+ ", line)
        assert begin is not None
        text, found = re.subn(f"(?m)^{re.escape(begin[0])}.*$", line, text)
        assert found == 1, line
    (path / "board.py").write_text(text)
    elf = build(load(path), PROGRAM, tmp_path / "build", cflags=["-DTRAP=0", '-DILLEGAL=".word 0"'])
    machine = emulator(load(path), elf)
    result = machine.run()
    assert result is not None and result.exit_code == 10
    assert machine.devices.values["soc_ctrl.frequency"] == 20_000_000
    assert machine.devices.values["uart.ctrl"] >> 16 == 6039  # floor(115200 * 2^20 / 20 MHz)
    assert value(read(elf), "__stack_top") == 128 * 1024


@pytest.mark.parametrize("toolchain", TOOLCHAINS)
@pytest.mark.parametrize("trap", [False, True])
def test_x86_boots_in_qemu(toolchain: str, trap: bool, tmp_path: Path) -> None:
    qemu = shutil.which("qemu-system-i386")
    if qemu is None:
        pytest.skip("qemu-system-i386 is not installed: apt-get install qemu-system-x86")
    elf = program("x86", tmp_path, toolchain, trap)
    command = [qemu, "-kernel", str(elf), "-display", "none", "-serial", "stdio", "-no-reboot"]
    command += ["-device", "isa-debug-exit,iobase=0xf4,iosize=0x04"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=60)
    result = run(board("x86"), elf)
    assert done.stdout == result.output
    assert done.returncode == 2 * result.exit_code + 1 == (5 if trap else 21)


@pytest.mark.parametrize("toolchain", TOOLCHAINS)
def test_the_last_bit_leaves_before_the_exit(toolchain: str, tmp_path: Path) -> None:
    """Without its waits, board_exit is refused: so they are there, and the emulator looks."""
    source = (ROOT / "boards" / "xheep" / "uart.c").read_text()
    for line, problem in (
        (r" *while \(\(UART_STATUS & STATUS_TX_IDLE\) == 0\) \{\}\n", "still sending"),
        (r" *while \(board_cycles\(\) - start < CYCLES_PER_BIT\) \{\}\n", "before the last bit"),
        (r" *while \(\(UART_STATUS & STATUS_TX_FULL\) != 0\) \{\}\n", "transmitter was full"),
    ):
        without, found = re.subn(line, "    (void)0;\n", source)
        assert found == 1
        without = without.replace("const uint32_t start", "const uint32_t start __attribute__((unused))")
        text = """
        #include "board.h"
        int main(void);
        int main(void) { board_init(); for (int i = 0; i < 40; i++) board_putc('x'); return 0; }
        """
        elf = build(board("xheep"), text, tmp_path / problem.split()[0], toolchain, sources={"uart.c": without})
        with pytest.raises(Exception, match=problem):
            run(board("xheep"), elf)
