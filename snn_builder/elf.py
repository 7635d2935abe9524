# SPDX-License-Identifier: Apache-2.0
"""How large an image is, from its ELF file: the same measure for every toolchain."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Sequence

from elftools.common.exceptions import ELFError
from elftools.elf.constants import SH_FLAGS
from elftools.elf.elffile import ELFFile

from .errors import Unreadable


@dataclasses.dataclass(frozen=True)
class Sizes:
    """Bytes of an image by what they are: instructions, constants, initialised and cleared variables.

    Of a native program they include what the C library and the loader add.
    """

    text: int
    rodata: int
    data: int
    bss: int

    @property
    def flash(self) -> int:
        """What has to be stored."""
        return self.text + self.rodata + self.data

    @property
    def ram(self) -> int:
        """What changes while it runs, without the stack."""
        return self.data + self.bss


def sections(path: str | os.PathLike[str]) -> Sizes:
    """The sizes of the ELF file `path`: its sections that take memory, by their flags. Raises `Unreadable`."""
    sizes = dict.fromkeys(("text", "rodata", "data", "bss"), 0)
    try:
        with open(path, "rb") as stream:
            for section in ELFFile(stream).iter_sections():
                flags = section["sh_flags"]
                if not flags & SH_FLAGS.SHF_ALLOC:
                    continue
                if section["sh_type"] == "SHT_NOBITS":
                    part = "bss"
                elif flags & SH_FLAGS.SHF_EXECINSTR:
                    part = "text"
                else:
                    part = "data" if flags & SH_FLAGS.SHF_WRITE else "rodata"
                sizes[part] += section["sh_size"]
    except OSError as error:
        raise Unreadable(path, "", f"cannot be read ({error.strerror})", "build it first") from None
    except ELFError:
        raise Unreadable(path, "", "not an ELF file", "pass an image, firmware.elf") from None
    return Sizes(**sizes)


def main(files: Sequence[str], as_json: bool) -> int:
    """Prints one row per image, or a JSON object of them by file name; returns the exit status."""
    images = {os.fspath(file): sections(file) for file in files}
    if as_json:
        rows = {
            file: dataclasses.asdict(sizes) | {"flash": sizes.flash, "ram": sizes.ram} for file, sizes in images.items()
        }
        print(json.dumps(rows, indent=1))
        return 0
    print(f"{'text':>9} {'rodata':>9} {'data':>9} {'bss':>9} | {'flash':>9} {'ram':>9}")
    for file, s in images.items():
        print(f"{s.text:9} {s.rodata:9} {s.data:9} {s.bss:9} | {s.flash:9} {s.ram:9}  {file}")
    return 0
