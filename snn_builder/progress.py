# SPDX-License-Identifier: Apache-2.0
"""A line that says how far a long run is, for whoever watches it on a terminal."""

from __future__ import annotations

import sys
import time

QUIET = 1.0  # seconds: what is done sooner needs no line
PERIOD = 0.2


class Progress:
    """Counts up to `total`; `shown` None means: where standard error is a terminal. Use it in a `with`."""

    def __init__(self, total: int, unit: str, shown: bool | None = None) -> None:
        self.total, self.unit = total, unit
        self.shown = sys.stderr.isatty() if shown is None else shown
        self.done = 0
        self.width = 0
        self.start = time.monotonic()
        self.next = self.start + QUIET

    def __enter__(self) -> Progress:
        return self

    def advance(self, count: int) -> None:
        self.done += count
        now = time.monotonic()
        if self.shown and now >= self.next:
            self.next = now + PERIOD
            left = (now - self.start) * (self.total - self.done) / self.done
            self._print(f"{self.done} of {self.total} {self.unit}, {left:.0f} s left")

    def __exit__(self, *_: object) -> None:
        if self.width:
            self._print("")
            print("\r", end="", file=sys.stderr, flush=True)

    def _print(self, text: str) -> None:
        """In place of the line before it."""
        print(f"\r{text.ljust(self.width)}", end="", file=sys.stderr, flush=True)
        self.width = len(text)
