# SPDX-License-Identifier: Apache-2.0
"""Streaming: every step exactly once over lines that lose, double and change bytes, and what the user is told."""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scons_tree import SMALL, Tree, make_tree
from streamed import Faulty, image, native, network_sources
from support import ROOT, chain, lif, two_ends

from snn_builder import progress
from snn_builder.__main__ import main
from snn_builder.errors import Refused, SnnError, Unreadable
from snn_builder.options import Options
from snn_builder.pipeline import compile_network
from snn_builder.reference import simulate
from snn_builder.stream import Streamed, stream
from snn_builder.stream.board import pack
from snn_builder.stream.frames import Decoder, Frame, encode
from snn_builder.stream.ports import Port, ProcessPort, SerialPort

RNG = np.random.RandomState(11)
INTEGER = Options(quantize=True, dt=0.001)


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """20 -> 9 LIF neurons, whose state remembers long."""
    weights = np.random.RandomState(1).uniform(-0.6, 0.9, (9, 20))
    return chain(tmp_path_factory.mktemp("net") / "net.nir", weights, lif(9, tau=np.full(9, 0.05), r=np.full(9, 10.0)))


@pytest.fixture(scope="module")
def program(net: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("int8")
    return native(folder, network_sources(net, INTEGER, folder))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    np.save(tmp_path / "input.npy", (RNG.random_sample((3, 40, 20)) < 0.2).astype(np.int8))
    return tmp_path / "input.npy"


def emulate(name: str, elf: Path) -> ProcessPort:
    board = str(ROOT / "boards" / name)
    return ProcessPort(name, [sys.executable, "-m", "snn_builder", "emulate", board, str(elf)])


def exactly_once(net: Path, options: Options, port: Port, steps: int, patience: float, rate: float) -> None:
    """A run over a line with faults: the board has computed as many steps as were asked, and each gave what the reference says."""
    faulty = Faulty(port, seed=3, rate=rate)
    inputs = (RNG.random_sample((1, steps, 20)) < 0.2).astype(np.int8)
    program = compile_network(net, options)
    reference = simulate(program, {"input": inputs})
    expected = reference.outputs["output"][0]
    assert 0.05 < np.mean(expected) < 0.95
    with Streamed(faulty, patience) as board:
        found = np.stack([board.step(values, first=at == 0)[0] for at, values in enumerate(reference.inputs[0])])
        assert board.steps == steps  # and every answer's count, which the board keeps where it computes, was the same
    assert found.dtype == expected.dtype and np.array_equal(found, expected)
    assert all(count > steps / 200 for count in faulty.faults.values()), faulty.faults
    assert board.repeated > steps / 20


def test_ten_thousand_frames_over_a_bad_line(net: Path, program: Path) -> None:
    exactly_once(net, INTEGER, ProcessPort("native", [str(program)]), 10_000, patience=0.003, rate=0.0005)


@pytest.mark.parametrize(("name", "toolchain"), [("xheep", "zig"), ("xheep", "gcc"), ("x86", "zig")])
def test_a_bad_line_to_an_emulated_board(net: Path, name: str, toolchain: str, tmp_path: Path) -> None:
    elf = image(name, toolchain, tmp_path, network_sources(net, INTEGER, tmp_path))
    exactly_once(net, INTEGER, emulate(name, elf), 250, patience=0.02, rate=0.002)


def test_float_over_a_bad_line(net: Path, tmp_path: Path) -> None:
    options = Options(dt=0.001)
    program = native(tmp_path, network_sources(net, options, tmp_path))
    exactly_once(net, options, ProcessPort("native", [str(program)]), 300, patience=0.003, rate=0.002)


def test_the_checks_of_the_fault_run_can_fail(net: Path, tmp_path: Path) -> None:
    """A board that computes a repeated step again is found out, by its count."""
    main_c = (ROOT / "firmware" / "stream_main.c").read_text()
    wrong = main_c.replace(
        "    } else if (sequence == last && steps != 0) {\n",
        "    } else if (sequence == last && steps != 0) {\n        last--;\n        step(body);\n",
    )
    assert wrong != main_c
    (tmp_path / "stream_main.c").write_text(wrong)
    sources = network_sources(net, INTEGER, tmp_path)
    binary = tmp_path / "wrong"
    firmware = ROOT / "firmware"
    files = [tmp_path / "stream_main.c", firmware / "stream.c", *sources, ROOT / "boards" / "host" / "uart.c"]
    subprocess.run(["gcc", "-O1", f"-I{firmware}", f"-I{tmp_path}", *map(str, files), "-o", str(binary)], check=True)
    with pytest.raises(Refused, match=r"it has computed \d+ steps, not \d+"):
        exactly_once(net, INTEGER, ProcessPort("native", [str(binary)]), 2000, patience=0.003, rate=0.0005)


# -- What is sent -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "bits"),
    [
        (np.array([0, 1, 1], np.int8), 1),
        (np.array([0, 2, -128], np.int8), 8),
        (np.array([0, 1, 1], np.float32), 1),
        (np.array([0, -127, 127], np.float32), 8),
        (np.array([0.0, -0.0, 1.0], np.float32), 32),
        (np.array([0, -3, -0.0], np.float32), 32),
        (np.array([128, 0, 0], np.float32), 32),
        (np.array([1e30, 0.5, 0], np.float32), 32),
    ],
)
def test_the_shortest_form_that_loses_nothing(values: np.ndarray, bits: int) -> None:
    assert pack(values)[0] == bits
    assert len(pack(values)[1]) == -(-3 * bits // 8)


@pytest.mark.parametrize("quantize", [False, True], ids=["float", "int8"])
def test_values_that_are_no_spikes(tmp_path: Path, quantize: bool) -> None:
    path, options = two_ends(tmp_path / "net.nir"), Options(quantize=quantize)
    program = native(tmp_path, network_sources(path, options, tmp_path))
    scale = 1 if quantize else np.float32(0.37)
    arrays = {"left": RNG.randint(-3, 120, (2, 7, 3)) * scale, "right": RNG.randint(0, 3, (2, 7, 2)) * scale}
    np.savez(tmp_path / "input.npz", **arrays)
    lines: list[str] = []
    result = stream(
        path, tmp_path / "input.npz", ProcessPort("here", [str(program)]), options, output=tmp_path / "out.npz", say=lines.append
    )  # fmt: skip
    assert result["complaint"] == "" and result["steps"] == 14 and result["mismatches"] == 0
    expected = simulate(compile_network(path, options), arrays).outputs
    found = np.load(tmp_path / "out.npz")
    for name, values in expected.items():
        assert found[name].dtype == values.dtype and found[name].shape == values.shape
        assert found[name].tobytes() == values.tobytes() and np.any(values)
    assert any(line.startswith("against reference: largest difference 0") for line in lines)


# -- What the user sees -------------------------------------------------------------------------------------------------------


def test_what_is_said(net: Path, program: Path, data: Path, tmp_path: Path) -> None:
    lines: list[str] = []
    np.save(tmp_path / "input.labels.npy", np.zeros(3, np.int64))
    port = ProcessPort("here", [str(program)])
    result = stream(net, data, port, INTEGER, output=tmp_path / "out.npy", say=lines.append)
    expected = simulate(compile_network(net, INTEGER), {"input": np.load(data)}).outputs["output"]
    assert np.array_equal(np.load(tmp_path / "out.npy"), expected)
    assert re.fullmatch(r"sample 0: class \d, label 0(  <- wrong)?", lines[0])
    assert lines[3].startswith("accuracy ") and result["spikes"] == np.count_nonzero(expected)
    spikes = np.count_nonzero(expected)
    assert lines[4] == f"against reference: {spikes} spikes to {spikes}, F1 1.0000"
    assert lines[5].startswith("against float: ")
    assert re.fullmatch(r"\d+ cycles per step, \d+ to \d+", lines[6])
    assert lines[7] == "120 steps, each computed once; 0 of 121 frames were sent again"
    lines.clear()
    result = stream(net, data, ProcessPort("here", [str(program)]), INTEGER, reference=False, say=lines.append)
    assert "mismatches" not in result and f"{spikes} spikes" in lines
    assert not any("reference" in line for line in lines)


def test_one_sample_stays_one(net: Path, program: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "one.npy", np.ones((4, 20), np.int8))
    stream(net, tmp_path / "one.npy", ProcessPort("here", [str(program)]), INTEGER, output=tmp_path / "out.npy")
    assert np.load(tmp_path / "out.npy").shape == (4, 9)


def test_progress_is_shown_on_a_terminal(
    net: Path, program: Path, data: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "QUIET", 0.0)
    monkeypatch.setattr(progress, "PERIOD", 0.0)
    stream(net, data, ProcessPort("here", [str(program)]), INTEGER, progress=True)
    assert "60 of 120 steps" in capsys.readouterr().err
    stream(net, data, ProcessPort("here", [str(program)]), INTEGER)
    assert capsys.readouterr().err == "", "no terminal"


@pytest.fixture
def board_on_a_terminal(program: Path) -> Iterator[str]:
    """The name of a serial device with the board behind it."""
    ours, theirs = os.openpty()
    process = subprocess.Popen([program], stdin=ours, stdout=ours)
    os.close(ours)
    yield os.ttyname(theirs)
    os.close(theirs)
    process.kill()
    process.wait()


def test_a_serial_port(net: Path, data: Path, board_on_a_terminal: str, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("serial", reason="pip install pyserial")
    words = ["stream", "--port", board_on_a_terminal, str(net), str(data), "--quantize", "--dt", "0.001"]
    for _ in range(2):  # the board goes on, and the next host begins anew
        assert main(words) == 0
        assert "120 steps, each computed once; 0 of 121 frames" in capsys.readouterr().out


def test_x86_in_qemu(net: Path, data: Path, tmp_path: Path) -> None:
    """Another model of the UART than our own, behind a serial device."""
    qemu = shutil.which("qemu-system-i386")
    if qemu is None:
        pytest.skip("qemu-system-i386 is not installed: apt-get install qemu-system-x86")
    pytest.importorskip("serial", reason="pip install pyserial")
    elf = image("x86", "zig", tmp_path, network_sources(net, INTEGER, tmp_path))
    command = [qemu, "-kernel", str(elf), "-display", "none", "-serial", "pty", "-no-reboot"]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert process.stdout is not None
    try:
        device = re.search(rb"redirected to (/dev/\S+)", process.stdout.readline())
        assert device is not None
        result = stream(net, data, SerialPort(device[1].decode(), 115200), INTEGER)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
    assert result["complaint"] == "" and result["steps"] == 120 and result["mismatches"] == 0


def refused(call: Callable[[], Any], words: str, kind: type[SnnError] = Refused) -> None:
    with pytest.raises(kind) as caught:
        call()
    assert str(caught.value) == words


def test_the_wrong_firmware_is_refused_by_name(net: Path, program: Path, data: Path, tmp_path: Path) -> None:
    def here() -> ProcessPort:
        return ProcessPort("here", [str(program)])

    said = "the board at here runs snn_network from net.nir"
    again = chain(tmp_path / "net.nir", np.ones((9, 20)), lif(9))
    other = chain(tmp_path / "other.nir", np.ones((9, 20)), lif(9))
    remedy = "load the board with the stream.elf of this file"
    refused(lambda: stream(again, data, here(), INTEGER), f"net.nir: {said} of another training; {remedy}")
    refused(lambda: stream(other, data, here(), INTEGER), f"other.nir: {said}; {remedy}")
    options = "quantize=1 dt=0.001 reset=zero reset_delay=0"
    refused(
        lambda: stream(net, data, here(), dataclasses.replace(INTEGER, reset="subtract")),
        f"net.nir: the board at here runs it with {options}, not {options.replace('zero', 'subtract')}; "
        "pass the same options, or load the board with another stream.elf",
    )


def test_a_program_that_says_something_else(net: Path, data: Path) -> None:
    silent = ProcessPort("here", ["sh", "-c", "echo 'SNN ok errors=0'; cat >/dev/null; :"])
    refused(
        lambda: stream(net, data, silent, INTEGER, patience=0.01),
        "here gave no answer to hello in 12 tries: the last it sent was 'SNN ok errors=0'; "
        "check the port, its speed and that the board runs stream.elf",
    )
    ended = ProcessPort("here", ["sh", "-c", "exit 3"])
    refused(
        lambda: stream(net, data, ended, INTEGER),
        "the program at here has ended with exit status 3; run it by itself to see why",
    )
    refused(
        lambda: ProcessPort("here", ["./none"]),
        "./none: cannot be run (No such file or directory); build it first",
        Unreadable,
    )


def test_an_echo_is_no_answer(net: Path, data: Path) -> None:
    echo = ProcessPort("here", ["cat"])
    with pytest.raises(Refused, match="here gave no answer to hello in 12 tries"):
        stream(net, data, echo, INTEGER, patience=0.01)


def test_answers_to_others_are_passed_over(net: Path, program: Path, data: Path) -> None:
    class Crowded(ProcessPort):
        """Each answer comes behind one of another session and one to another step, which say something else."""

        decoder = Decoder()

        def read(self, seconds: float) -> bytes:
            out = b""
            for frame in self.decoder.feed(super().read(seconds)):
                body = bytes(len(frame.body))
                others = [(frame.session ^ 1, frame.sequence), (frame.session, frame.sequence ^ 1)]
                out += b"".join(encode(Frame(frame.type, *other, body)) for other in others) + encode(frame)
            return out

    assert stream(net, data, Crowded("here", [str(program)]), INTEGER)["complaint"] == ""


class Restarting:
    """A board that loses all it knows after some frames."""

    name, patience, per_byte, unit = "here", 1.0, 0.0, "cycles"

    def __init__(self, program: Path, after: int) -> None:
        self.program, self.left = program, after
        self.port = ProcessPort("here", [str(program)])

    def write(self, data: bytes) -> None:
        self.left -= 1
        if self.left == 0:
            self.port.close()
            self.port = ProcessPort("here", [str(self.program)])
        self.port.write(data)

    def read(self, seconds: float) -> bytes:
        return self.port.read(seconds)

    def close(self) -> None:
        self.port.close()


def test_a_board_that_restarts_is_noticed(net: Path, program: Path, data: Path) -> None:
    refused(
        lambda: stream(net, data, Restarting(program, 5), INTEGER),
        "here: the board has restarted, or serves another host; reset the board and begin again",
    )


def test_outputs_that_differ_end_with_1(
    net: Path,
    program: Path,
    data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    class Lying(ProcessPort):
        """Changes one spike of step 5."""

        def __init__(self) -> None:
            super().__init__("here", [str(program)])
            self.decoder = Decoder()

        def read(self, seconds: float) -> bytes:
            frames = self.decoder.feed(super().read(seconds))
            out = b""
            for frame in frames:
                if frame.sequence == 5:
                    frame = Frame(
                        frame.type, frame.session, 5, frame.body[:8] + bytes([frame.body[8] ^ 4]) + frame.body[9:]
                    )
                out += encode(frame)
            return out

    monkeypatch.setattr("snn_builder.stream.open_port", lambda *_: Lying())
    out = tmp_path / "out.npy"
    assert (
        main(["stream", "--port", "x", str(net), str(data), "--quantize", "--dt", "0.001", "--output", str(out)]) == 1
    )
    printed = capsys.readouterr()
    assert printed.err.startswith(f"error: {net}: sample 0, step 4, layer neuron, neuron 2: board ") and out.exists()


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (
            ["--port", "emulator:moon"],
            "--port emulator:moon: no such board; use emulator:host, emulator:x86, emulator:xheep",
        ),
        (
            ["--port", "/dev/none"],
            "port /dev/none cannot be opened (No such file or directory); check --port and --baud",
        ),
        (["--port", "nonsense://x"], None),
        (["--port", "/dev/none", "--baud", "0"], "--baud 0 is no speed; use what the board has, such as 115200"),
        (["--port", "/dev/none", "--timeout", "0"], "--timeout 0.0 is no time; use seconds, such as 0.25"),
        ([], "the following arguments are required: --port; see python -m snn_builder stream --help"),
    ],
)
def test_wrong_words(
    net: Path, data: Path, capsys: pytest.CaptureFixture[str], words: list[str], line: str | None
) -> None:
    if "/dev/none" in words and line and "opened" in line:
        pytest.importorskip("serial", reason="pip install pyserial")
    assert main(["stream", *words, str(net), str(data), "--dt", "0.001"]) == 2
    printed = capsys.readouterr()
    assert printed.err.startswith("error: ") and printed.err.count("\n") == 1 and printed.out == ""
    if line is not None:
        assert printed.err == f"error: {line}\n"


def test_without_pyserial_the_error_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "serial", None)
    refused(
        lambda: SerialPort("/dev/ttyUSB0", 9600), "--port /dev/ttyUSB0 needs pyserial; pip install pyserial", Unreadable
    )


