"""Checks of a data set (``docs/axes/data.md``): tensors, their ranges and labels, and what the seed decides."""

from __future__ import annotations

import torch
from torch import Tensor

from testbed.testing.subject import Subject
from testbed.testing.verdict import CheckFailed, require
from testbed.training.datasets import Dataset, digest_of, load_anew
from testbed.training.options.declarations import IMAGES, RECORDS, TEXT

_SEED = 5


def _load(subject: Subject) -> Dataset:
    return load_anew(subject.kind, dict(subject.values), _SEED)


def samples_are_what_gives_declares(subject: Subject) -> None:
    data, gives = _load(subject), subject.entry.gives
    known = (IMAGES, TEXT, RECORDS)
    require(gives in known, "gives: images, text or records", repr(gives), "declare gives = IMAGES, TEXT or RECORDS")
    dimensions, dtypes = (4, (torch.float32, torch.uint8)) if gives == IMAGES else (2, (torch.int64,))
    for inputs, part in ((data.train_inputs, "train"), (data.test_inputs, "test")):
        require(
            inputs.dim() == dimensions and inputs.dtype in dtypes and len(inputs) > 0,
            f"{part} inputs of {dimensions} dimensions, {' or '.join(map(str, dtypes))}, with samples",
            f"{inputs.dtype} {list(inputs.shape)}",
            "images: [count, channels, height, width]; text: characters [count, context]; records: [count, fields]",
        )  # fmt: skip
        require(
            not inputs.is_floating_point() or bool(inputs.isfinite().all()), f"finite {part} inputs", "NaN or infinite",
            "scale or drop such samples",
        )  # fmt: skip
    require(
        data.train_inputs.shape[1:] == data.test_inputs.shape[1:], "one shape of samples for training and test",
        f"{list(data.train_inputs.shape[1:])} and {list(data.test_inputs.shape[1:])}", "reshape them alike",
    )  # fmt: skip
    if (bound := subject.entry.sample_bound(subject.options)) is not None:
        pairs = zip((*bound[0], bound[1]), (*data.input_shape, data.classes), strict=False)
        require(
            len(bound[0]) == len(data.input_shape) and all(most >= loaded for most, loaded in pairs),
            f"a sample_bound of at least ({data.input_shape}, {data.classes})", str(bound),
            "return what load returns, or more: deadlines are derived from it",
        )  # fmt: skip


def labels_count_the_classes(subject: Subject) -> None:
    data = _load(subject)
    require(
        isinstance(data.classes, int) and data.classes >= 2, "at least 2 classes", repr(data.classes), "set classes"
    )
    for inputs, labels, part in (
        (data.train_inputs, data.train_labels, "train"), (data.test_inputs, data.test_labels, "test"),
    ):  # fmt: skip
        shape = inputs.shape if subject.entry.gives == TEXT else inputs.shape[:1]
        require(
            labels.dtype == torch.int64 and labels.shape == shape, f"{part} labels int64 {list(shape)}",
            f"{labels.dtype} {list(labels.shape)}", "one label per sample, or per character",
        )  # fmt: skip
        _in_range(labels, data.classes, f"{part} labels")
        if subject.entry.gives == TEXT:
            _in_range(inputs, data.classes, f"{part} characters")


def _in_range(numbers: Tensor, classes: int, what: str) -> None:
    least, most = int(numbers.min()), int(numbers.max())
    require(
        least >= 0 and most < classes, f"{what} from 0 to {classes - 1}", f"{least} to {most}",
        "number classes from 0, and set classes to their number",
    )  # fmt: skip


def the_seed_alone_decides_the_samples(subject: Subject) -> None:
    marks = []
    for torchs_seed in (1, 2):
        torch.manual_seed(torchs_seed)  # torch's global generator must not have any effect
        data = _load(subject)
        marks.append(digest_of(data.train_inputs, data.train_labels) + digest_of(data.test_inputs, data.test_labels))
    if marks[0] != marks[1]:
        raise CheckFailed(
            "equal samples from equal options and seed", "two loads differ",
            "draw from testbed.training.seeds.numpy_stream(seed, …), and sort lists of files",
        )  # fmt: skip


def torchs_own_stream_is_left_alone(subject: Subject) -> None:
    before = torch.random.get_rng_state()
    _load(subject)
    require(
        torch.equal(before, torch.random.get_rng_state()), "torch's global random numbers as they were",
        "load drew some",
        "use a generator of your own",
    )  # fmt: skip
