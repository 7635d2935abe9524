# SPDX-License-Identifier: Apache-2.0
"""What takes the bytes of an image."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from support import ROOT, chain, lif

from snn_builder.__main__ import main
from snn_builder.api import generate
from snn_builder.elf import footprint
from snn_builder.errors import Unreadable
from snn_builder.harness import bake
from snn_builder.options import Options


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """int8, 10 inputs, 3 neurons with a threshold each: 30 bytes of weights, a table of 12, 12 bytes of state."""
    folder = tmp_path_factory.mktemp("image")
    net = chain(folder / "net.nir", np.full((3, 10), 0.3), lif(3, v_threshold=np.array([1.0, 0.5, 0.25])))
    generate(net, folder, Options(name="gesture", quantize=True, kernel="dense"))
    bake(net, folder, Options(name="gesture", quantize=True, kernel="dense"))
    sources = ["gesture.c", "gesture_weights.c", "baked.c", "baked_check.s"]
    board = [ROOT / "firmware" / "main.c", ROOT / "boards" / "host" / "uart.c"]
    include = [f"-I{folder}", f"-I{ROOT / 'firmware'}"]
    subprocess.run(
        ["gcc", "-O2", *include, *(folder / name for name in sources), *board, "-o", folder / "firmware.elf"],
        check=True,
    )
    return folder / "firmware.elf"


def test_stack_as_the_compiler_tells(image: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """GCC in a file of its own; by default it tells nothing, and that is no 0. What the image does not hold does not count."""
    assert footprint(image).stack is None and footprint(image).frames == {}
    assert main(["size", str(image), "--budget-stack", "1M"]) == 1
    assert "stack: the compiler did not say what the network takes; compile with -f" in capsys.readouterr().err
    for file in (image, image.parent / "gesture.json"):
        shutil.copy(file, tmp_path)
    copy, told = tmp_path / image.name, tmp_path / "gesture.su"
    told.write_text(
        "gesture.c:9:6:gesture_init\t16\tstatic\ngesture.c:61:6:gesture_step\t208\tstatic\nx.c:1:1:gone\t9\tstatic\n"
    )
    assert footprint(copy).frames == {"gesture_step": 208, "gesture_init": 16} and footprint(copy).stack == 208
    assert main(["size", str(copy), "--budget-stack", "208"]) == 0
    assert capsys.readouterr().out.endswith("  on the stack: gesture_step 208, gesture_init 16\n")
    assert main(["size", str(copy), "--budget-stack", "200"]) == 1
    assert capsys.readouterr().err == (
        f"error: {copy}: stack: 208 bytes, 8 more than the budget of 200: gesture_step 208, gesture_init 16; "
        "make what is largest smaller, or raise the budget\n"
    )
    command = [
        "gcc",
        "-O2",
        "-fstack-usage",
        f"-I{image.parent}",
        "-c",
        image.parent / "gesture.c",
        "-o",
        tmp_path / "gesture.o",
    ]
    subprocess.run(command, check=True)
    assert set(footprint(copy).frames) == {"gesture_step", "gesture_init"}


def test_parts(image: Path) -> None:
    found = footprint(image)
    assert found.parts["weights"] == (30, 0)
    assert found.parts["states"] == (0, 12)
    assert found.parts["tables"][0] >= 12  # with the model's id
    assert found.parts["kernel"][0] > 50 and found.parts["harness"][0] > 200
    assert found.flash == found.sizes.text + found.sizes.rodata + found.sizes.data
    assert found.ram == found.sizes.data + found.sizes.bss
    assert found.memory is None and found.percent is None
    assert all(flash >= 0 and ram >= 0 for flash, ram in found.parts.values())


def test_command(image: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["size", "--json", str(image)]) == 0
    (row,) = json.loads(capsys.readouterr().out).values()
    assert row["parts"]["weights"] == {"flash": 30, "ram": 0} and row["flash"] == footprint(image).flash
    assert main(["size", str(image)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == str(image) and [line.split()[0] for line in lines[2:]] == [
        "weights", "tables", "kernel", "states", "harness", "other", "stack", "all",
    ]  # fmt: skip
    assert lines[2].split() == ["weights", "30", "0"]


def test_a_file_that_is_no_image(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("hello")
    with pytest.raises(Unreadable) as caught:
        footprint(tmp_path / "x")
    assert str(caught.value) == f"{tmp_path / 'x'}: not an ELF file; pass an image, firmware.elf"
