"""Samples are shuffled, sorted by class, and dealt out like cards: every worker has all classes in equal shares."""

from dataclasses import dataclass

import torch
from torch import Tensor

from testbed.training.seeds import torch_stream
from testbed.training.splits.base import Split


class DealtCards(Split):
    """Worker r of N gets the samples r, r + N, r + 2 N, … of the sorted deck."""

    @dataclass(frozen=True, slots=True)
    class Options:
        """No options."""

    @staticmethod
    def cut(options: Options, labels: Tensor, seed: int, workers: int) -> list[Tensor]:
        deck = torch.randperm(len(labels), generator=torch_stream(seed, "dealt-cards"))
        if labels.dim() == 1:
            deck = deck[torch.argsort(labels[deck], stable=True)]
        return [deck[rank::workers] for rank in range(workers)]
