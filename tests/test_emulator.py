# SPDX-License-Identifier: Apache-2.0
"""The emulators: exact counts, and errors where hardware would go wrong silently."""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from board_images import BOARDS, ROOT, board, build, copy_of, scratch
from unicorn import UC_HOOK_CODE

from snn_builder import emulator as emulators
from snn_builder.boards import load
from snn_builder.emulator import Emulator, Result, emulator, run
from snn_builder.emulator.machine import describe
from snn_builder.errors import Refused, Unreadable
from snn_builder.image import read

# One program for all: the UART says what it is to do wrong.
PROGRAM = """
#include "board.h"
#define ACCESS(label, access, address) \\
    __asm__ volatile("nop\\n.globl " label "\\n" label ": " access "\\n\\tnop" : : "r"(address) : SCRATCH, "memory")
int main(void);
void say(const char *text);
void wide(void);
extern volatile uint32_t data_word, results[4096];
volatile uint32_t data_word = 5;
volatile uint32_t results[4096];
static const uint32_t constant = 1;

void say(const char *text) { while (*text != 0) board_putc(*text++); }
__attribute__((noinline)) void wide(void)
{
    volatile uint8_t frame[FRAME];
    __asm__ volatile("" : : "r"(frame) : "memory");
    say("wide");
    frame[FRAME - 1] = 1;
}

static uint32_t work(uint32_t n)
{
    uint32_t sum = 0;
    for (uint32_t i = 0; i < n; i++) sum += (i & 7) == 3 ? i * i : i / 3;
    return sum;
}

int main(void)
{
    const int what = board_getc();
    volatile uint32_t *const outside = (volatile uint32_t *)(uintptr_t)0x70000000;
    if (what == 'b') board_putc('x');
    board_init();
    say("ready\\n");
    switch (what) {
    case 'r': ACCESS("bad_read", LOAD, outside); break;
    case 'w': ACCESS("bad_write", STORE, outside); break;
    case 'c': ACCESS("code_write", STORE, &constant); break;
    case 'j': ((void (*)(void))(uintptr_t)&data_word)(); break;
    case 'J': ((void (*)(void))(uintptr_t)outside)(); break;
    case 's': wide(); break;
    case 'l': for (;;) __asm__ volatile("");
    case 'h': __asm__ volatile(STOP); break;
    case 'i': results[0] = (uint32_t)board_getc(); results[1] = (uint32_t)board_getc(); say("\\n"); return (int)(results[0] + results[1]);
    case 'm': *(volatile uint32_t *)((uintptr_t)results + 1) = 0x01020304; return *((volatile uint8_t *)results + 1);
    case 'n': return -1;
    case 't': {
        const uint32_t start = board_cycles();
        results[0] = board_cycles() - start;
        results[1] = work(1000);
        results[2] = board_cycles() - start;
        for (uint32_t value = results[2], i = 0; i < 8; i++) board_putc("0123456789abcdef"[value >> (28 - 4 * i) & 15]);
        return (int)results[0];
    }
    default: MORE
    }
    return 0;
}
"""
MORE = {
    "xheep": """
    if (what == 'u') ACCESS("device_write", STORE, (uintptr_t)0x30080020);
    if (what == 'U') ACCESS("device_read", LOAD, (uintptr_t)0x20000008);
    if (what == 'e') *(volatile uint32_t *)(uintptr_t)0x20000000 = 1;
    if (what == 'x') __asm__ volatile("csrr a0, 0xc00");
    if (what == 'E') __asm__ volatile("ecall");
    if (what == 'B') __asm__ volatile("ebreak");
    if (what == 'I') __asm__ volatile(".half 0");
    """,
    "x86": """
    if (what == 'u') ACCESS("device_write", "outb %%al, $0x80", 0);
    if (what == 'U') ACCESS("device_read", "inb $0x60, %%al", 0);
    if (what == 'D') __asm__ volatile("xorl %%ecx, %%ecx; divl %%ecx" : : : "eax", "ecx", "edx");
    if (what == 'B') __asm__ volatile("int3");
    if (what == 'G') __asm__ volatile("movw %0, %%ds" : : "r"((uint16_t)0x123));
    """,
}
STOP = {"xheep": "wfi", "x86": "hlt"}
DEFINES = {
    "xheep": ['-DLOAD="lw t0, 0(%0)"', '-DSTORE="sw zero, 0(%0)"', '-DSCRATCH="t0"'],
    "x86": ['-DLOAD="movl (%0), %%eax"', '-DSTORE="movl $0, (%0)"', '-DSCRATCH="eax"'],
}
FRAME = {"xheep": 55_000, "x86": (31 << 20) - 10_000}  # from the end of RAM into .bss


