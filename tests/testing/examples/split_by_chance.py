"""Broken on purpose: the deck is shuffled by torch's own random numbers, so that workers draw different decks."""

from dataclasses import dataclass

import torch
from torch import Tensor

from testbed.training.splits.base import Split


class ByChance(Split):
    """Equal shares of a shuffled deck."""

    @dataclass(frozen=True, slots=True)
    class Options:
        """No options."""

    @staticmethod
    def cut(options: Options, labels: Tensor, seed: int, workers: int) -> list[Tensor]:
        return list(torch.randperm(len(labels)).tensor_split(workers))
