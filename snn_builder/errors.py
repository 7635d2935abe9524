# SPDX-License-Identifier: Apache-2.0
"""What the user sees when something is wrong: one line, file, node, problem, remedy."""

from __future__ import annotations

import dataclasses
import os
import re


class SnnError(Exception):
    """A problem with the user's input, never a bug of ours: it is shown as one line, without a traceback.

    `file` is the file it is about, `node` the node in it ("" where none is to blame), `problem` what is wrong and
    `remedy` what to do about it. `status` is the exit status of the command that meets it.
    """

    status = 1

    def __init__(self, file: str | os.PathLike[str], node: str, problem: str, remedy: str) -> None:
        self.file = os.fspath(file)
        self.node = node
        self.problem = problem
        self.remedy = remedy
        place = "".join(f"{part}: " for part in (self.file, node) if part)
        # A name in a file may hold anything; the message stays one line.
        super().__init__(re.sub(r"[\x00-\x1f\x7f]", "?", place + problem + (f"; {remedy}" if remedy else "")))

    def __reduce__(self) -> tuple[type[SnnError], tuple[str, str, str, str]]:
        return type(self), (self.file, self.node, self.problem, self.remedy)


class Refused(SnnError):
    """The file was read, and what it says cannot be built right (exit status 1)."""


class Unreadable(SnnError):
    """The file cannot be read at all, or the command was used wrongly (exit status 2)."""

    status = 2


@dataclasses.dataclass(frozen=True)
class Finding:
    """One thing to tell the user of a node ("" for the whole file); level is "error", "warning" or "repair"."""

    level: str
    node: str
    problem: str
    remedy: str = ""


class Findings:
    """What was found while a file went through the stages: errors are collected, so that one run shows all of them."""

    def __init__(self, file: str | os.PathLike[str]) -> None:
        self.file = os.fspath(file)
        self.items: list[Finding] = []

    def error(self, node: str, problem: str, remedy: str) -> None:
        self.items.append(Finding("error", node, problem, remedy))

    def warn(self, node: str, problem: str, remedy: str = "") -> None:
        self.items.append(Finding("warning", node, problem, remedy))

    def repair(self, node: str, problem: str) -> None:
        self.items.append(Finding("repair", node, problem))

    def refuse(self) -> None:
        """Raises `Refused` with the first error found so far; a stage calls it before it hands its value on."""
        for item in self.items:
            if item.level == "error":
                raise Refused(self.file, item.node, item.problem, item.remedy)