@functools.cache
def image(name: str, n: int = 1000) -> Path:
    """One image per board for all tests."""
    text = PROGRAM.replace("MORE", MORE[name]).replace("STOP", f'"{STOP[name]}"').replace("work(1000)", f"work({n})")
    return build(board(name), text, scratch() / f"{name}{n}", "zig", cflags=[*DEFINES[name], f"-DFRAME={FRAME[name]}"])


def refusal(name: str, what: bytes, **settings: Any) -> str:
    with pytest.raises(Refused) as error:
        run(board(name), image(name), input=what, **settings)
    return str(error.value).removeprefix(f"{image(name)}: ")


def place(function: str) -> str:
    return rf"0x[0-9a-f]{{8}} \({function}(\+0x[0-9a-f]+)?\): "


def at(name: str, label: str) -> str:
    address = read(image(name)).symbol(label)
    assert address is not None
    return f"{read(image(name)).place(address)}: "


AFTER = "; the last line sent was 'ready'"


@pytest.mark.parametrize("name", BOARDS)
def test_memory(name: str) -> None:
    outside = f"at 0x70000000, outside of RAM and devices{AFTER}"
    assert refusal(name, b"r") == f"{at(name, 'bad_read')}read 4 bytes {outside}"
    assert refusal(name, b"w") == f"{at(name, 'bad_write')}wrote 4 bytes {outside}"
    constant = "0x[0-9a-f]{8}"
    assert re.fullmatch(
        f"{re.escape(at(name, 'code_write'))}wrote 4 bytes to code, at {constant}{AFTER}", refusal(name, b"c")
    )
    data = f"0x{read(image(name)).symbol('data_word'):08x}"
    assert refusal(name, b"j") == f"{data}: executed what is not code{AFTER}"
    assert re.fullmatch(f"{place('main')}jumped to 0x70000000, outside of RAM{AFTER}", refusal(name, b"J"))


@pytest.mark.parametrize("name", BOARDS)
def test_stack(name: str) -> None:
    problem = r"moved the stack pointer to 0x([0-9a-f]{8}), out of the stack"
    found = re.fullmatch(place("(say|wide)") + problem + "; the last line sent was 'w'", refusal(name, b"s"))
    assert found is not None
    start, bottom = (read(image(name)).symbol(symbol) for symbol in ("__bss_start", "__stack_bottom"))
    assert start is not None and bottom is not None and start < int(found[3], 16) < bottom


@pytest.mark.parametrize("name", BOARDS)
def test_no_exit(name: str) -> None:
    found = re.fullmatch(
        rf"{place('main')}did not end within ([0-9,]+) instructions{AFTER}", refusal(name, b"l", limit=50_000)
    )
    assert found is not None and 50_000 < int(found[2].replace(",", "")) < 50_100
    stop = STOP[name]
    assert re.fullmatch(
        f"{place('main')}{stop} without an exit: nothing would wake the processor{AFTER}", refusal(name, b"h")
    )


