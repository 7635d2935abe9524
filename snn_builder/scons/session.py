# SPDX-License-Identifier: Apache-2.0
"""How a run of SCons behaves: what it prints, how it ends, what it leaves."""

from __future__ import annotations

import atexit
import functools
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import SCons.Action
import SCons.dblite
import SCons.Errors
import SCons.Node.FS
import SCons.SConsign
import SCons.Script

from ..errors import SnnError, Unreadable

BUILD = "build"
F = TypeVar("F", bound=Callable[..., Any])


def add_session(env: Any) -> None:
    """Adds SnnSession."""
    env.SetDefault(SNN_VERBOSE=False)
    env.AddMethod(one_line(share), "SnnShare")
    env.AddMethod(session, "SnnSession")


def session(env: Any) -> None:
    """For a run that builds networks and nothing else: what fails ends it with its own exit status, what a failed command left
    disappears, and SCons' record of the build lies in build/, and appears with the first thing that is built, not before."""
    env["SPAWN"] = _ending_with_its_status(env["SPAWN"])
    SCons.SConsign.File(f"{BUILD}/.sconsign", _Signatures)
    atexit.unregister(_remove_partial_targets)
    atexit.register(_remove_partial_targets)


def one_line(function: F) -> F:
    """Makes what the user did wrong one line and an exit status, without a traceback or SCons' own wording."""

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except SnnError as error:
            stop(error)

    return wrapper  # type: ignore[return-value]


def stop(error: SnnError) -> NoReturn:
    """Ends the run while SConscripts are read."""
    SCons.Script.Main.progress_display("")  # ends the line "Reading SConscript files ..."
    print(f"error: {error}", file=sys.stderr)
    sys.exit(error.status)


def short(env: Any, tag: str, what: str = "$TARGET") -> str:
    """The line printed for a command, "  [CC]    build/..."; empty, as for SCons' COMSTR, to print the command."""
    if env["SNN_VERBOSE"]:
        return ""
    label = f"[{tag}]".ljust(7)
    if sys.stdout.isatty() and "NO_COLOR" not in os.environ:
        label = f"\033[36m{label}\033[0m"
    return f"  {label} {what}"


def action(env: Any, tag: str, command: str, what: str = "$TARGET") -> Any:
    """An action that runs `command` and prints $SNN_<tag>COMSTR: the short line, or the command where it is empty."""
    variable = f"SNN_{tag}COMSTR"
    env.SetDefault(**{variable: short(env, tag, what)})
    return SCons.Action.Action(command, f"${variable}")


def share(env: Any, folder: str | None) -> None:
    """Lets builds find in `folder` what others made (SCons' CacheDir), also of copies made of `env` later; None: nothing.

    All that goes there is the same whatever directory the build is in: else it is marked with NoCache.
    """
    if folder is None or (_only_looking() and not os.path.exists(os.path.join(folder, "config"))):
        return  # SCons would make the folder at once
    try:
        os.makedirs(folder, exist_ok=True)
        env.CacheDir(folder)
    except (OSError, SCons.Errors.SConsEnvironmentError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise Unreadable(
            "", f"cache={folder}", f"cannot be used ({why})", "name a folder that you may write to"
        ) from None


def _only_looking() -> bool:
    """`-n`, `-c`, `-q` and `-h` on a clean tree must not make a file."""
    return any(SCons.Script.GetOption(option) for option in ("no_exec", "clean", "question", "help"))


class StageFailed(SCons.Errors.BuildError):  # type: ignore[misc]
    """A command failed. SCons ends with 2 for everything; this ends it with the command's own status."""

    def __init__(self, status: int) -> None:
        self._status = status
        super().__init__(errstr=f"Error {status}", status=status)

    @property
    def exitstatus(self) -> int:
        return self._status if 0 < self._status < 128 else 1

    @exitstatus.setter
    def exitstatus(self, value: int) -> None:
        pass  # SCons sets 2


def _ending_with_its_status(spawn: Callable[..., int]) -> Callable[..., int]:
    if getattr(spawn, "ends_with_status", False):
        return spawn

    def wrapper(*args: Any) -> int:
        status = spawn(*args)
        if status:
            raise StageFailed(status)
        return 0

    wrapper.ends_with_status = True  # type: ignore[attr-defined]
    return wrapper


def _remove_partial_targets() -> None:
    """Stages rename whole files into place, but a compiler that was killed may leave half of one."""
    for failure in SCons.Script.GetBuildFailures():
        nodes = failure.node if isinstance(failure.node, list) else [failure.node]
        for node in nodes:
            executor = node.get_executor() if hasattr(node, "get_executor") else None
            for target in executor.get_all_targets() if executor else []:
                if isinstance(target, SCons.Node.FS.File) and not getattr(target.attributes, "snn_whole", False):
                    Path(target.get_abspath()).unlink(missing_ok=True)


class _Signatures:
    """Stands for the module SCons.dblite."""

    @staticmethod
    def open(name: str, flag: str) -> Any:
        path = name if name.endswith(".dblite") else name + ".dblite"
        if _only_looking() and (SCons.Script.GetOption("clean") or not os.path.exists(path)):
            return {}
        os.makedirs(os.path.dirname(path), exist_ok=True)
        return SCons.dblite.open(name, flag)
