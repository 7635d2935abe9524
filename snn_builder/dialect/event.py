# SPDX-License-Identifier: Apache-2.0
"""Builders of the event form of the snn dialect: operations on lists of spikes, as in snn.irdl.mlir."""

from __future__ import annotations

from mlir import ir

from . import _build


def events(
    x: ir.Value,
    events: ir.Value,
    count: ir.Value,
    graded: ir.Value | None = None,
    y: ir.Value | None = None,
    *,
    rows: int = 1,
    loc: str,
) -> None:
    """events[0 .. count) = the indices of what is not 0 in x, ascending; graded = whether one of them is not 1. With more rows than one,
    of the transpose of x, where what is listed is stored: y."""
    _build("events", [x, events, count, graded, y], {"rows": rows}, loc)


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


def places(events: ir.Value, count: ir.Value, first: ir.Value, *, channels: int, loc: str) -> None:
    """first[p] = how many listed indices are below p * channels."""
    _build("places", [events, count, first], {"channels": channels}, loc)


def gather2d(
    x: ir.Value | None,
    listed: tuple[ir.Value, ir.Value],
    first: ir.Value,
    graded: ir.Value | None,
    w: ir.Value,
    b: ir.Value | None,
    y: ir.Value,
    *,
    attributes: dict[str, ir.Attribute],
    loc: str,
) -> None:
    """conv2d over listed inputs; the attributes are a conv2d's, `first` is as `places` makes it."""
    _build("gather2d", [x, *listed, first, graded, w, b, y], attributes, loc)


def scatter2d(
    x: ir.Value | None,
    listed: tuple[ir.Value, ir.Value],
    graded: ir.Value | None,
    y: ir.Value,
    *,
    attributes: dict[str, ir.Attribute],
    loc: str,
) -> None:
    """sumpool2d over listed inputs, which do not saturate; the attributes are a sumpool2d's."""
    _build("scatter2d", [x, *listed, graded, y], attributes, loc)


def emit(spikes: ir.Value, events: ir.Value, count: ir.Value, *, loc: str) -> None:
    """Appends the outputs that spike to a list."""
    _build("emit", [spikes, events, count], {}, loc)