@pytest.mark.parametrize("name", BOARDS)
def test_devices(name: str) -> None:
    ports = {"xheep": ("0x30080020", "0x20000008"), "x86": ("0x00000080", "0x00000060")}[name]
    none = f", where this machine has no register{AFTER}"
    assert refusal(name, b"u") == f"{at(name, 'device_write')}wrote to {ports[0]}{none}"
    assert refusal(name, b"U") == f"{at(name, 'device_read')}read from {ports[1]}{none}"
    registers = {"xheep": "uart.wdata before uart.ctrl", "x86": "com1.data before com1.lcr"}[name]
    assert re.fullmatch(
        f"{place('.*')}wrote to {registers} enabled the UART; nothing had been sent", refusal(name, b"b")
    )
    if name == "xheep":
        text = f"{place('main')}wrote to soc_ctrl.exit_valid before the exit code{AFTER}"
        assert re.fullmatch(text, refusal(name, b"e"))


@pytest.mark.parametrize(("name", "what", "line"), [
    ("xheep", b"x", "mcause=00000002 mepc=PC mtval=c0002573"),
    ("xheep", b"I", "mcause=00000002 mepc=PC mtval=00000000"),
    ("xheep", b"E", "mcause=0000000b mepc=PC mtval=00000000"),
    ("xheep", b"B", "mcause=00000003 mepc=PC mtval=PC"),
    ("x86", b"D", "vector=00000000 error=00000000 eip=PC"),
    ("x86", b"B", "vector=00000003 error=00000000 eip=PC"),
    ("x86", b"G", "vector=0000000d error=00000000 eip=PC"),
])  # fmt: skip
def test_traps_go_to_the_handler(name: str, what: bytes, line: str) -> None:
    result = run(board(name), image(name), input=what)
    found = re.fullmatch("ready\n\ntrap " + line.replace("PC", "([0-9a-f]{8})") + "\n", result.output.decode())
    assert found is not None, result.output
    assert read(image(name)).place(int(found[1], 16)).endswith(")") and "main" in read(image(name)).place(
        int(found[1], 16)
    )
    assert len(set(found.groups())) == 1 and result.exit_code == 2


@pytest.mark.parametrize("name", BOARDS)
def test_misaligned_access_and_exit_code(name: str) -> None:
    assert run(board(name), image(name), input=b"m").exit_code == 4
    assert run(board(name), image(name), input=b"n").exit_code == -1


@pytest.mark.parametrize("name", BOARDS)
def test_uart_input(name: str) -> None:
    result = run(board(name), image(name), input=b"iAB")
    assert (result.exit_code, result.output) == (65 + 66, b"ready\n\n")


@pytest.mark.parametrize("name", BOARDS)
@pytest.mark.parametrize("what", [b"t", b"B", b"z", b"m"])
def test_counts(name: str, what: bytes) -> None:
    """By blocks in C, by blocks in Python, and one instruction after the other: the same."""
    fast = run(board(name), image(name), input=what, hook="c")
    slow = run(board(name), image(name), input=what, hook="python")
    assert (fast.hook, slow.hook) == ("c", "python")
    same = ("exit_code", "output", "instructions", "stack")
    assert [getattr(fast, field) for field in same] == [getattr(slow, field) for field in same]
    unfinished = name == "xheep" and what == b"B"  # ebreak does not end, int3 does
    assert fast.instructions == single_steps(name, what) - unfinished


def single_steps(name: str, what: bytes) -> int:
    """Instructions that began, as Unicorn's own hook sees them."""
    machine = emulator(board(name), image(name), input=what, hook="python")
    steps = 0

    def step(*_: object) -> None:
        nonlocal steps
        steps += 1

    machine.engine.hook_add(UC_HOOK_CODE, step)
    machine.run()
    return steps


@pytest.mark.parametrize("name", BOARDS)
def test_cycle_counter(name: str) -> None:
    """The counter is the number of instructions: what the program measures is what the emulator counts."""
    result = run(board(name), image(name), input=b"t")
    assert 1 <= result.exit_code < 10  # two readings in a row
    measured = int(result.output.decode().split()[-1], 16)
    spans = [run(board(name), image(name, n), input=b"t") for n in (1000, 1001)]
    inside = [int(r.output.decode().split()[-1], 16) for r in spans]
    assert inside[0] == measured
    assert inside[1] - inside[0] == spans[1].instructions - spans[0].instructions > 0


