# SPDX-License-Identifier: Apache-2.0
"""What the user may choose for one network; every stage takes the same value."""

from __future__ import annotations

import dataclasses
import math
import re

from .errors import Unreadable

DEFAULT_NAME = "snn_network"
RESETS = ("zero", "subtract")
RESET_DELAYS = ("0", "1")
KERNELS = ("dense", "event")
FORMS = ("packed", "column")
LAYOUTS = ("plain", "xheep")


@dataclasses.dataclass(frozen=True)
class Options:
    """`dt` is in the file's own unit of time, None means: from the file; `input_scale` None means: not given (0). `form`: how the event
    kernel keeps weights, for 32-bit cores or for hosts with SIMD. `reset_delay`: steps between a spike and its reset: 0 as in NIR, 1 as
    in snnTorch. `weights_section` None means: where the compiler puts constants.

    Raises `Unreadable` (bad usage) for a value that no build can take.
    """

    name: str = DEFAULT_NAME
    quantize: bool = False
    dt: float | None = None
    reset: str = "zero"
    kernel: str = "event"
    input_scale: int | None = None
    form: str = "packed"
    reset_delay: int = 0
    weights_section: str | None = None

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[a-z][a-z0-9_]*", self.name) or self.name.endswith("_"):
            raise Unreadable(
                "",
                "",
                f"name '{self.name}' cannot prefix C symbols",
                "use lower-case letters, digits and underscores, a letter first",
            )
        if self.dt is not None and not (math.isfinite(self.dt) and self.dt > 0):
            raise Unreadable(
                "", "", f"dt {self.dt} is not a timestep", "pass a positive number in the file's unit of time"
            )
        for option, value, allowed in (
            ("reset", self.reset, RESETS),
            ("kernel", self.kernel, KERNELS),
            ("form", self.form, FORMS),
            ("reset_delay", str(self.reset_delay), RESET_DELAYS),
        ):
            if value not in allowed:
                raise Unreadable("", "", f"{option} '{value}' is unknown", "use " + " or ".join(allowed))
        if self.input_scale is not None and not -16 <= self.input_scale <= 16:
            raise Unreadable("", "", f"input_scale {self.input_scale} is out of range", "use -16 to 16")
        if self.input_scale is not None and not self.quantize:
            raise Unreadable("", "", "input_scale needs integer mode", "add --quantize, or leave input_scale out")
        if self.weights_section is not None and not re.fullmatch(r"[A-Za-z_.][A-Za-z0-9_.$-]*", self.weights_section):
            raise Unreadable(
                "",
                "",
                f"weights_section '{self.weights_section}' cannot name a section",
                "use letters, digits and . _ $ -, not a digit first",
            )

    @property
    def mode(self) -> str:
        """ "int8" or "f32": the arithmetic of the generated kernel."""
        return "int8" if self.quantize else "f32"

    @property
    def input_frac(self) -> int:
        """Fraction exponent f of the network input (DESIGN 4.5): a value is q * 2^-f."""
        return self.input_scale or 0
