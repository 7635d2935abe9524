# SPDX-License-Identifier: Apache-2.0
"""Names of a NIR file -> names in C: the one place where they are mangled."""

from __future__ import annotations

import re

from .errors import Refused


def mangle(name: str) -> str:
    """A C identifier part: letters, digits and underscores, a letter first. Never used bare, so keywords cannot occur: a suffix or a
    prefix always stands beside it."""
    plain = re.sub(r"[^A-Za-z0-9]", "_", name)
    return plain if re.match(r"[A-Za-z]", plain) else "n" + plain


def printable(name: str) -> str:
    """A node name as it may stand in a comment, a message or a table: no control characters, nothing that ends a C comment."""
    return re.sub(r"[^\w .:+-]", "?", name, flags=re.ASCII)


class CNames:
    """The C names of one network; two nodes whose names meet are refused, naming both."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._taken: dict[str, str] = {}

    def claim(self, node: str, form: str) -> str:
        """`form` with {} replaced by the mangled node name, e.g. "{}_w"."""
        name = form.format(mangle(node))
        owner = self._taken.setdefault(name, node)
        if owner != node:
            raise Refused(
                self._file,
                node,
                f"its name in C, {name}, is also that of node '{printable(owner)}'",
                "rename one of the two nodes",
            )
        return name