@pytest.mark.parametrize("name", BOARDS)
def test_a_breakpoint_changes_nothing(name: str) -> None:
    whole = run(board(name), image(name), input=b"t")
    machine = emulator(board(name), image(name), input=b"t")
    for function in ("main", "board_init", "board_putc"):
        assert machine.run(until=read(image(name)).symbol(function)) is None
    assert machine.run() == whole


def test_trap_before_mtvec(tmp_path: Path) -> None:
    """There the boot ROM would start again, without a word."""
    start = (ROOT / "boards" / "xheep" / "start.S").read_text()
    early, found = re.subn(r"_start:\n", "_start:\n    ecall\n", start)
    assert found == 1
    elf = build(board("xheep"), "int main(void);\nint main(void) { return 0; }", tmp_path, sources={"start.S": early})
    with pytest.raises(Refused) as error:
        run(board("xheep"), elf)
    problem = "0x00000180 (_start): ecall, and no handler: mtvec has not been set; nothing had been sent"
    assert str(error.value) == f"{elf}: {problem}"


def test_sse_has_to_be_enabled(tmp_path: Path) -> None:
    """Unicorn itself would not mind."""
    start = (ROOT / "boards" / "x86" / "start.S").read_text()
    without, found = re.subn(r"    movl %eax, %cr4\n", "", start)
    assert found == 1
    text = "int main(void);\nextern volatile float f;\nvolatile float f = 2;\nint main(void) { f = f + 0.5f; return (int)f; }"
    assert run(board("x86"), build(board("x86"), text, tmp_path / "with")).exit_code == 2
    result = run(board("x86"), build(board("x86"), text, tmp_path / "without", sources={"start.S": without}))
    assert result.output.startswith(b"\ntrap vector=00000006") and result.exit_code == 2


