"""The shape of a job's model, given the shape of its data."""

from __future__ import annotations

from testbed.settings.job import Choice
from testbed.training.datasets import load_dataset
from testbed.training.models import shape_of_model
from testbed.training.options import DATASETS
from testbed.training.options.declarations import NOTHING
from testbed.training.shapes import ModelShape


def shape_of_job(model: Choice, data: Choice, seed: int) -> ModelShape:
    """Return segments, sizes and work of a model for these data; nothing is computed. Raise as ``shape_of_model``."""
    input_shape: tuple[int, ...] = ()
    classes = 0
    if DATASETS[data.kind].gives != NOTHING:
        dataset = load_dataset(data.kind, data.options, seed)
        input_shape = dataset.input_shape
        classes = dataset.classes
    return shape_of_model(model.kind, model.options, input_shape, classes)
