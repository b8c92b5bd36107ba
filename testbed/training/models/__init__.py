"""Models by name, each a sequence of named blocks. Every trained tensor is a key, in the model's order.

No model has buffers, such as the running means and variances of batch normalisation. Gradients do not train buffers, so
they would have to be averaged separately; and their mean over data centres with different data fits none of these
(Hsieh et al., The Non-IID Data Quagmire of Decentralized Machine Learning, 2020). Models use group normalisation, which
has no buffers.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.utils._python_dispatch import TorchDispatchMode

from testbed.errors import ScenarioError
from testbed.key_shape import activation_shape
from testbed.training.declared import declared_shape
from testbed.training.models.large import resnet50, vision_transformer
from testbed.training.models.recommender import recommender
from testbed.training.models.small import cnn, lenet, mlp, resnet
from testbed.training.models.transformer import transformer
from testbed.training.options import MODELS
from testbed.training.options.declarations import IMAGES, RECORDS, TEXT
from testbed.training.options.models import Declared
from testbed.training.seeds import seed_for
from testbed.training.shapes import ModelShape, SegmentShape, key_ranges


@dataclass(frozen=True, slots=True)
class Segment:
    """One segment: a module that maps the previous segment's output to the next one's input, and its keys."""

    name: str
    module: nn.Module
    keys: range

    @property
    def parameters(self) -> list[nn.Parameter]:
        """The trained parameters, in the order of ``keys``."""
        return list(trained(self.module).values())

    def __call__(self, inputs: Tensor) -> Any:
        """Return the module's output. Raise ``ScenarioError`` if the module changes ``inputs`` in place."""
        try:
            return self.module(inputs)
        except RuntimeError as error:
            if "leaf Variable that requires grad" not in str(error):
                raise
            raise ScenarioError(
                f"training.model: the block '{self.name}' changes its input in place, which the block before it still "
                "needs; write inplace=False, or copy the input first"
            ) from error


def trained(module: nn.Module) -> dict[str, nn.Parameter]:
    """Return the parameters that are trained, by name: all but frozen ones (``requires_grad=False``)."""
    return {name: parameter for name, parameter in module.named_parameters() if parameter.requires_grad}


def segments(model: nn.Module) -> tuple[Segment, ...]:
    """Return the segments of a model: the top-level children of a ``Sequential``; any other model is one segment.

    Children before the first child with trained parameters, such as ``nn.Flatten``, are joined to that child. A child
    that begins with an in-place layer is joined to the one before it, whose output it changes. Raise ``ScenarioError``
    if two segments share a parameter, as neither would have its whole gradient.
    """
    blocks = _joined(_children(model)) if isinstance(model, nn.Sequential) else [("model", model)]
    owners: dict[nn.Parameter, str] = {}
    for name, block in blocks:
        for parameter_name, parameter in trained(block).items():
            if owners.setdefault(parameter, name) != name:
                raise ScenarioError(
                    f"training.model: the blocks '{owners[parameter]}' and '{name}' share a parameter "
                    f"('{parameter_name}' of the latter); write the model as one module that is not an nn.Sequential"
                )
    ranges = key_ranges(tuple(len(trained(block)) for _, block in blocks))
    return tuple(Segment(name, block, keys) for (name, block), keys in zip(blocks, ranges, strict=True))


def _children(model: nn.Sequential) -> list[tuple[str, nn.Module]]:
    """Return all children; ``named_children`` would omit a repeated one."""
    return [(name, module) for name, module in model.named_modules(remove_duplicate=False) if name and "." not in name]


def _joined(blocks: list[tuple[str, nn.Module]]) -> list[tuple[str, nn.Module]]:
    """Join blocks to segments: those before the first block with trained parameters are joined to that block.

    A block that changes its input in place is joined to the block before it, as segments need their inputs unchanged.
    """
    first = next((index for index, (_, block) in enumerate(blocks) if trained(block)), 0)
    parts = [[block for _, block in blocks[: first + 1]]]
    names = [name for name, _ in blocks[first : first + 1]]
    for name, block in blocks[first + 1 :]:
        if _begins_in_place(block):
            parts[-1].append(block)
        else:
            names.append(name)
            parts.append([block])
    joined = [part[0] if len(part) == 1 else nn.Sequential(*part) for part in parts if part]
    return list(zip(names, joined, strict=True))


def _begins_in_place(block: nn.Module) -> bool:
    while isinstance(block, nn.Sequential) and len(block):
        block = block[0]
    return bool(getattr(block, "inplace", False))


_BUILDERS: dict[str, Callable[[Any, tuple[int, ...], int], nn.Module]] = {
    "cnn": cnn,
    "lenet": lenet,
    "mlp": mlp,
    "resnet": resnet,
    "resnet50": resnet50,
    "vit": vision_transformer,
    "transformer": transformer,
    "recommender": recommender,
}
_DIMENSIONS = {IMAGES: 3, TEXT: 1, RECORDS: 1}


def build_model(
    kind: str, options: dict[str, Any], input_shape: tuple[int, ...], classes: int, seed: int
) -> nn.Sequential:
    """Return a model whose parameters depend on ``seed`` only (Xavier weights, zero biases, as in GeoMX's demo).

    ``input_shape`` is the shape of one sample, ``classes`` the number of labels. Raise ``ScenarioError`` if the model
    does not fit the data.
    """
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed_for(seed, "layers"))  # torch initialises layers on the host
        model = assemble(kind, options, input_shape, classes)
        for name, parameter in model.named_parameters():
            if parameter.is_meta:
                raise ScenarioError(
                    f"training.model: '{kind}': the parameter '{name}' has no data; leave out device='meta'"
                )
        initialise(model)
    return model


