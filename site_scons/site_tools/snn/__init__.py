# SPDX-License-Identifier: Apache-2.0
"""Where SCons looks for `Tool("snn")`: the tool itself is snn_builder.scons, of this checkout."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
from snn_builder.scons import exists, generate, options  # noqa: F401
