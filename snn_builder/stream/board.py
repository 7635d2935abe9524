# SPDX-License-Identifier: Apache-2.0
"""A network on a board, behind a line that may lose, double and change bytes: every step is computed exactly once.

One request at a time, each with a number: the host repeats it until it is answered; the board computes a number once, and
answers it again as often as it is asked.
"""

from __future__ import annotations

import dataclasses
import secrets
import struct
import time
from types import TracebackType

import numpy as np

from ..errors import Refused
from ..program import Array
from .frames import HELLO, PROTOCOL, REFUSAL, STEP, Decoder, Frame, encode
from .ports import Port

TRIES = 12
LONGEST_WAIT = 8  # times the first one: each try waits twice as long as the one before
DESCRIPTION = struct.Struct("<BBBII")
ANSWER = struct.Struct("<II")
WHY = {
    1: "the board has restarted, or serves another host",
    2: "the board is at another step",
    3: "the board does not take this frame",
}


@dataclasses.dataclass(frozen=True)
class Description:
    """What a board says of its network. `options` decide about the numbers; `model` is the file's name and hash."""

    input_bits: int
    output_bits: int
    input_size: int
    output_size: int
    name: str
    options: str
    model: str

    @property
    def output_type(self) -> np.dtype[np.generic]:
        """Of the values, as the reference has them."""
        return np.dtype(np.float32 if self.input_bits == 32 else np.int32 if self.output_bits == 32 else np.int8)


class Streamed:
    """The network at the other end of `port`: says hello when it is made, and raises `Refused` when nobody answers. `sent` counts frames,
    `repeated` those that were sent again. `patience` is how long an answer may take, in seconds; the port's own by default."""

    def __init__(self, port: Port, patience: float | None = None, tries: int = TRIES) -> None:
        self.port = port
        self.patience = port.patience if patience is None else patience
        self.tries = tries
        self.session = secrets.randbits(32) or 1
        self.steps = self.sent = self.repeated = 0
        self._decoder = Decoder()
        self._heard = b""
        self.description = self._hello()

    def __enter__(self) -> Streamed:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.port.close()

    def step(self, values: Array, first: bool) -> tuple[Array, int]:
        """One step on the board, from rest if it is the `first` of a sample. `values`: (inputs,), int8 in integer mode, else float32.
        Returns the outputs, in the numbers of the C interface, and how many cycles they took."""
        known = self.description
        size = -(-known.output_size * known.output_bits // 8)
        bits, packed = pack(values)
        body = self._ask(STEP, self.steps + 1, bytes([bits, first]) + packed, ANSWER.size + size)
        self.steps += 1
        if len(body) != ANSWER.size + size:
            raise self._wrong(f"an answer of {len(body)} bytes, not {ANSWER.size + size}")
        steps, cycles = ANSWER.unpack_from(body)
        if steps != self.steps:
            raise self._wrong(f"it has computed {steps} steps, not {self.steps}")
        return unpack(body[ANSWER.size :], known), cycles

    def _hello(self) -> Description:
        body = self._ask(HELLO, 0, b"", 200)
        try:
            protocol, input_bits, output_bits, inputs, outputs = DESCRIPTION.unpack_from(body)
            name, options, model, end = body[DESCRIPTION.size :].decode("utf-8", "replace").split("\0")
        except (struct.error, ValueError):
            raise self._wrong("a description that cannot be read") from None
        if protocol != PROTOCOL or end:
            raise self._wrong(f"protocol {protocol}, not {PROTOCOL}")
        return Description(input_bits, output_bits, inputs, outputs, name, options, model)

    def _ask(self, kind: int, sequence: int, body: bytes, expected: int) -> bytes:
        """The body of the answer to a request, which goes out again until it comes."""
        data = encode(Frame(kind, self.session, sequence, body))
        on_the_line = (len(data) + expected) * self.port.per_byte
        for attempt in range(self.tries):
            self.sent += 1
            self.repeated += attempt > 0
            self.port.write(data)
            wait = min(2**attempt, LONGEST_WAIT) * self.patience
            answer = self._answer(kind, sequence, time.monotonic() + wait + on_the_line)
            if answer is not None:
                return answer
        heard = self._heard.replace(b"\0", b" ").decode("ascii", "replace").strip().splitlines()
        said = f": the last it sent was '{heard[-1][-60:]}'" if heard else ""
        what = "hello" if kind == HELLO else f"step {sequence}"
        raise Refused(
            "", "", f"{self.port.name} gave no answer to {what} in {self.tries} tries{said}",
            "check the port, its speed and that the board runs stream.elf",
        )  # fmt: skip

    def _answer(self, kind: int, sequence: int, end: float) -> bytes | None:
        """The body of the answer, None when it is not there at the time `end`. Answers to what was asked before are passed over."""
        while (left := end - time.monotonic()) > 0:
            data = self.port.read(left)
            self._heard = (self._heard + data)[-200:]
            for frame in self._decoder.feed(data):
                if (frame.session, frame.sequence) != (self.session, sequence):
                    continue
                if frame.type == REFUSAL and frame.body:
                    raise self._wrong(WHY.get(frame.body[0], f"refusal {frame.body[0]}"))
                if frame.type == kind + 32:
                    return frame.body
        return None

    def _wrong(self, what: str) -> Refused:
        return Refused("", "", f"{self.port.name}: {what}", "reset the board and begin again")


def pack(values: Array) -> tuple[int, bytes]:
    """The shortest form that loses nothing, as bits per value and bytes: 1 for spikes, 8 for whole numbers, 32 for floats."""
    positive = not np.signbit(values).any()  # a negative zero is no whole number
    if positive and np.all((values == 0) | (values == 1)):
        return 1, np.packbits(values.astype(np.uint8), bitorder="little").tobytes()
    whole = values.astype(np.int8) if np.all(np.abs(values.astype(np.float64)) < 128) else None
    if values.dtype == np.int8 or (whole is not None and whole.astype(np.float32).tobytes() == values.tobytes()):
        return 8, values.astype("<i1").tobytes()
    return 32, values.astype("<f4").tobytes()


def unpack(packed: bytes, known: Description) -> Array:
    """The outputs of a step, (outputs,), from an answer."""
    raw = np.frombuffer(packed, np.uint8)
    if known.output_bits == 1:
        return np.unpackbits(raw, bitorder="little", count=known.output_size).astype(known.output_type)
    return raw.view(known.output_type.newbyteorder("<")).astype(known.output_type)
