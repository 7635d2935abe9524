# SPDX-License-Identifier: Apache-2.0
"""Builders of the event form of the snn dialect: operations on lists of spikes, as in snn.irdl.mlir."""

from __future__ import annotations

from mlir import ir

from . import _build


def events(x: ir.Value, events: ir.Value, count: ir.Value, graded: ir.Value | None = None, *, loc: str) -> None:
    """events[0 .. count) = the indices of what is not 0 in x, ascending; graded = whether one of them is not 1."""
    _build("events", [x, events, count, graded], {}, loc)


def spread(events: ir.Value, count: ir.Value, y: ir.Value, *, loc: str) -> None:
    """Y = 1 where listed, else 0."""
    _build("spread", [events, count, y], {}, loc)


def keep(events: ir.Value, count: ir.Value, kept: ir.Value, kept_count: ir.Value, *, loc: str) -> None:
    """Copies a list."""
    _build("keep", [events, count, kept, kept_count], {}, loc)


def gather(
    x: ir.Value | None,
    listed: tuple[ir.Value, ir.Value] | None,
    graded: ir.Value | None,
    w: ir.Value,
    b: ir.Value | None,
    y: ir.Value,
    *,
    w_scale: int,
    loc: str,
) -> None:
    """linear over listed inputs: y[o] = (sum over the listed i of w[o,i]*x[i]) + b[o]; x absent counts as 1."""
    events, count = listed or (None, None)
    _build("gather", [x, events, count, graded, w, b, y], {"w_scale": w_scale}, loc)


def emit(spikes: ir.Value, events: ir.Value, count: ir.Value, *, loc: str) -> None:
    """Appends the outputs that spike to a list."""
    _build("emit", [spikes, events, count], {}, loc)