def assemble(kind: str, options: dict[str, Any], input_shape: tuple[int, ...], classes: int) -> nn.Sequential:
    """Return a model with torch's initial parameters, on torch's current default device."""
    entry = MODELS[kind]
    chosen = MODELS.options(kind, options)
    build = _BUILDERS.get(kind) or getattr(entry, "build", None)  # a user's own model has a ``build``
    if build is None:
        raise ScenarioError(f"training.model: '{kind}' has sizes only; write training.compute: modelled")
    if len(input_shape) != _DIMENSIONS[entry.takes]:
        raise ScenarioError(f"training.model: '{kind}' is for {entry.takes}, but the data's samples are {input_shape}")
    if kind in _BUILDERS and (misfit := entry.misfit(chosen, input_shape)):
        raise ScenarioError(f"training.model: {misfit}")
    model = build(chosen, input_shape, classes)
    if not isinstance(model, nn.Module):
        raise ScenarioError(
            f"training.model: 'build' of '{kind}' returns {_article(type(model).__name__)}; return a torch.nn.Module"
        )
    for name, parameter in model.named_parameters():
        if is_lazy(parameter):
            raise ScenarioError(
                f"training.model: '{kind}': the parameter '{name}' is not initialised yet; let 'build' call the model "
                f"once, with torch.zeros{(1, *input_shape)}, or write a layer with sizes"
            )
        if parameter.dtype != torch.float32:
            raise ScenarioError(
                f"training.model: '{kind}': the parameter '{name}' is {parameter.dtype}, but parameters are trained as "
                "float32; write model.float() ('training.precision: bf16' computes with less)"
            )
    if buffers := [name for name, _ in model.named_buffers()]:
        raise ScenarioError(
            f"training.model: '{kind}' has buffers ({', '.join(buffers)}), which are not synchronised; "
            "write nn.GroupNorm instead of batch normalisation, or train with a script (workload.script), where each "
            "worker keeps buffers of its own"
        )
    if not trained(model):
        what = "parameters without gradients only" if list(model.parameters()) else "no parameters"
        raise ScenarioError(f"training.model: '{kind}' has {what}; there is nothing to train")
    return model if isinstance(model, nn.Sequential) else nn.Sequential(OrderedDict(model=model))


def _article(name: str) -> str:
    return f"{'an' if name[:1].lower() in 'aeiou' else 'a'} {name}"


def initialise(model: nn.Module) -> None:
    """Initialise matrices and kernels by Xavier's rule, and biases with zeros.

    Other vectors keep the initial values of their layers: scales of normalisations are 1, slopes of ``PReLU`` 0.25.
    Frozen parameters keep theirs, too.
    """
    for name, parameter in trained(model).items():
        if parameter.dim() > 1:
            nn.init.xavier_uniform_(parameter)
        elif "bias" in name.rpartition(".")[2]:  # also ``bias_hh_l0`` of recurrent layers
            nn.init.zeros_(parameter)


def shape_of_model(kind: str, options: dict[str, Any], input_shape: tuple[int, ...], classes: int) -> ModelShape:
    """Return segments, sizes and work of a model; a declared one ignores ``input_shape`` and ``classes``.

    Nothing is computed: the layers run on torch's meta device. Raise as ``build_model`` and ``declared_shape``.
    """
    chosen = MODELS.options(kind, options)
    if isinstance(chosen, Declared):
        return declared_shape(**asdict(chosen))
    with torch.device("meta"):
        model = assemble(kind, options, input_shape, classes)
        dtype = torch.float32 if MODELS[kind].takes == IMAGES else torch.int64
        return measure(kind, model, torch.empty(1, *input_shape, dtype=dtype))


def measure(name: str, model: nn.Module, sample: Tensor) -> ModelShape:
    """Return the shape of ``model``, given a batch with one sample on the same device."""
    shapes = []
    outputs = sample
    for segment in segments(model):
        inputs = outputs.detach().requires_grad_(segment.keys.start > 0)
        with _Operations() as forward:
            outputs = segment(inputs)
        with _Operations() as backward:
            outputs.backward(torch.empty_like(outputs))
        sizes = tuple(parameter.numel() for parameter in segment.parameters)
        dimensions = tuple(tuple(parameter.shape) for parameter in segment.parameters)
        rows, columns = activation_shape(outputs[:1].shape).matrix
        shapes.append(
            SegmentShape(
                segment.name, sizes, forward.count, backward.count, dimensions, outputs=rows * columns, rows=rows
            )
        )
    return ModelShape(name, tuple(shapes))


class _Operations(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the floating-point operations of this thread, by PyTorch's formulas.

    It is used instead of ``FlopCounterMode``, which sets hooks on all modules of the process to count by module; these
    would run in the training steps of other threads, too.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        from torch.utils.flop_counter import flop_registry  # imports Triton, where it is installed: 0.3 s

        self.count = 0
        self._formulas = flop_registry

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if formula := self._formulas.get(func.overloadpacket):
            self.count += formula(*args, **(kwargs or {}), out_val=result)
        return result