def test_where_no_compiler_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then Python counts."""
    from snn_builder.emulator import counter

    def refuse(target: Path) -> None:
        raise OSError("no compiler")

    monkeypatch.setattr(counter, "_compile", refuse)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert run(board("xheep"), image("xheep"), input=b"t").hook == "python"
    with pytest.raises(OSError, match="no compiler"):
        run(board("xheep"), image("xheep"), input=b"t", hook="c")


def test_hook_is_compiled_by_zig_where_there_is_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from snn_builder.emulator import counter

    monkeypatch.setenv(
        "ZIG_GLOBAL_CACHE_DIR", os.environ.get("ZIG_GLOBAL_CACHE_DIR", str(Path.home() / ".cache" / "zig"))
    )
    monkeypatch.setattr(counter.shutil, "which", lambda name: None)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert run(board("xheep"), image("xheep"), input=b"t").hook == "c"
    (library,) = (tmp_path / "snn-builder").iterdir()
    assert library.name.startswith("block_hook-")


def test_image_for_another_machine() -> None:
    with pytest.raises(
        Refused, match="is for x86, and the board's machine is riscv32; pass an image that was built for this board"
    ):
        run(board("xheep"), image("x86"))
    sound = read(image("xheep"))
    code, data = sound.segments
    unsound = dataclasses.replace(sound, segments=(dataclasses.replace(code, writable=True), data))
    with pytest.raises(Refused, match="the segment at 0x00000000 is writable and executable"):
        Emulator(describe(board("xheep")), unsound, 65536)
    with pytest.raises(Refused, match="not in RAM"):
        run(board("xheep"), image("xheep"), ram=str(0x1000))
    with pytest.raises(Unreadable, match="a RAM of 1000 bytes is no multiple of 4096; pass another size with --ram"):
        run(board("xheep"), image("xheep"), ram="1000")


@pytest.mark.parametrize(("change", "problem"), [
    ({"cpu": "z80"}, "emulator['cpu']: 'z80' is unknown; use riscv32 or x86"),
    ({"ram": {"base": 0}}, "emulator['ram']: 'size' is missing; set it as the other boards do"),
    ({"ram": {"base": 0, "size": "rom"}}, "emulator['ram']['size']: 'rom' is unknown; use ram"),
    ({"entry": "main"}, "emulator['entry']: is 'main', not a number of 32 bits; write a whole number"),
    ({"uarts": {}}, "emulator: unknown key 'uarts'; did you mean uart?"),
    ({"registers": {}}, "emulator['registers']: has no register with \"write\": \"exit\"; say how a program ends"),
    ({"registers": {"a": {"at": 4, "write": "exit"}, "b": {"at": 4}}},
     "emulator['registers']['b']: is at 0x4 like a; correct one of the addresses"),
    ({"registers": {"a": {"at": 4, "writes": "exit"}}},
     "emulator['registers']['a']: unknown key 'writes'; did you mean write?"),
    ({"uart": {"enabled_by": ["ctrl", 1]}}, "emulator['uart']['enabled_by']: 'ctrl' is unknown; use "),
    ({"csrs": {0xB00: "time"}}, "emulator['csrs'][0xb00]: 'time' is unknown; use cycles, cycles_high, stored or illegal"),
])  # fmt: skip
def test_descriptions_are_checked(change: dict[str, Any], problem: str, tmp_path: Path) -> None:
    path = copy_of("xheep", tmp_path)
    with (path / "board.py").open("a") as stream:
        stream.write(f"\nemulator.update({change!r})\n")
    with pytest.raises(Unreadable) as error:
        describe(load(path))
    assert str(error.value).startswith(f"{path / 'board.py'}: {problem}")


def command(*words: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    code = (
        "import argparse, sys\nfrom snn_builder import emulator, errors\np = argparse.ArgumentParser()\n"
        "emulator.add_arguments(p)\ntry:\n    sys.exit(emulator.main(p.parse_args()))\n"
        "except errors.SnnError as e:\n    print(f'error: {e}', file=sys.stderr)\n    sys.exit(e.status)\n"
    )
    return subprocess.run([sys.executable, "-c", code, *words], input=stdin, capture_output=True, cwd=ROOT, timeout=60)


def test_command(tmp_path: Path) -> None:
    path = str(ROOT / "boards" / "xheep")
    stats = tmp_path / "stats.json"
    done = command(path, str(image("xheep")), "--stats", str(stats), stdin=b"iAB")
    assert (done.stdout, done.returncode, done.stderr) == (b"ready\n\n", 65 + 66, b"")
    said = json.loads(stats.read_text())
    assert said["exit_code"] == 131 and said["hook"] == "c"
    result = run(board("xheep"), image("xheep"), input=b"iAB")
    assert (said["instructions"], said["stack"]) == (result.instructions, result.stack)
    done = command(path, str(image("xheep")), "--ram", "128k", stdin=b"m")
    assert re.fullmatch(rb"[0-9,]+ instructions, [0-9,]+ bytes of stack, exit code 4\n", done.stderr)
    assert command(path, str(image("xheep")), stdin=b"n").returncode == 255
    done = command(path, str(image("xheep")), stdin=b"r")
    assert done.returncode == 1 and done.stdout == b"ready\n" and done.stderr.startswith(b"error: ")
    done = command(path, str(image("xheep")), "--ram", "63k")
    assert done.returncode == 2 and done.stderr.startswith(b"error: --ram 63k is no size; use 64k, ")
    done = command(path, str(tmp_path / "none.elf"))
    assert done.returncode == 2 and done.stderr.startswith(f"error: {tmp_path / 'none.elf'}: cannot be read".encode())


def test_result_is_plain() -> None:
    assert Result(0, b"", 1, None, "c").exit_code == 0
    assert set(emulators.__all__) >= {"run", "add_arguments", "main"}
