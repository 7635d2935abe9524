# SPDX-License-Identifier: Apache-2.0
"""Runs a linker. Where an image does not fit, one sentence replaces what the linker says: by how much, and what would do."""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from .boards import Board, BoardOption, load
from .errors import Unreadable
from .image import read, refuse_if_too_large

ROOM = 16  # linked again, an image may be as many times larger than the board's largest memory


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `python -m snn_builder link`."""
    parser.add_argument("board", metavar="BOARD_DIR", help="directory with board.py")
    parser.add_argument("link_command", metavar="COMMAND", nargs="+", help="after --: the linker, with its arguments")


def main(chosen: argparse.Namespace) -> int:
    """`python -m snn_builder link`: the linker's exit status."""
    return link(load(chosen.board), chosen.link_command)


def link(board: Board, command: Sequence[str]) -> int:
    """Runs `command`, which has `-o TARGET`; returns its exit status.

    When it fails and does not with more memory (one of the board's options with `defsym` set to more), raises `Refused`
    with the size that is needed. Otherwise the linker's own words stand.
    """
    done = _run(command)
    if done.returncode != 0:
        for option in board.options.values():
            if option.defsym:
                _refuse(option, command)
    sys.stdout.write(done.stdout)
    sys.stderr.write(done.stderr)
    return done.returncode


def _refuse(option: BoardOption, command: Sequence[str]) -> None:
    mark, chosen = f"--defsym={option.defsym}=", ""
    target = _target(command)
    with tempfile.TemporaryDirectory() as folder:
        image = os.path.join(folder, "image.elf")
        roomy = {target: image}
        for word in command:
            before, found, number = word.partition(mark)
            names = [name for name, value in option.values.items() if found and str(value) == number]
            if names:
                chosen = names[0]
                roomy[word] = f"{before}{mark}{ROOM * max(option.values.values())}"
        if chosen and _run([roomy.get(word, word) for word in command]).returncode == 0:
            large = dataclasses.replace(read(image), path=Path(target))
            refuse_if_too_large(large, option.name, chosen, option.values)


def _target(command: Sequence[str]) -> str:
    for word, following in itertools.pairwise(command):
        if word == "-o":
            return following
    raise Unreadable("", "", "the linker's command has no -o", "say where the image is to go")


def _run(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    except OSError as error:
        raise Unreadable(command[0], "", f"cannot be run: {error.strerror}", "install it") from error
