"""Checks of a model (``docs/axes/model.md``): shapes, buffers, gradients, and its sizes without numbers."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from testbed.errors import ScenarioError
from testbed.testing.subject import Subject
from testbed.testing.verdict import CheckFailed, require
from testbed.training.models import build_model, segments, shape_of_model, trained
from testbed.training.options.declarations import IMAGES, RECORDS, TEXT
from testbed.training.tables import EmbeddingTables
from testbed.training.trainer import TorchStep, mean_loss

CLASSES = 10
_BATCH = 4
_SHAPES = {IMAGES: ((1, 8, 8), (1, 28, 28), (3, 32, 32)), TEXT: ((16,), (64,)), RECORDS: ((2,), (20,))}


def shapes(subject: Subject) -> Iterator[tuple[int, ...]]:
    """Yield the shapes of samples that the model accepts; it may refuse some with ``ScenarioError``, but not all."""
    takes = subject.entry.takes
    require(takes in _SHAPES, "takes: images, text or records", repr(takes), "declare takes = IMAGES, TEXT or RECORDS")
    refused = []
    for shape in _SHAPES[takes]:
        try:
            _build(subject, shape)
        except ScenarioError as error:
            refused.append(str(error))
        else:
            yield shape
    if len(refused) == len(_SHAPES[takes]):
        problem, _, cure = refused[0].rpartition("; ")
        expected = f"a model for samples of one of the shapes {_SHAPES[takes]}"
        raise CheckFailed(
            expected, problem or cure, f"{cure} (docs/axes/model.md)" if problem else "see docs/axes/model.md"
        )


def _build(subject: Subject, shape: tuple[int, ...]) -> nn.Sequential:
    return build_model(subject.kind, dict(subject.values), shape, CLASSES, seed=1)


def _batch(subject: Subject, shape: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)
    if subject.entry.takes == TEXT:
        characters = torch.randint(0, CLASSES, (_BATCH, *shape), generator=generator)
        return characters, characters.roll(-1, 1)
    labels = torch.randint(0, CLASSES, (_BATCH,), generator=generator)
    if subject.entry.takes == RECORDS:
        return torch.randint(0, 10**6, (_BATCH, *shape), generator=generator), labels
    return torch.rand(_BATCH, *shape, generator=generator), labels


def scores_have_the_shape_of_the_labels(subject: Subject) -> None:
    for shape in shapes(subject):
        inputs, labels = _batch(subject, shape)
        expected = [*labels.shape, CLASSES]
        scores = _build(subject, shape)(inputs)
        require(
            list(scores.shape) == expected and scores.dtype == torch.float32, f"scores float32 {expected}",
            f"{scores.dtype} {list(scores.shape)} for inputs {list(inputs.shape)}",
            "end with a layer of `classes` outputs: [batch, classes], for text [batch, context, classes]",
        )  # fmt: skip


def it_has_parameters_and_no_buffers(subject: Subject) -> None:
    for shape in shapes(subject):
        model = _build(subject, shape)  # which refuses buffers
        kinds = {str(parameter.dtype) for parameter in model.parameters() if parameter.requires_grad}
        require(kinds == {"torch.float32"}, "float32 parameters to train", str(sorted(kinds)), "use float32 layers")
        names = [name for name, _ in model.named_parameters(remove_duplicate=False)]
        require(
            len(names) == len(list(model.parameters())), "blocks that share no parameter", f"{names} name some twice",
            "tie no weights, or write the model as one module that is no nn.Sequential",
        )  # fmt: skip


def the_seed_alone_decides_the_parameters(subject: Subject) -> None:
    for shape in shapes(subject):
        state = torch.random.get_rng_state()
        values = []
        for torchs_seed in (1, 2):
            torch.manual_seed(torchs_seed)
            values.append([parameter.detach() for parameter in _build(subject, shape).parameters()])
        torch.random.set_rng_state(state)
        _build(subject, shape)
        require(
            all(torch.equal(a, b) for a, b in zip(*values, strict=True)), "equal parameters from an equal seed",
            "two builds differ", "draw with torch's default generator only, while building",
        )  # fmt: skip
        require(
            torch.equal(state, torch.random.get_rng_state()), "torch's random numbers as they were",
            "build seeded torch",
            "do not call torch.manual_seed",
        )  # fmt: skip


def _gradients(model: nn.Module, inputs: Tensor, labels: Tensor) -> tuple[Tensor, ...]:
    try:
        return torch.autograd.grad(mean_loss(model(inputs), labels), list(trained(model).values()))
    except RuntimeError as error:
        raise CheckFailed(
            "a gradient of every parameter",
            str(error).splitlines()[0],
            "use every parameter in forward, or do not create it",
        ) from error


def gradients_are_finite_and_repeat(subject: Subject) -> None:
    for shape in shapes(subject):
        inputs, labels = _batch(subject, shape)
        model = _build(subject, shape)
        first, again = _gradients(model, inputs, labels), _gradients(model, inputs, labels)
        names = list(trained(model))
        for name, one, other in zip(names, first, again, strict=True):
            require(bool(one.isfinite().all()), "finite gradients", f"{name} has others", "look for 0/0 and log 0")
            require(
                torch.equal(one, other), "equal gradients of equal batches", f"those of {name} differ",
                "use no dropout and no other random layer; deterministic operations only",
            )  # fmt: skip


def blocks_give_the_gradient_of_the_whole(subject: Subject) -> None:
    """With ``overlap: layers`` a step runs block by block, and must give the same bits."""
    for shape in shapes(subject):
        inputs, labels = _batch(subject, shape)
        model = _build(subject, shape)
        blocks = segments(model)
        step = TorchStep(blocks, inputs, labels)
        for index in range(len(blocks)):
            step.forward_segment(index)
        pieces = [step.backward_segment(index) for index in reversed(range(len(blocks)))]
        cut = [gradient for piece in reversed(pieces) for gradient in piece]
        whole = [gradient.reshape(-1) for gradient in _gradients(model, inputs, labels)]
        require(
            len(cut) == len(whole) and all(torch.equal(a, b) for a, b in zip(cut, whole, strict=True)),
            "the gradients of the whole step, block by block", "they differ",
            "let blocks of the nn.Sequential pass on one tensor, and keep nothing between them",
        )  # fmt: skip


def tables_are_declared(subject: Subject) -> None:
    """``pull: rows`` sends parameters by rows that a forward pass uses for look-ups alone."""
    for shape in shapes(subject):
        found = bool(EmbeddingTables(segments(_build(subject, shape)), _batch(subject, shape)[0]).widths)
        require(
            found == subject.entry.tables, f"tables = {found}", f"tables = {subject.entry.tables}",
            "declare whether a parameter is used by nn.Embedding, nn.EmbeddingBag or their functions, and by no other",
        )  # fmt: skip


def sizes_are_known_without_numbers(subject: Subject) -> None:
    """``compute: modelled`` builds the model on torch's meta device."""
    for shape in shapes(subject):
        sizes = tuple(parameter.numel() for parameter in trained(_build(subject, shape)).values())
        measured = shape_of_model(subject.kind, dict(subject.values), shape, CLASSES)
        require(
            measured.sizes == sizes, f"the same sizes on the meta device: {sizes[:8]}", str(measured.sizes[:8]),
            "create layers from options, input_shape and classes alone, without looking at numbers",
        )  # fmt: skip
        size_bytes, counted = 4 * sum(sizes), subject.entry.parameters_bound(subject.options, shape, CLASSES)
        bound = max(subject.entry.size_bound_bytes(subject.options), 4 * counted)
        require(
            bound >= size_bytes, f"size_bound_bytes of at least {size_bytes}, for samples {shape}", str(bound),
            "return an upper bound there, or in parameters_bound: deadlines are derived from it",
        )  # fmt: skip
