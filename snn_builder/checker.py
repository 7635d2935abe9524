# SPDX-License-Identifier: Apache-2.0
"""`check`: everything that can be said of a file at once. A network is supported exactly when `generate` succeeds, for it is `generate`
that is asked; only nothing is written."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from .api import all_texts
from .discretise import discretise
from .errors import Finding, Findings, Refused, SnnError, Unreadable
from .network import Delay, Network
from .options import Options
from .pipeline import compile_network
from .reader import read
from .schedule import schedule

LEVELS = ("error", "warning", "repair")
HEADINGS = ("node", "kind", "shape", "type", "value", "weights", "state", "constant", "operations", "of")
NUMBERS = frozenset(["state", "constant", "operations"])  # columns that stand to the right


@dataclasses.dataclass(frozen=True)
class Checked:
    """What was found in a file. `network`: what `N.json` says of it, None where it is not supported. `status`: the exit status that
    `generate` has with it: 0 supported, 1 refused, 2 unreadable."""

    file: str
    status: int
    findings: tuple[Finding, ...]
    network: dict[str, Any] | None

    @property
    def supported(self) -> bool:
        return self.status == 0


def check(path: str | os.PathLike[str], options: Options | None = None) -> Checked:
    """Raises nothing for a file, whatever is in it."""
    options = options or Options()
    findings = Findings(path)
    try:
        contents = all_texts(compile_network(path, options, findings), findings)
    except SnnError as error:
        _add(findings, Finding("error", error.node, error.problem, error.remedy))
        if not isinstance(error, Unreadable):
            _look_further(path, options, findings)
        return Checked(findings.file, error.status, _sorted(findings), None)
    return Checked(findings.file, 0, _sorted(findings), json.loads(contents[f"{options.name}.json"]))


def _sorted(findings: Findings) -> tuple[Finding, ...]:
    return tuple(sorted(findings.items, key=lambda finding: LEVELS.index(finding.level)))


def _add(findings: Findings, finding: Finding) -> None:
    if finding not in findings.items:
        findings.items.append(finding)


def _look_further(path: str | os.PathLike[str], options: Options, findings: Findings) -> None:
    """A stage that refuses keeps the next from running. These two look at the graph alone, so they may run nevertheless; where delays are
    not known, a Delay is taken to break its cycle."""
    more = Findings(path)
    with contextlib.suppress(Refused):
        network = read(path, more)
        for stage in (_discretise, _schedule):
            apart = Findings(path)
            with contextlib.suppress(Refused):
                stage(network, options, apart)
            more.items += apart.items
    for finding in more.items:
        _add(findings, finding)


def _discretise(network: Network, options: Options, findings: Findings) -> None:
    discretise(network, options.dt, findings)


def _schedule(network: Network, _: Options, findings: Findings) -> None:
    delays = [node for node in network.nodes.values() if isinstance(node, Delay)]
    schedule(network, {node.name: np.ones(node.delay.size, np.int64) for node in delays}, findings)


# -- Text ---------------------------------------------------------------------------------------------------------------------


def report_json(reports: Sequence[Checked]) -> str:
    """All reports as a JSON list."""
    return json.dumps([{"supported": report.supported, **dataclasses.asdict(report)} for report in reports], indent=1)


def report_text(report: Checked) -> str:
    """One report for people: the verdict, the findings, the nodes in execution order."""
    verdict = ("supported", "refused", "unreadable")[report.status]
    lines = [f"{report.file}: {verdict}" + (f", {_summary(report.network)}" if report.network else "")]
    for finding in report.findings:
        place = f"{finding.node}: " if finding.node else ""
        remedy = f"; {finding.remedy}" if finding.remedy else ""
        lines.append(f"  {finding.level}: {place}{finding.problem}{remedy}")
    if report.network is not None:
        lines += _table([HEADINGS, *(_row(layer) for layer in report.network["layers"])])
        lines += [
            f"  {source} -> {target} carries the previous step"
            for source, target in report.network["previous_step_edges"]
        ]
    return "\n".join(lines)


def _summary(network: dict[str, Any]) -> str:
    options = network["options"]
    words = ["int8" if options["quantize"] else "f32"]
    if network["dt"] is not None:
        words.append(f"dt = {network['dt']:.9g} ({network['dt_from']})")
    words.append(f"state {network['state_bytes']} bytes, weights and tables {network['constant_bytes']} bytes")
    return ", ".join(words)


def _row(layer: dict[str, Any]) -> tuple[str, ...]:
    shape, before = ("x".join(map(str, layer[key])) for key in ("output_shape", "input_shape"))
    integer = layer["type"] != "float"
    return (
        layer["node"],
        layer["kind"],
        shape if shape == before else f"{before} -> {shape}",
        layer["type"],
        f"2^{-layer['frac_bits']}" if integer else "",
        f"2^{-layer['w_scale']}" if "w_scale" in layer else "",
        str(layer["state_bytes"]),
        str(layer["constant_bytes"]),
        str(layer["operations"]),
        " + ".join(edge["node"] + (" (previous step)" if edge["previous_step"] else "") for edge in layer["of"]),
    )


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Columns of equal width; one that says nothing is left out."""
    kept = [place for place in range(len(rows[0])) if any(row[place] for row in rows[1:])]
    widths = {place: max(len(row[place]) for row in rows) for place in kept}
    return [
        "  " + "  ".join(_padded(row[place], widths[place], rows[0][place] in NUMBERS) for place in kept).rstrip()
        for row in rows
    ]


def _padded(text: str, width: int, right: bool) -> str:
    return text.rjust(width) if right else text.ljust(width)
