# SPDX-License-Identifier: Apache-2.0
"""Writing results: whole or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from .errors import Unreadable


def write_all(
    directory: str | os.PathLike[str], contents: Mapping[str, str | bytes], keep_unchanged: bool = False
) -> None:
    """Writes files by name into a directory, which is made if needed: each to a temporary file first, renamed when all are written.
    `keep_unchanged`: a file that already has this content is left alone, with its time, so that what is made of it stays up to date."""
    folder = Path(directory)
    written: list[tuple[str, Path]] = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in contents.items():
            data = content.encode() if isinstance(content, str) else content
            if keep_unchanged and (folder / name).is_file() and (folder / name).read_bytes() == data:
                continue
            handle, temporary = tempfile.mkstemp(prefix=f".{name}.", dir=folder)
            written.append((temporary, folder / name))
            with open(handle, "wb") as stream:
                stream.write(data)
        mask = os.umask(0)
        os.umask(mask)
        for temporary, target in written:
            os.chmod(temporary, 0o666 & ~mask)
            os.replace(temporary, target)
    except OSError as error:
        raise Unreadable(
            folder, "", f"cannot be written ({error.strerror})", "check the path, its permissions and the space left"
        ) from None
    finally:
        for temporary, _ in written:
            if os.path.exists(temporary):
                os.unlink(temporary)


def write(path: str | os.PathLike[str], content: str | bytes) -> None:
    """Writes one file."""
    write_all(Path(path).parent, {Path(path).name: content})


def read_text(path: str | os.PathLike[str]) -> str:
    """The text of a file that an earlier stage wrote; raises `Unreadable`."""
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not text"
        raise Unreadable(path, "", f"cannot be read ({reason})", "check the path") from None
