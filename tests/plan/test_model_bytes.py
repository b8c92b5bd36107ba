"""The bound of a model's size, from which deadlines are derived, against its parameters counted without memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import MISSING, fields
from typing import Any

import torch

from testbed.axes import Axis
from testbed.errors import ScenarioError
from testbed.plan.model import Choice
from testbed.plan.timeouts import model_bytes
from testbed.training.datasets import load_dataset
from testbed.training.models import assemble
from testbed.training.options import DATASETS, MODELS
from testbed.training.options.declarations import IMAGES, RECORDS, TEXT
from tests.for_each import for_each

PAIRS = [
    (kind, data)
    for kind, model in MODELS.shipped.items()
    for data, samples in DATASETS.shipped.items()
    if model.takes == samples.gives in (IMAGES, TEXT, RECORDS)
]


def extremes(axis: Axis[Any], kind: str) -> Iterator[dict[str, Any]]:
    """Options as they are, all at their least, all at their most, and each of them at its most alone."""
    ends: dict[str, list[Any]] = {}
    for each in fields(axis[kind]):
        assert each.default is not MISSING
        if "choices" in each.metadata:
            ends[each.name] = list(each.metadata["choices"])
        elif "max" in each.metadata and isinstance(each.default, int):
            ends[each.name] = [each.metadata["min"], each.metadata["max"]]
    yield {}
    for end in (0, -1):
        yield {name: values[end] for name, values in ends.items()}
    for name, values in ends.items():
        yield {name: values[-1]}


def counted(kind: str, options: dict[str, Any], shape: tuple[int, ...], classes: int) -> int | None:
    """Parameters of a model; ``None`` if it is not for such samples."""
    try:
        with torch.device("meta"):
            return sum(parameter.numel() for parameter in assemble(kind, options, shape, classes).parameters())
    except ScenarioError:
        return None


@for_each(("kind", "data"), [*PAIRS][::16])
def test_no_model_is_larger_than_its_bound(kind: str, data: str) -> None:
    checked = 0
    for of_data in extremes(DATASETS, data):
        shape, classes = DATASETS[data].sample_bound(DATASETS.options(data, of_data))
        for options in extremes(MODELS, kind):
            if (parameters := counted(kind, options, shape, classes)) is None:
                continue
            bound = model_bytes(Choice(kind=kind, options=options), Choice(kind=data, options=of_data))
            usual = MODELS[kind].size_bound_bytes(MODELS.options(kind, options))
            assert 4 * parameters <= bound <= max(usual, 5 * 4 * parameters), (of_data, options)
            checked += 1
    assert checked


@for_each(
    ("data", "options"),
    [
        ("digits", {}),
        ("teacher", {"side": 9, "channels": 5, "classes": 7}),
        ("tokens", {"context": 12, "vocabulary": 50}),
        ("clicks", {"fields": 3}),
    ],
)
def test_samples_are_known_before_they_are_drawn(data: str, options: dict[str, Any]) -> None:
    drawn = load_dataset(data, options, 1)
    assert DATASETS[data].sample_bound(DATASETS.options(data, options)) == (drawn.input_shape, drawn.classes)
