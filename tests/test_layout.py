# SPDX-License-Identifier: Apache-2.0
"""Where the generated files go in somebody else's firmware: X-HEEP's application folders, sections of the user's choice."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from compiled import EXACT, WARNINGS
from elftools.elf.elffile import ELFFile
from support import ROOT, chain, lif, terminal, write_nir

from snn_builder.__main__ import main

MODEL = ROOT / "models" / "digits" / "digits.nir"
RV32 = [sys.executable, "-m", "ziglang", "cc", "-target", "riscv32-freestanding-none", "-mcpu=generic_rv32+m+c"]
WITH_GCC = pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed: apt-get install gcc")

# What main.c takes from X-HEEP's library and from newlib.
STUBS = {
    "csr.h": "#define CSR_REG_MCYCLE 0xB00\n#define CSR_REG_MCOUNTINHIBIT 0x320\n"
    "#define CSR_READ(register, into) (*(into) = 0u)\n#define CSR_CLEAR_BITS(register, bits) ((void)0)\n",
    "stdio.h": "int printf(const char *format, ...);\n",
    "stdlib.h": "#define EXIT_SUCCESS 0\n",
}


def stubs(folder: Path, *names: str) -> str:
    folder.mkdir(exist_ok=True)
    for name in names:
        (folder / name).write_text(STUBS[name])
    return f"-I{folder}"


def two_ends(path: Path) -> Path:
    nodes = {
        "left": terminal("Input", 2), "right": terminal("Input", 2), "a": terminal("Output", 2), "b": terminal("Output", 2),
        "fc": {"type": "Linear", "weight": np.eye(2)}, "n": lif(2),
    }  # fmt: skip
    return write_nir(path, nodes, [("left", "fc"), ("fc", "a"), ("right", "n"), ("n", "b")])


@WITH_GCC
@pytest.mark.parametrize("quantize", [False, True], ids=["float", "int8"])
@pytest.mark.parametrize("ends", [1, 2])
def test_xheep_application(tmp_path: Path, ends: int, quantize: bool) -> None:
    """One main.c and what it needs, clean on 64 and on 32 bits; it runs."""
    net = MODEL if ends == 1 else two_ends(tmp_path / "net.nir")
    app = tmp_path / "sw" / "applications" / "gesture-1"
    words = ["generate", str(net), "--layout", "xheep", "-o", str(app), "--name", "gesture"]
    assert main(words + ["--quantize"] * quantize) == 0
    assert sorted(f.name for f in app.iterdir()) == [
        "gesture.c",
        "gesture.h",
        "gesture.json",
        "gesture_weights.c",
        "main.c",
    ]
    sources = sorted(app.glob("*.c"))
    subprocess.run(
        ["gcc", *WARNINGS, *EXACT, "-fsanitize=undefined", stubs(tmp_path / "host", "csr.h"), *sources, "-o", tmp_path / "app"], check=True
    )  # fmt: skip
    printed = subprocess.run([tmp_path / "app"], check=True, capture_output=True, text=True).stdout
    classes = r"out: class \d\n" if ends == 1 else r"out_a: class [01]\nout_b: class [01]\n"
    assert re.fullmatch(classes + r"0 cycles per step\n", printed)
    include = stubs(tmp_path / "newlib", *STUBS)
    for source in sources:
        subprocess.run(
            [*RV32, "-ffreestanding", *WARNINGS, include, "-c", source, "-o", tmp_path / "out.o"], check=True
        )


def test_main_of_an_application_is_the_users(tmp_path: Path) -> None:
    app = tmp_path / "gesture"
    words = ["generate", str(MODEL), "--layout", "xheep", "-o", str(app)]
    assert main(words) == 0
    (app / "main.c").write_text("mine")
    (app / "snn_network.c").write_text("mine")
    assert main(words) == 0
    assert (app / "main.c").read_text() == "mine" and (app / "snn_network.c").read_text() != "mine"


@pytest.mark.parametrize("folder", ["my app", "example_FreeRTOS_net", "coremark2", "a.b"])
def test_folders_that_xheep_takes_for_something_else(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, folder: str
) -> None:
    out = tmp_path / folder
    assert main(["generate", str(MODEL), "--layout", "xheep", "-o", str(out)]) == 2
    assert capsys.readouterr().err == (
        f"error: {out}: '{folder}' cannot name an X-HEEP application; use letters, digits, - and _ for the folder, without freertos or coremark\n"
    )
    assert not out.exists()


def test_main_is_taken(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    words = ["generate", str(MODEL), "--layout", "xheep", "-o", str(tmp_path / "app"), "--name", "main"]
    assert main(words) == 2 and "name 'main' is taken by the application's main.c" in capsys.readouterr().err


# -- Sections


def sections(file: Path) -> dict[str, str]:
    """Symbol of a constant -> section."""
    with file.open("rb") as stream:
        elf = ELFFile(stream)
        table = elf.get_section_by_name(".symtab")
        return {
            symbol.name: elf.get_section(symbol["st_shndx"]).name
            for symbol in table.iter_symbols()
            if symbol["st_info"]["type"] == "STT_OBJECT"
        }


COMPILERS = {
    "gcc": ["gcc", "-O2"],
    "zig": [sys.executable, "-m", "ziglang", "cc", "-g0", "-O2"],
    "rv32": [*RV32, "-g0", "-O2", "-ffreestanding"],
}


@WITH_GCC
@pytest.mark.parametrize("quantize", [False, True], ids=["float", "int8"])
def test_weights_go_where_they_are_told(tmp_path: Path, quantize: bool) -> None:
    net = chain(
        tmp_path / "net.nir", np.array([[0.5, 0.25], [1, 0.1]]), lif(2, v_threshold=np.array([1.0, 2.0])), np.ones(2)
    )
    words = ["generate", str(net), "--name", "gesture", *["--quantize"] * quantize, "-o"]
    assert main([*words, str(tmp_path / "plain")]) == 0
    assert main([*words, str(tmp_path / "placed"), "--weights-section", ".xheep_data_flash_only"]) == 0
    constants = {"gesture_fc_w", "gesture_fc_b", "gesture_neuron_threshold"}
    given = """-DGESTURE_WEIGHTS_SECTION=".mine\""""
    for compiler in COMPILERS.values():
        for folder, define, wanted in (
            ("plain", [], None), ("placed", [], ".xheep_data_flash_only"), ("plain", [given], ".mine"), ("placed", [given], ".mine"),
        ):  # fmt: skip
            for file in ("gesture_weights", "gesture"):
                source = tmp_path / folder / f"{file}.c"
                subprocess.run(
                    [*compiler, *WARNINGS, *EXACT, *define, "-c", source, "-o", tmp_path / f"{file}.o"], check=True
                )
            found = sections(tmp_path / "gesture_weights.o")
            assert {found[name] for name in constants} == {wanted} if wanted else "mine" not in str(found)
            assert found["gesture_model_id"].startswith((".rodata", ".srodata"))
    assert (
        json.loads((tmp_path / "placed" / "gesture.json").read_text())["options"]["weights_section"]
        == ".xheep_data_flash_only"
    )