# -- The build and the emulator -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Tree:
    return make_tree(tmp_path_factory.mktemp("streaming") / "tree")


def streamed(tree: Tree, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "snn_builder", "stream", *words, SMALL, "models/small/input.npy", "--dt", "0.001"]
    return subprocess.run(command, cwd=tree.path, capture_output=True, text=True)


@pytest.mark.parametrize("board", ["host", "xheep", "x86"])
def test_a_board_is_built_and_run(tree: Tree, board: str) -> None:
    done = streamed(tree, "--port", f"emulator:{board}", "--quantize", "--reset", "subtract", "--reset-delay", "1")
    assert done.returncode == 0, done.stderr
    assert "15 steps, each computed once; 0 of 16 frames were sent again" in done.stdout
    assert ("cycles per step" if board == "host" else "instructions per step") in done.stdout
    assert "F1 1.0000" in done.stdout and not any(line.startswith("  [") for line in done.stdout.splitlines())


def test_a_board_from_elsewhere_and_build_options(tree: Tree, tmp_path: Path) -> None:
    shutil.copytree(tree.path / "boards" / "xheep", tmp_path / "mychip")
    done = streamed(tree, "--port", f"emulator:{tmp_path / 'mychip'}", "--quantize", "--build", "ram=96k")
    assert done.returncode == 0, done.stderr
    assert (tree.path / "build" / "mychip-int8" / "small" / "stream.elf").exists()
    done = streamed(tree, "--port", "emulator:xheep", "--build", "ram=1k")
    assert done.returncode == 1 and "ram=1k: not a choice for board xheep" in done.stderr
    assert done.stderr.endswith(f"error: {SMALL}: the streaming firmware cannot be built; see above\n")


