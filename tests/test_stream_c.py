# SPDX-License-Identifier: Apache-2.0
"""firmware/stream.c and stream_main.c around a network of our own: what they answer to right, wrong and hostile frames."""

from __future__ import annotations

import random
import struct
import subprocess
import zlib
from pathlib import Path

import pytest
from board_images import FIRMWARE, TOOLCHAINS, WARNINGS
from hypothesis import given
from hypothesis import strategies as st
from streamed import image, native
from test_harness_c import RV32, ZIG

from snn_builder.image import read
from snn_builder.stream.frames import HELLO, STEP, Decoder, Frame, encode, stuffed, unstuffed

SIZE = 300  # more than a COBS block as bytes

# Output i is input i plus the number of steps since init; how often the network was stepped in all cannot be seen by mistake.
HEADER = """
#include <stddef.h>
#include <stdint.h>
#define STREAMED_INTERFACE 1
#define STREAMED_NAME "echo"
#define STREAMED_OPTIONS "quantize=1"
#define STREAMED_INPUT_SIZE 300
#define STREAMED_OUTPUT_SIZE 300
#define STREAMED_OUTPUT_BITS BITS
typedef struct { int32_t count; } streamed_state;
typedef INPUT streamed_input_t;
typedef OUTPUT streamed_output_t;
const char *streamed_model(void);
void streamed_init(streamed_state *state);
void streamed_step(streamed_state *state, const streamed_input_t *in, streamed_output_t *out);
"""
SOURCE = """
#include "streamed.h"
const char *streamed_model(void) { return "echo.nir sha256:0"; }
void streamed_init(streamed_state *state) { state->count = 0; }
void streamed_step(streamed_state *state, const streamed_input_t *in, streamed_output_t *out)
{
    state->count++;
    for (size_t i = 0; i < STREAMED_OUTPUT_SIZE; i++) out[i] = (streamed_output_t)(in[i] + (streamed_input_t)ADDED);
}
"""
BYTES = {"INPUT": "int8_t", "OUTPUT": "int8_t", "BITS": "8", "ADDED": "state->count"}
FLOATS = {"INPUT": "float", "OUTPUT": "float", "BITS": "32", "ADDED": "state->count"}
SPIKES = {"INPUT": "int8_t", "OUTPUT": "int8_t", "BITS": "1", "ADDED": "0"}
KINDS = {"bytes": BYTES, "floats": FLOATS, "spikes": SPIKES}
SANITIZED = ["-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]


def write(folder: Path, kind: dict[str, str]) -> list[Path]:
    for name, text in (("streamed.h", HEADER), ("streamed.c", SOURCE)):
        for word, value in kind.items():
            text = text.replace(f" {word}" if word != "ADDED" else "ADDED", f" {value}" if word != "ADDED" else value)
        (folder / name).write_text(text)
    return [folder / "streamed.c"]


@pytest.fixture(scope="module", params=KINDS)
def program(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    folder = tmp_path_factory.mktemp(request.param)
    return request.param, native(folder, write(folder, KINDS[request.param]), *SANITIZED)


@pytest.fixture(scope="module")
def echo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("echo")
    return native(folder, write(folder, BYTES), *SANITIZED)


def answers(program: Path, data: bytes) -> list[Frame]:
    """What the program sends back; the sanitizers had nothing to say."""
    done = subprocess.run([program], input=data, capture_output=True, timeout=60)
    assert done.stderr == b"" and done.returncode == 0
    decoder = Decoder()
    frames = decoder.feed(done.stdout)
    assert decoder.dropped == 0
    return frames


def step(sequence: int, values: bytes, bits: int = 8, first: int = 0, session: int = 7) -> bytes:
    return encode(Frame(STEP, session, sequence, bytes([bits, first]) + values))


HI = encode(Frame(HELLO, 7, 0, b""))
ONES = b"\1" * SIZE


def outputs(frame: Frame) -> tuple[int, bytes]:
    """The number of steps that the board says it has computed, and the values."""
    assert frame.type == ord("s")
    return struct.unpack_from("<I", frame.body)[0], frame.body[8:]


def test_a_board_describes_itself(program: tuple[str, Path]) -> None:
    kind, path = program
    (frame,) = answers(path, HI)
    input_bits, output_bits = {"bytes": (8, 8), "floats": (32, 32), "spikes": (8, 1)}[kind]
    described = struct.pack("<BBBII", 1, input_bits, output_bits, SIZE, SIZE) + b"echo\0quantize=1\0echo.nir sha256:0\0"
    assert frame == Frame(ord("h"), 7, 0, described)


def test_values_in_every_form(program: tuple[str, Path]) -> None:
    kind, path = program
    spikes = [int(i % 3 == 0) for i in range(SIZE)]
    packed = bytes(sum(bit << j for j, bit in enumerate(spikes[i : i + 8])) for i in range(0, SIZE, 8))
    whole = [(i * 37) % 256 - 128 for i in range(SIZE)]
    as_bytes = struct.pack(f"{SIZE}b", *whole)
    halves = [i * 0.5 - 70 for i in range(SIZE)]
    said = answers(path, HI + step(1, packed, 1) + step(2, as_bytes) + step(3, struct.pack(f"<{SIZE}f", *halves), 32))
    found = [outputs(frame) for frame in said[1:3]]
    assert [count for count, _ in found] == [1, 2]
    if kind == "bytes":
        assert found[0][1] == bytes(bit + 1 for bit in spikes)
        assert found[1][1] == bytes((value + 2) % 256 for value in whole)
    elif kind == "spikes":
        assert found[0][1] == packed
    else:
        assert found[0][1] == struct.pack(f"<{SIZE}f", *(bit + 1 for bit in spikes))
        assert found[1][1] == struct.pack(f"<{SIZE}f", *(value + 2 for value in whole))
        assert outputs(said[3]) == (3, struct.pack(f"<{SIZE}f", *(value + 3 for value in halves)))
    assert len(said) == (4 if kind == "floats" else 3), "integer mode has no room for floats"


def test_a_repeated_step_is_answered_and_not_computed(echo: Path) -> None:
    said = answers(
        echo, HI + step(1, ONES, first=1) * 3 + step(2, ONES) * 2 + HI + step(2, ONES) + step(3, ONES, first=1)
    )
    assert said[1] == said[2] == said[3] and outputs(said[1]) == (1, b"\2" * SIZE)
    assert said[4] == said[5] == said[7] and outputs(said[4]) == (2, b"\3" * SIZE)
    assert said[6] == said[0], "a doubled hello changes nothing"
    assert outputs(said[8]) == (3, b"\2" * SIZE), "from rest again"


def test_another_session_begins_anew(echo: Path) -> None:
    other = encode(Frame(HELLO, 9, 0, b""))
    said = answers(echo, HI + step(1, ONES) + other + step(1, ONES, session=9) + step(2, ONES))
    assert outputs(said[3]) == (1, b"\2" * SIZE)
    assert said[4] == Frame(ord("e"), 7, 2, struct.pack("<BI", 1, 1)), "the old one is over"


@pytest.mark.parametrize(
    ("sent", "why"),
    [
        (step(2, ONES), 2),
        (step(0, ONES), 2),
        (step(1, ONES, session=8), 1),
        (step(1, ONES, session=0), 1),
        (encode(Frame(HELLO, 0, 0, b"")), 3),
        (step(1, ONES[1:]), 3),
        (step(1, ONES, bits=1), 3),
        (step(1, ONES, bits=7), 3),
        (step(1, b"", bits=0), 3),
        (encode(Frame(STEP, 7, 1, b"")), 3),
        (encode(Frame(STEP, 7, 1, b"\x08")), 3),
        (encode(Frame(ord("s"), 7, 1, b"\x08\0" + ONES)), 3),
    ],
)
def test_wrong_frames_are_refused(echo: Path, sent: bytes, why: int) -> None:
    said = answers(echo, HI + sent + step(1, ONES))
    assert said[1].type == ord("e") and said[1].body == struct.pack("<BI", why, 0)
    assert outputs(said[2]) == (1, b"\2" * SIZE), "and nothing was computed"
    assert answers(echo, step(1, ONES, session=0)) == [Frame(ord("e"), 0, 1, struct.pack("<BI", 1, 0))], "0 is none"


def test_damaged_frames_are_passed_over(echo: Path) -> None:
    whole = step(1, bytes(range(100)) * 3)
    flips = [whole[:i] + bytes([whole[i] ^ 1 << i % 8]) + whole[i + 1 :] for i in range(len(whole))]
    lost = [whole[:i] + whole[i + 1 :] for i in range(1, len(whole) - 1)]
    doubled = [whole[:i] + whole[i : i + 1] + whole[i:] for i in range(1, len(whole) - 1)]
    again = [i for i in doubled if i.strip(b"\0") != whole.strip(b"\0")]
    spoilt = b"".join([*flips[1:-1], *lost, *again])
    assert answers(echo, HI + spoilt)[1:] == []
    content = struct.pack("<BIII", STEP, 7, 1, SIZE + 1) + b"\x08\0" + ONES  # the length is a lie
    assert answers(echo, HI + b"\0" + stuffed(content + struct.pack("<I", zlib.crc32(content))) + b"\0")[1:] == []


def test_the_buffer_holds_the_longest_frame_and_no_more(program: tuple[str, Path]) -> None:
    """A frame of one byte more is dropped whatever it says, and what follows is read."""
    kind, path = program
    widest, bits = (4, 32) if kind == "floats" else (1, 8)
    longest = step(1, b"\0" * SIZE * widest, bits)
    longer = step(1, b"\0" * (SIZE * widest + 1), bits)
    endless = b"\0" + b"\xff" * 100_000 + b"\0" + b"\1" * 100_000
    continued = b"\0" + stuffed((unstuffed(longest.strip(b"\0")) or b"") + b"x") + b"\0"
    said = answers(path, HI + longer + endless + continued + longest)
    assert [frame.type for frame in said] == [ord("h"), ord("s")]


def test_hostile_bytes_do_no_harm(program: tuple[str, Path]) -> None:
    """Random bytes, frames of random bytes, cut and joined frames: the board goes on, and has computed nothing that was not asked."""
    _, path = program
    noise = random.Random(5)
    parts = [HI]
    for _ in range(3000):
        garbage = noise.randbytes(noise.choice([1, 3, 17, 254, 255, 700]))
        kind = noise.randrange(5)
        if kind == 0:
            parts.append(garbage)
        elif kind == 1:
            parts.append(garbage.replace(b"\0", b"\1") + b"\0")
        elif kind == 2:
            parts.append(b"\0" + stuffed(garbage) + b"\0")
        elif kind == 3:
            parts.append(step(1, ONES)[: noise.randrange(1, 300)])
        else:
            parts.append(encode(Frame(noise.randrange(256), 7, noise.randrange(2, 1 << 32), garbage)))
    said = answers(path, b"".join(parts) + step(1, ONES))
    assert [frame.type for frame in said].count(ord("s")) == 1
    assert outputs(said[-1])[0] == 1


@given(st.one_of(st.binary(max_size=600), st.integers(240, 270).map(lambda n: b"\7" * n)))
def test_stuffing_is_undone(content: bytes) -> None:
    coded = stuffed(content)
    assert b"\0" not in coded and len(coded) <= len(content) + len(content) // 254 + 1
    assert unstuffed(coded) == content


@given(st.binary(max_size=300))
def test_what_is_no_stuffing_is_dropped(noise: bytes) -> None:
    decoder = Decoder()
    assert decoder.feed(noise + b"\0") == []
    whole = Frame(STEP, 1, 2, b"\0\1")
    assert decoder.feed(encode(whole)) == [whole]


def test_frames_in_pieces() -> None:
    frames = [Frame(STEP, 7, i, bytes(i)) for i in range(3)]
    decoder = Decoder()
    assert [found for byte in b"".join(map(encode, frames)) for found in decoder.feed(bytes([byte]))] == frames


def test_the_frame_in_the_documentation() -> None:
    """docs/streaming.md has this one, byte by byte."""
    text = (FIRMWARE.parent / "docs" / "streaming.md").read_text()
    frame = encode(Frame(STEP, 0x11223344, 5, b"\x01\x01\x05"))
    assert frame.hex(" ") in text
    for line in ("53", "44 33 22 11", "05 00 00 00", "03 00 00 00", "01 01 05"):
        assert f"`{line}`" in text


@pytest.mark.parametrize("compiler", ["gcc -m32", "zig", "rv32", "i386"])
@pytest.mark.parametrize("kind", KINDS)
def test_strict_warnings(tmp_path: Path, compiler: str, kind: str) -> None:
    write(tmp_path, KINDS[kind])
    commands = {
        "gcc -m32": ["gcc", "-m32", "-ffreestanding"],
        "zig": ZIG,
        "rv32": RV32,
        "i386": [*ZIG, "-target", "x86-freestanding-none", "-mcpu=pentium4", "-ffreestanding"],
    }
    for name in ("stream", "stream_main"):
        command = [*commands[compiler], *WARNINGS, "-Os", "-I", tmp_path, "-I", FIRMWARE, "-c", FIRMWARE / f"{name}.c"]
        done = subprocess.run([*command, "-o", tmp_path / "x.o"], capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("toolchain", TOOLCHAINS)
def test_xheep_takes_little_for_itself(toolchain: str, tmp_path: Path) -> None:
    """Start-up, UART and protocol: at most 2.5 KiB of code, with the vectors."""
    found = read(image("xheep", toolchain, tmp_path, write(tmp_path, BYTES)))
    code = sum(section.size for section in found.sections if section.executable)
    assert code <= 2560