@WITH_GCC
@pytest.mark.parametrize("compiler", COMPILERS.values(), ids=COMPILERS)
def test_the_state_lies_in_the_bank_that_the_user_names(tmp_path: Path, compiler: list[str]) -> None:
    """With the very line of docs/other-builds.md."""
    text = (ROOT / "docs" / "other-builds.md").read_text()
    (line,) = re.findall(r"^static __attribute__.*gesture_state net;.*$", text, re.MULTILINE)
    net = chain(tmp_path / "net.nir", np.array([[0.5, 0.25]]), lif(1))
    assert main(["generate", str(net), "--name", "gesture", "-o", str(tmp_path)]) == 0
    source = '#include "gesture.h"\n' + line + "\nvoid start(void);\nvoid start(void) { gesture_init(&net); }\n"
    for name, text in (("bank", source), ("anywhere", source.replace('__attribute__((section(".bank1")))', ""))):
        (tmp_path / f"{name}.c").write_text(text)
        command = [*compiler, *WARNINGS, *EXACT, f"-I{tmp_path}", "-c", f"{tmp_path}/{name}.c", "-o", tmp_path / name]
        subprocess.run(command, check=True)
    assert sections(tmp_path / "bank")["net"] == ".bank1"
    assert sections(tmp_path / "anywhere")["net"].startswith((".bss", ".sbss"))


def test_the_header_lists_the_options(tmp_path: Path) -> None:
    net = chain(tmp_path / "net.nir", np.array([[0.5]]), lif(1))
    words = ["--name", "gesture", "--quantize", "--reset", "subtract", "--input-scale", "2", "--weights-section", ".w"]
    assert main(["generate", str(net), "-o", str(tmp_path), *words]) == 0
    line = next(line for line in (tmp_path / "gesture.h").read_text().splitlines() if line.startswith(" * Options: "))
    listed = dict(part.split("=") for part in line.removeprefix(" * Options: ").split(", "))
    assert listed.items() >= {
        "name": "gesture", "quantize": "1", "dt": "0.001", "reset": "subtract", "kernel": "event", "input_scale": "2", "weights_section": ".w",
    }.items()  # fmt: skip


@pytest.mark.parametrize("name", ["", "1st", 'a"b', "a b", "a\\n", "a,b"])
def test_no_name_of_a_section(capsys: pytest.CaptureFixture[str], tmp_path: Path, name: str) -> None:
    assert main(["generate", str(MODEL), "-o", str(tmp_path / "out"), f"--weights-section={name}"]) == 2
    assert capsys.readouterr().err == (
        f"error: weights_section '{name}' cannot name a section; use letters, digits and . _ $ -, not a digit first\n"
    )