def test_only_who_asks_builds_it(tree: Tree, tmp_path: Path) -> None:
    fresh = make_tree(tmp_path / "tree")
    fresh.build()
    assert not list(fresh.path.rglob("stream*.elf")) and not list((fresh.path / "build").rglob("streamed.*"))
    first = fresh.scons(f"model={SMALL}", "stream")
    assert first.steps() == sorted(["GLUE", "CC", "CC", "CC", "LINK"])
    assert "stream" not in (fresh.path / "build/compile_commands.json").read_text()
    assert fresh.scons(f"model={SMALL}", "stream").out == ["scons: `stream' is up to date."]
    np.save(fresh.path / "models" / "small" / "input.npy", np.zeros((1, 2, 11), np.float32))
    assert fresh.scons(f"model={SMALL}", "stream").steps() == [], "no input is in it"


def test_an_emulated_program_that_waits_has_shown_what_it_sent(net: Path, tmp_path: Path) -> None:
    """Frames end with no newline; and a program whose input has ended is ended too."""
    elf = image("x86", "zig", tmp_path, network_sources(net, INTEGER, tmp_path))
    command = [sys.executable, "-m", "snn_builder", "emulate", str(ROOT / "boards" / "x86"), str(elf)]
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, env=buffered)
    assert process.stdin and process.stdout and process.stderr
    timer = threading.Timer(60, process.kill)
    timer.start()
    process.stdin.write(encode(Frame(ord("H"), 1, 0, b"")))
    process.stdin.flush()
    decoder, whole = Decoder(), []
    while not whole:
        data = os.read(process.stdout.fileno(), 4096)
        assert data, "nothing came before it was killed"
        whole = decoder.feed(data)
    process.stdin.close()
    said = process.stderr.read().decode()
    assert process.wait() == 1 and "waits at the UART, and its input has ended" in said, said
    timer.cancel()
