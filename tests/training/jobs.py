"""Small training jobs of every kind, for tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from testbed.training.batches import Batches
from testbed.training.datasets import Dataset, load_dataset
from testbed.training.models import build_model
from testbed.training.splits import share_of
from testbed.training.trainer import Trainer

TEXT = "the quick brown fox jumps over the lazy dog; " * 60

# (model, options, data, options); text files are written by ``dataset_for``.
JOBS: dict[str, tuple[str, dict[str, Any], str, dict[str, Any]]] = {
    "cnn": ("cnn", {}, "digits", {}),
    "lenet": ("lenet", {}, "digits", {}),
    "mlp": ("mlp", {"hidden": 16, "layers": 2}, "teacher", {"train_samples": 256, "test_samples": 64}),
    "resnet": ("resnet", {}, "teacher", {"train_samples": 128, "test_samples": 32, "side": 16, "channels": 3}),
    "recommender": ("recommender", {"rows": 150, "width": 4}, "clicks", {"categories": 100, "train_samples": 400}),
    "transformer": ("transformer", {"heads": 2, "head_width": 8}, "text", {"context": 16}),
}


def dataset_for(data: str, options: dict[str, Any], folder: Path) -> Dataset:
    if data == "text":
        file = folder / "fox.txt"
        file.write_text(TEXT, encoding="utf-8")
        options = {**options, "file": str(file)}
    return load_dataset(data, options, seed=1)


def trainer_for(job: str, folder: Path, *, seed: int = 3, rank: int = 0) -> Trainer:
    kind, options, data, data_options = JOBS[job]
    dataset = dataset_for(data, data_options, folder)
    model = build_model(kind, options, dataset.input_shape, dataset.classes, seed)
    share = share_of(dataset.train_labels, "iid", {}, 1, rank, 2)
    return Trainer(model, dataset, Batches(share, 8, 1, rank))


def same_bits(left: list[torch.Tensor], right: list[torch.Tensor]) -> bool:
    return len(left) == len(right) and all(
        a.shape == b.shape and a.numpy().tobytes() == b.numpy().tobytes() for a, b in zip(left, right, strict=True)
    )
