# SPDX-License-Identifier: Apache-2.0
"""The build's options as SCons `Variables`: `scons -h`, `scons board=xheep`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..boards import home, load
from .request import HELP, Request, find_boards, request
from .session import one_line
from .stages import relative


@one_line
def options(variables: Any) -> None:
    """Adds the build's options and those of the boards to `variables`, for env.SnnRequest to check."""
    for name, (text, default) in HELP.items():
        variables.Add(name, text, default)
    for board in map(load, _boards(variables).values()):
        for option in board.options.values():
            text = f"{option.help}: {', '.join(option.values)} (default: {option.default})"
            if option.name not in variables.keys():  # noqa: SIM118, it is no dict
                variables.Add(option.name, f"board {board.name}: {text}")
    variables.FormatVariableHelpText = _help_line


@one_line
def checked(env: Any, variables: Any) -> Request:
    """What `variables` ask for, every value checked."""
    boards = _boards(variables)
    given = {name: str(env[name]) for name in variables.keys() if name in env}  # noqa: SIM118
    return request(given | variables.UnknownVariables(), boards)


def _boards(variables: Any) -> dict[str, Path]:
    own = Path(relative(str(home() / "boards")))
    return find_boards(own, variables.args.get("board_path", ""))


def _help_line(env: Any, name: str, text: str, default: Any, actual: Any, aliases: Any = None) -> str:
    shown = f" [{actual}]" if actual else ""
    return f"  {name:<12} {text}{shown}\n"
