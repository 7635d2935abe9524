# SPDX-License-Identifier: Apache-2.0
"""Frames on a line that loses, doubles and changes bytes: firmware/stream.c on the host's side. docs/streaming.md has the format."""

from __future__ import annotations

import dataclasses
import struct
import zlib

PROTOCOL = 1
HEADER = struct.Struct("<BIII")  # type, session, sequence, length of the body
OVERHEAD = HEADER.size + 4
BLOCK = 254  # bytes without a zero that one COBS code can announce
LONGEST = 1 << 24  # what goes on without a zero for so long is no frame
HELLO, STEP, REFUSAL = ord("H"), ord("S"), ord("e")


@dataclasses.dataclass(frozen=True)
class Frame:
    """What travels: an answer has the small letter of its request as its `type`."""

    type: int
    session: int
    sequence: int
    body: bytes


def encode(frame: Frame) -> bytes:
    """The bytes on the line, with a zero before and behind."""
    content = HEADER.pack(frame.type, frame.session, frame.sequence, len(frame.body)) + frame.body
    return b"\0" + stuffed(content + struct.pack("<I", zlib.crc32(content))) + b"\0"


class Decoder:
    """Finds the frames in what arrives; what is damaged is dropped, and counted in `dropped`."""

    def __init__(self) -> None:
        self.dropped = 0
        self._rest = bytearray()

    def feed(self, data: bytes) -> list[Frame]:
        """The frames that these bytes complete."""
        *ended, rest = data.split(b"\0")
        frames = []
        for part in ended:
            whole = bytes(self._rest) + part
            self._rest.clear()
            frame = _decode(whole)
            if frame is not None:
                frames.append(frame)
            elif whole:
                self.dropped += 1
        self._rest += rest[: LONGEST - len(self._rest)]
        return frames


def _decode(coded: bytes) -> Frame | None:
    content = unstuffed(coded)
    if content is None or len(content) < OVERHEAD:
        return None
    type_, session, sequence, length = HEADER.unpack_from(content)
    (crc,) = struct.unpack("<I", content[-4:])
    if length != len(content) - OVERHEAD or zlib.crc32(content[:-4]) != crc:
        return None
    return Frame(type_, session, sequence, content[HEADER.size : -4])


def stuffed(content: bytes) -> bytes:
    """COBS: no zero in it, one byte more per 254."""
    out = bytearray()
    for part in content.split(b"\0"):
        while len(part) >= BLOCK:
            out += b"\xff" + part[:BLOCK]
            part = part[BLOCK:]
        out.append(len(part) + 1)
        out += part
    return bytes(out)


def unstuffed(coded: bytes) -> bytes | None:
    """The inverse of `stuffed`; None where it is not the beginning and end of something stuffed."""
    out = bytearray()
    at, code = 0, BLOCK + 1
    while at < len(coded):
        if code != BLOCK + 1:
            out.append(0)
        code = coded[at]
        block = coded[at + 1 : at + code]
        if len(block) != code - 1 or code == 0:
            return None
        out += block
        at += code
    return bytes(out)
