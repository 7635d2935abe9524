# SPDX-License-Identifier: Apache-2.0
"""Train the shipped digits network in snnTorch; write its NIR file and its test samples.

Needs the `train` extra (torch, snntorch, nirtorch, nir, scikit-learn), runs on one CPU core in under two minutes,
and is deterministic: the same versions on the same kind of machine write the same bytes.
"""

from __future__ import annotations

import argparse
from collections import OrderedDict
from pathlib import Path

import nir
import numpy as np
import snntorch
import torch
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from snntorch.export_nir import export_to_nir
from snntorch.surrogate import atan
from snntorch.utils import reset
from torch.nn.functional import cross_entropy, dropout

PIXEL_MAX = 16  # the data set's grey levels are 0..16
STEPS = 12
HIDDEN = 48
BETA_HIDDEN = 0.9
BETA_OUTPUT = 0.95
WEIGHT_LIMIT = 127 / 128  # see train()
SHIPPED_PER_CLASS = 10


def encode(pixels: NDArray[np.int64], steps: int = STEPS) -> NDArray[np.int8]:
    """Grey levels (samples, 64) of 0..16 as evenly spaced spikes, int8 0/1 of shape (samples, steps, 64).

    An accumulator per pixel starts half full, takes the grey level each step, spikes when it reaches 16, and keeps
    the rest.
    """
    filled = (PIXEL_MAX // 2 + np.arange(steps + 1)[:, None] * pixels[:, None, :]) // PIXEL_MAX
    return np.diff(filled, axis=1).astype(np.int8)


def build() -> torch.nn.Sequential:
    """Return the untrained 64-48-10 network; one call is one time step, (batch, 64) to (batch, 10)."""

    def leaky(size: int, beta: float) -> snntorch.Leaky:
        # NIR resets to v_reset, and in the step that spikes; snnTorch's defaults subtract, one step later.
        return snntorch.Leaky(
            beta=torch.full((size,), beta),
            threshold=torch.ones(size),
            spike_grad=atan(),
            init_hidden=True,
            reset_mechanism="zero",
            reset_delay=False,
        )

    return torch.nn.Sequential(
        OrderedDict(
            fc1=torch.nn.Linear(64, HIDDEN),
            lif1=leaky(HIDDEN, BETA_HIDDEN),
            fc2=torch.nn.Linear(HIDDEN, 10),
            lif2=leaky(10, BETA_OUTPUT),
        )
    )


def spike_counts(net: torch.nn.Sequential, spikes: torch.Tensor, drop: float = 0.0) -> torch.Tensor:
    """Output spikes of each class, (batch, 10), summed over the steps of `spikes`, (batch, steps, 64)."""
    reset(net)
    hidden, output = net[:2], net[2:]
    keep = dropout(torch.ones(len(spikes), HIDDEN), drop)  # one mask for all steps of a sample
    return torch.stack([output(hidden(x) * keep) for x in spikes.unbind(1)]).sum(0)


def train(net: torch.nn.Sequential, spikes: torch.Tensor, labels: torch.Tensor, epochs: int) -> None:
    """Adam on the cross entropy of the spike counts, halved so that a clear answer takes several spikes.

    Weights are held within +-127/128, the range of an int8 with seven fraction bits: quantisation then has no outlier
    to make room for, and a retrained network is likely to keep its scales.
    """
    optimiser = torch.optim.Adam(net.parameters(), lr=4e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, epochs)
    for _ in range(epochs):
        for batch in torch.randperm(len(spikes)).split(64):
            optimiser.zero_grad()
            scores = spike_counts(net, spikes[batch], drop=0.1) / 2
            cross_entropy(scores, labels[batch], label_smoothing=0.05).backward()
            optimiser.step()
            with torch.no_grad():
                for name, parameter in net.named_parameters():
                    if name.endswith(".weight"):
                        parameter.clamp_(-WEIGHT_LIMIT, WEIGHT_LIMIT)
        schedule.step()


def accuracy(net: torch.nn.Sequential, spikes: NDArray[np.int8], labels: NDArray[np.int64]) -> float:
    """Share of samples whose class has most output spikes; a tie goes to the lowest class."""
    with torch.no_grad():
        counts = spike_counts(net, torch.from_numpy(spikes).float()).numpy()
    return float((counts.argmax(axis=1) == labels).mean())


def export(net: torch.nn.Sequential, path: Path) -> None:
    """Write the network as NIR."""
    graph = export_to_nir(net, torch.zeros(1, 64), ignore_dims=[0])
    graph.edges.sort()  # they come out of a set
    nir.write(path, graph)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    here = Path(__file__).parent
    parser.add_argument("-o", "--output", type=Path, default=here, metavar="DIR", help="where to write (default: here)")
    parser.add_argument("--held-out", type=Path, metavar="X.npy", help="also all held-out samples, and X.labels.npy")
    parser.add_argument("--seed", type=int, default=0, help="of split, initial weights and batches (default: 0)")
    parser.add_argument("--epochs", type=int, default=60, help="passes over the training set (default: 60)")
    options = parser.parse_args()
    torch.manual_seed(options.seed)
    torch.set_num_threads(1)  # sums in parallel have no fixed order
    torch.use_deterministic_algorithms(True)

    digits = load_digits()
    spikes = encode(digits.data.astype(np.int64))
    labels = digits.target.astype(np.int64)
    everything = np.arange(len(labels))
    seen, held_out = train_test_split(everything, test_size=0.2, stratify=labels, random_state=options.seed)
    # The first ten of each class, in the order of the seeded split: balanced, and not chosen by result.
    firsts = [np.flatnonzero(labels[held_out] == digit)[:SHIPPED_PER_CLASS] for digit in range(10)]
    shipped = held_out[np.sort(np.concatenate(firsts))]

    net = build()
    train(net, torch.from_numpy(spikes[seen]).float(), torch.from_numpy(labels[seen]), options.epochs)
    net.eval()

    options.output.mkdir(parents=True, exist_ok=True)
    export(net, options.output / "digits.nir")
    np.save(options.output / "input.npy", spikes[shipped])
    np.save(options.output / "input.labels.npy", labels[shipped])
    if options.held_out:
        np.save(options.held_out, spikes[held_out])
        np.save(options.held_out.with_suffix(".labels.npy"), labels[held_out])
    for name, part in (("training", seen), ("held-out", held_out), ("shipped", shipped)):
        print(f"{name}: {len(part)} samples, accuracy {accuracy(net, spikes[part], labels[part]):.4f}")


if __name__ == "__main__":
    main()
