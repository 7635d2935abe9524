# SPDX-License-Identifier: Apache-2.0
"""Input, label and output arrays of a user: `.npy`, or `.npz` by terminal name where a network has several."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from .errors import Refused, Unreadable
from .network import Network, Shape, size
from .program import Array


def load(path: str | os.PathLike[str]) -> dict[str, Array]:
    """The arrays of a `.npz` by name, of a `.npy` under "". Raises `Unreadable`."""
    try:
        loaded: Any = np.load(path, allow_pickle=False)
        return {name: loaded[name] for name in loaded.files} if hasattr(loaded, "files") else {"": loaded}
    except FileNotFoundError:
        raise Unreadable(path, "", "no such file", "check the path") from None
    except (OSError, ValueError, EOFError, KeyError):
        raise Unreadable(path, "", "not a NumPy array file", "save it with numpy.save (no pickled objects)") from None


def load_inputs(path: str | os.PathLike[str], network: Network) -> tuple[dict[str, Array], bool]:
    """Per Input, (samples, steps, *shape); and whether the file holds samples (rank 2+n) or one run (rank 1+n).

    A layer may also come flat: one axis in place of the shape's. Raises `Refused` where shapes do not fit."""
    arrays = load(path)
    terminals = network.terminals("Input")
    if set(arrays) == {""} and len(terminals) == 1:
        arrays = {terminals[0].name: arrays[""]}
    wanted = {terminal.name for terminal in terminals}
    if set(arrays) != wanted:
        raise Refused(
            path,
            "",
            f"the network's inputs are {', '.join(sorted(wanted))}",
            "save one array per input, by name, with numpy.savez",
        )
    found = {
        terminal.name: in_samples(arrays[terminal.name], terminal.name, terminal.shape, path) for terminal in terminals
    }
    if len({(array.shape[:2], many) for array, many in found.values()}) > 1:
        raise Refused(path, "", "the inputs differ in samples or steps", "give every input the same number of both")
    return {name: array for name, (array, _) in found.items()}, next(iter(found.values()))[1]


def in_samples(data: Array, name: str, shape: Shape, path: str | os.PathLike[str]) -> tuple[Array, bool]:
    """Data for the Input `name` as (samples, steps, *shape), and whether it came with an axis of samples. Raises `Refused`."""
    if data.size == 0:
        raise Refused(path, name, f"no data: its shape is {data.shape}", "give at least one step")
    for tail in (shape, (size(shape),)):
        for leading in (1, 2):
            if data.ndim == leading + len(tail) and data.shape[leading:] == tail:
                leads = data.shape[:leading] if leading == 2 else (1, *data.shape[:1])
                return data.reshape(*leads, *shape), leading == 2
    dims = " x ".join(map(str, shape))
    raise Refused(
        path,
        name,
        f"data of shape {data.shape} does not fit an input of {dims}",
        f"give steps x {dims}, or samples x steps x {dims}",
    )


def fits_as_it_is(data: Array, quantize: bool, input_scale: int | None) -> bool:
    """Whether data needs nothing but another type to be the mode's numbers. Long runs are mostly spikes: they are not to be looked at
    many times."""
    if not quantize:
        return data.dtype.kind in "iub"
    return input_scale is None and data.dtype.kind in "ib" and data.dtype.itemsize == 1


def as_numbers(
    data: Array, quantize: bool, input_scale: int | None, name: str, path: str | os.PathLike[str]
) -> tuple[Array, int]:
    """Data for the Input `name` in the mode's numbers, float32 or int64 that fits int8, and how many had to be saturated for that.
    Raises `Refused` for what the mode cannot take."""
    if fits_as_it_is(data, quantize, input_scale):
        return data.astype(np.int64 if quantize else np.float32, copy=False), 0
    whole_numbers = data.dtype.kind in "iub"
    if not whole_numbers and (data.dtype.kind != "f" or not np.all(np.isfinite(data))):
        raise Refused(path, name, "the input data holds values that are not finite numbers", "correct the data")
    if not quantize:
        return data.astype(np.float32, copy=False), 0
    if input_scale is None:
        if not whole_numbers and np.any(data != np.rint(data)):
            raise Refused(
                path,
                name,
                "the input data is not whole, and integer mode takes int8",
                "pass input_scale= (value = q * 2^-input_scale)",
            )
        whole = data.astype(np.float64)
    else:
        whole = np.rint(np.ldexp(data.astype(np.float64), input_scale))
    clipped = np.clip(whole, -128, 127)
    return clipped.astype(np.int64), int(np.count_nonzero(clipped != whole))


def load_labels(path: str | os.PathLike[str], samples: int) -> Array:
    """(samples,) int64. Raises `Unreadable` or `Refused`."""
    labels = load(path).get("")
    if labels is None or labels.shape != (samples,) or labels.dtype.kind not in "iu":
        raise Refused(
            path, "", f"labels do not fit {samples} samples", "save one whole number per sample, shape (samples,)"
        )
    return labels.astype(np.int64)


def random_spikes(network: Network, steps: int = 32, density: float = 0.1) -> dict[str, Array]:
    """Per Input, (1, steps, *shape) of 0 and 1 from a fixed seed: something to run a network on that came without data. The legacy
    generator, because its stream is frozen."""
    generator = np.random.RandomState(0)
    return {
        terminal.name: (generator.random_sample((1, steps, *terminal.shape)) < density).astype(np.int8)
        for terminal in network.terminals("Input")
    }


def labels_beside(path: str | os.PathLike[str]) -> Path:
    """Where the labels of an input file are looked for: `input.npy` -> `input.labels.npy`."""
    return Path(path).with_suffix(".labels.npy")


def arrays_as_bytes(arrays: dict[str, Array]) -> bytes:
    """One array as `.npy`, several as `.npz`; the same bytes for the same arrays."""
    import io
    import zipfile

    def npy(array: Array) -> bytes:
        stream = io.BytesIO()
        np.lib.format.write_array(stream, np.ascontiguousarray(array), allow_pickle=False)
        return stream.getvalue()

    if set(arrays) == {""}:
        return npy(arrays[""])
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, array in arrays.items():
            archive.writestr(zipfile.ZipInfo(f"{name}.npy", (1980, 1, 1, 0, 0, 0)), npy(array))
    return stream.getvalue()
