"""The contract of a model (``docs/axes/model.md``): shapes, buffers, gradients, and sizes on the meta device."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from testbed.errors import ScenarioError
from testbed.testing.requirement import Broken, require, requirement
from testbed.testing.subject import Subject
from testbed.training.models import build_model, segments, shape_of_model, trained
from testbed.training.options.declarations import IMAGES, RECORDS, TEXT
from testbed.training.tables import EmbeddingTables
from testbed.training.trainer import TorchStep, mean_loss

CLASSES = 10
_BATCH = 4
_SHAPES = {IMAGES: ((1, 8, 8), (1, 28, 28), (3, 32, 32)), TEXT: ((16,), (64,)), RECORDS: ((2,), (20,))}

Shape = tuple[int, ...]


def _built(subject: Subject) -> Iterator[tuple[Shape, nn.Sequential]]:
    """Yield a model for each shape of samples. It may refuse some shapes with ``ScenarioError``, but not all."""
    takes = subject.entry.takes
    require(takes in _SHAPES, f"takes is {takes!r}", "declare takes = IMAGES, TEXT or RECORDS")
    refused = []
    for shape in _SHAPES[takes]:
        try:
            yield shape, _build(subject, shape)
        except ScenarioError as error:
            refused.append(str(error))
    if len(refused) == len(_SHAPES[takes]):
        problem, _, cure = refused[0].rpartition("; ")
        raise Broken(problem or cure, f"{cure} (docs/axes/model.md)" if problem else "see docs/axes/model.md")


def _build(subject: Subject, shape: Shape) -> nn.Sequential:
    return build_model(subject.kind, dict(subject.values), shape, CLASSES, seed=1)


def _batch(subject: Subject, shape: Shape) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)
    if subject.entry.takes == TEXT:
        characters = torch.randint(0, CLASSES, (_BATCH, *shape), generator=generator)
        return characters, characters.roll(-1, 1)
    labels = torch.randint(0, CLASSES, (_BATCH,), generator=generator)
    if subject.entry.takes == RECORDS:
        return torch.randint(0, 10**6, (_BATCH, *shape), generator=generator), labels
    return torch.rand(_BATCH, *shape, generator=generator), labels


@requirement("end with a layer of `classes` outputs: [batch, classes], for text [batch, context, classes]")
def scores_have_the_shape_of_the_labels(subject: Subject) -> None:
    """A model gives one float32 score per label and class."""
    for shape, model in _built(subject):
        inputs, labels = _batch(subject, shape)
        scores = model(inputs)
        found = f"{scores.dtype} {list(scores.shape)}"
        expected = f"torch.float32 {[*labels.shape, CLASSES]}"
        require(found == expected, f"{found}, not {expected}, for inputs {list(inputs.shape)}")


@requirement("use float32 layers; tie no weights, or write the model as one module that is not an nn.Sequential")
def it_has_parameters_and_no_buffers(subject: Subject) -> None:
    """A model has float32 parameters to train, no buffers, and blocks that share no parameter."""
    for _, model in _built(subject):  # building refuses buffers
        kinds = {str(parameter.dtype) for parameter in model.parameters() if parameter.requires_grad}
        require(kinds == {"torch.float32"}, f"parameters to train are {sorted(kinds)}")
        names = [name for name, _ in model.named_parameters(remove_duplicate=False)]
        require(len(names) == len(list(model.parameters())), f"{names} name some parameter twice")


@requirement("draw with torch's default generator only, while building, and do not call torch.manual_seed")
def the_seed_alone_decides_the_parameters(subject: Subject) -> None:
    """Two models of one seed have equal parameters, and torch's random numbers stay as they were."""
    for shape, model in _built(subject):
        torch.manual_seed(2)
        before = torch.random.get_rng_state()
        pairs = zip(model.parameters(), _build(subject, shape).parameters(), strict=True)
        require(all(torch.equal(one, other) for one, other in pairs), "two models of one seed differ")
        require(torch.equal(before, torch.random.get_rng_state()), "building seeds torch")


def _gradients(model: nn.Module, inputs: Tensor, labels: Tensor) -> tuple[Tensor, ...]:
    try:
        return torch.autograd.grad(mean_loss(model(inputs), labels), list(trained(model).values()))
    except RuntimeError as error:
        cure = "use every parameter in forward, or do not create it"
        raise Broken(f"no gradient of every parameter: {str(error).splitlines()[0]}", cure) from error


@requirement("use no dropout and no other random layer, deterministic operations only; look for 0/0 and log 0")
def gradients_are_finite_and_repeat(subject: Subject) -> None:
    """Every parameter has a finite gradient, which is the same whenever a batch is repeated."""
    for shape, model in _built(subject):
        batch = _batch(subject, shape)
        for name, one, other in zip(trained(model), _gradients(model, *batch), _gradients(model, *batch), strict=True):
            require(bool(one.isfinite().all()), f"the gradient of {name} has numbers that are not finite")
            require(torch.equal(one, other), f"gradients of {name} for equal batches differ")


@requirement("let blocks of the nn.Sequential pass on one tensor, and keep nothing between them")
def blocks_give_the_gradient_of_the_whole(subject: Subject) -> None:
    """With overlap: layers, a step runs block by block; its gradients have the bits of the whole step's."""
    for shape, model in _built(subject):
        inputs, labels = _batch(subject, shape)
        blocks = segments(model)
        step = TorchStep(blocks, inputs, labels)
        for index in range(len(blocks)):
            step.forward_segment(index)
        pieces = [step.backward_segment(index) for index in reversed(range(len(blocks)))]
        cut = [gradient for piece in reversed(pieces) for gradient in piece]
        whole = [gradient.reshape(-1) for gradient in _gradients(model, inputs, labels)]
        require(len(cut) == len(whole) and all(map(torch.equal, cut, whole)), "the gradients differ")


@requirement("declare tables where nn.Embedding, nn.EmbeddingBag or their functions, and no others, use a parameter")
def tables_are_declared(subject: Subject) -> None:
    """With tables = True, and only then, some parameter is used for look-ups alone; pull: rows sends its rows."""
    for shape, model in _built(subject):
        found = bool(EmbeddingTables(segments(model), _batch(subject, shape)[0]).widths)
        require(found == subject.entry.tables, f"tables = {subject.entry.tables}, and such a parameter: {found}")


@requirement("create layers from options, input_shape and classes alone, without looking at numbers")
def sizes_are_known_without_numbers(subject: Subject) -> None:
    """The sizes on the meta device, and the bounds from which deadlines are derived, are right (compute: modelled)."""
    for shape, model in _built(subject):
        sizes = tuple(parameter.numel() for parameter in trained(model).values())
        measured = shape_of_model(subject.kind, dict(subject.values), shape, CLASSES)
        same = measured.sizes == sizes and measured.keys == tuple(segment.keys for segment in segments(model))
        require(same, f"sizes {measured.sizes[:8]} on the meta device, but {sizes[:8]} of the model")
        counted = subject.entry.parameters_bound(subject.options, shape, CLASSES)
        bound = max(subject.entry.size_bound_bytes(subject.options), 4 * counted)
        cure = "return an upper bound in size_bound_bytes, or in parameters_bound"
        require(bound >= 4 * sum(sizes), f"{4 * sum(sizes)} bytes, and a bound of {bound}, for samples {shape}", cure)
