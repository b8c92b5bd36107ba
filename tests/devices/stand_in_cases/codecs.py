"""Codecs on a GPU, for which the processor stands in: the same payloads, and nothing but payloads is copied."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from testbed.codec.on_device import OnDevice
from testbed.codec.options import CODECS
from testbed.codec.table import make_codec
from testbed.devices.accelerator import accelerator_of, torch_device
from testbed.engine.checkpoint import in_main_memory
from testbed.training.optimizers import KeyOptimizer
from tests.devices import stand_in

SIZE, ROUNDS = 5003, 4
VARIANTS: list[tuple[str, dict[str, Any]]] = [(kind, {}) for kind in CODECS]
VARIANTS += [("bisparse", {"pull": "sparse-sum"}), ("topk", {"pull": "dense", "padded": True})]


pytestmark = pytest.mark.usefixtures("gpu")


def ends(kind: str, options: dict[str, Any], on_device: bool) -> tuple[Any, Any]:
    """A child's and a server's end, of models' changes where the codec keeps something back."""
    made = [make_codec(kind, dict(options), 2, 1) for _ in range(2)]
    if not on_device:
        return made[0], made[1]
    accelerator = accelerator_of(torch_device("cuda"))
    return OnDevice(made[0], accelerator), OnDevice(made[1], accelerator)


def tensors(seed: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(SIZE, generator=generator) * 10.0 ** -(number % 3) for number in range(ROUNDS)]


def exchanged(kind: str, options: dict[str, Any], on_device: bool) -> list[Tensor]:
    """Return all payloads of some rounds up and down, and what is decoded of them, on the host."""
    child, server = ends(kind, options, on_device)
    device = torch_device("cuda") if on_device else torch.device("cpu")
    first = tensors(2)[0]
    for end in (child, server):
        end.begin(0, complete(first, device))
    seen: list[Tensor] = []
    for gradient, change in zip(tensors(0), tensors(1), strict=True):
        stand_in.forget()
        pushed = child.encode(0, complete(gradient, device))
        total = server.decode(0, pushed, SIZE)
        value = total if options.get("pull") == "sparse-sum" else complete(first + change, device)
        replied = server.encode_value(0, value)
        held = child.decode_value(0, replied, SIZE)
        assert not on_device or (total.device.type, held.device.type) == (stand_in.NAME, stand_in.NAME)
        seen += [*pushed, total.cpu(), *replied, held.cpu()]
    return seen


def complete(tensor: Tensor, device: torch.device) -> Tensor:
    """Put a tensor there, as a training step does whose end was waited for."""
    accelerator = accelerator_of(device)
    return tensor if accelerator is None else accelerator.timed(lambda: tensor.to(device))[0]


@pytest.mark.parametrize(("kind", "options"), VARIANTS, ids=str)
def test_payloads_are_those_of_the_processor(kind: str, options: dict[str, Any]) -> None:
    if options.get("pull", "") == "" and "pull" in getattr(CODECS[kind], "__dataclass_fields__", {}):
        options = options | {"pull": "difference"}
    here, there = exchanged(kind, options, on_device=False), exchanged(kind, options, on_device=True)
    assert len(here) == len(there)
    assert all(each.device.type == "cpu" for each in there)
    assert all(torch.equal(a, b) for a, b in zip(here, there, strict=True))


RATIOS = [kind for kind in CODECS if "ratio" in getattr(CODECS[kind], "__dataclass_fields__", {})]


@pytest.mark.parametrize("kind", RATIOS)
def test_of_a_sparse_payload_one_copy_is_made_each_way(kind: str) -> None:
    options: dict[str, Any] = {"ratio": 0.01, "pull": "difference", "pull_ratio": 0.01}
    if "warmup_stages" in getattr(CODECS[kind], "__dataclass_fields__", {}):
        options["warmup_stages"] = 0
    child, server = ends(kind, options, on_device=True)
    device = torch_device("cuda")
    gradient, value, later = (complete(tensors(seed)[0], device) for seed in range(3))
    for end in (child, server):
        end.begin(0, value)
    stand_in.forget()
    parts = child.encode(0, gradient)
    payload = sum(part.nbytes for part in parts)
    (up,) = stand_in.copies("to host", 64)
    assert payload <= up <= payload + 32
    server.decode(0, parts, SIZE)
    replied = server.encode_value(0, later)
    child.decode_value(0, replied, SIZE)
    assert max(stand_in.copies("to host") + stand_in.copies("to device")) < 4 * SIZE / 10
    drawn = kind == "randomk"  # on the host: where they are is brought to the GPU
    assert len(stand_in.copies("to host", 64)) == 2
    assert len(stand_in.copies("to device", 64)) == 2 + drawn


@pytest.mark.parametrize("kind", ["topk", "bisparse", "twobit", "randomk"])
def test_a_checkpoint_is_read_by_a_processor_and_by_a_gpu(kind: str) -> None:
    (child, _), (other, _) = ends(kind, {}, on_device=True), ends(kind, {}, on_device=True)
    on_host, _ = ends(kind, {}, on_device=False)
    device, gradients = torch_device("cuda"), tensors(0)
    child.begin(0, tensors(1)[0])
    child.encode(0, complete(gradients[0], device))
    state = child.state()
    assert all(each.is_cpu for each in state.values() if isinstance(each, Tensor))
    expected = child.encode(0, complete(gradients[1], device))
    other.load_state(state)
    on_host.load_state(state)
    for codec, gradient in ((other, complete(gradients[1], device)), (on_host, gradients[1])):
        assert all(torch.equal(a, b) for a, b in zip(codec.encode(0, gradient), expected, strict=True))


@pytest.mark.parametrize(
    ("kind", "options"), [("adam", {}), ("lars", {}), ("dcasgd", {}), ("dcasgd", {"adaptive": True, "momentum": 0.9})]
)
def test_a_state_that_was_in_main_memory_goes_on(kind: str, options: dict[str, Any]) -> None:
    accelerator, device = accelerator_of(torch_device("cuda")), torch_device("cuda")
    assert accelerator is not None
    whole, resumed = (KeyOptimizer(kind, options, torch.zeros(9, device=device)) for _ in range(2))

    def step(one: KeyOptimizer, member: str) -> list[float]:
        def moved() -> torch.Tensor:
            one.step(torch.ones(9, device=device), member)
            return one.value

        return accelerator.timed(moved)[0].cpu().tolist()

    step(whole, "a")
    whole.pulled("a", whole.value.clone())
    resumed.load_state(in_main_memory(whole.state()))
    for member in ("a", "b"):  # who has pulled, and who has not
        assert step(resumed, member) == step(whole, member)
