"""Training as people do it: mixed precision, parts of a batch, compiled models, determinism; models of real sizes."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch

from testbed.plan.build import build_plan
from testbed.results.summary import numerics
from testbed.scenario.load import load
from testbed.training.batches import Batches
from testbed.training.datasets import load_dataset
from testbed.training.models import assemble, build_model
from testbed.training.options import MODELS
from testbed.training.trainer import Computing, Trainer, configure
from tests.engine.runs import THREE_SITES, run
from tests.for_each import for_each
from tests.training.jobs import same_bits

AS_ALWAYS = Computing()


def trainer(computing: Computing = AS_ALWAYS, kind: str = "mlp") -> Trainer:
    data = load_dataset("digits", {}, 1)
    model = build_model(kind, {}, data.input_shape, data.classes, 1)
    return Trainer(model, data, Batches(torch.arange(640), 32, 1, 0), torch.device("cpu"), computing)


def segmented(one: Trainer, step: int) -> list[torch.Tensor]:
    begun, count = one.begin(step), len(one.shape.segments)
    for index in range(count):
        begun.forward_segment(index)
    parts = [begun.backward_segment(index) for index in reversed(range(count))]
    return [gradient for part in reversed(parts) for gradient in part]


@for_each("kind", ["mlp", "cnn"])
def test_bfloat16_computes_close_gradients_in_float32(kind: str) -> None:
    whole, half = trainer(kind=kind).gradient(0), trainer(Computing("bf16"), kind).gradient(0)
    assert all(gradient.dtype == torch.float32 for gradient in half.gradients)
    assert not same_bits(whole.gradients, half.gradients)
    assert half.loss == pytest.approx(whole.loss, rel=0.02)
    for a, b in zip(whole.gradients, half.gradients, strict=True):
        assert (a - b).norm() < 0.2 * a.norm() + 1e-6
    assert all(value.dtype == torch.float32 for value in trainer(Computing("bf16"), kind).values())


def test_layer_by_layer_has_the_bits_of_the_whole_in_bfloat16() -> None:
    one = trainer(Computing("bf16"), "cnn")
    assert same_bits(one.gradient(3).gradients, segmented(one, 3))


@for_each("parts", [2, 5, 32])
def test_parts_of_a_batch_have_its_mean_gradient(parts: int) -> None:
    whole, split = trainer().gradient(2), trainer(Computing(accumulate=parts)).gradient(2)
    assert split.samples == whole.samples == 32
    assert split.loss == pytest.approx(whole.loss, rel=1e-5)
    for a, b in zip(whole.gradients, split.gradients, strict=True):
        assert torch.allclose(a, b, rtol=1e-4, atol=1e-6)


@pytest.mark.slow  # 30 s: torch compiles C++
def test_a_compiled_model_computes_the_same() -> None:
    plain, compiled = trainer(), trainer(Computing(compiled=True))
    compiled.warm_up(by_segments=False)
    for a, b in zip(plain.gradient(0).gradients, compiled.gradient(0).gradients, strict=True):
        assert torch.allclose(a, b, rtol=1e-4, atol=1e-6)
    assert compiled.evaluate(compiled.values()).loss == pytest.approx(plain.evaluate(plain.values()).loss, rel=1e-5)


def test_a_run_in_bfloat16_by_parts_trains(tmp_path: Path) -> None:
    overrides = ("training.precision=bf16", "training.accumulate=2", "training.deterministic=true")
    found = run(tmp_path, *overrides)
    configure("float32", False, torch.device("cpu"))
    assert len(found.hashes()) == 1
    (plan,) = (found.plan.training,)
    assert (plan.precision, plan.accumulate, plan.deterministic) == ("bf16", 2, True)


def test_the_result_records_what_bits_depend_on() -> None:
    def of(*overrides: str) -> dict[str, Any]:
        return numerics(msgspec.to_builtins(build_plan(load(THREE_SITES, overrides))))

    assert of() == {}
    assert of("training.precision=bf16")["numerics"]["precision"] == "bf16"
    found = of("device.kind=cuda", "training.deterministic=true")["numerics"]
    assert found == {"devices": ["cpu", "cuda"], "precision": "float32", "deterministic": True, "compile": False}


SIZES = [
    ("resnet50", {}, (3, 224, 224), 1000, 25_557_032),
    ("resnet50", {"depth": "101"}, (3, 224, 224), 1000, 44_549_160),
    # without the token of the class and its position
    ("vit", {"size": "base"}, (3, 224, 224), 1000, 86_567_656 - 2 * 768),
    ("vit", {"size": "tiny"}, (3, 224, 224), 1000, 5_717_416 - 2 * 192),
    # GPT-2's 124 439 808 and, as no two segments share a key, an output matrix of its own
    ("transformer", {"layers": 12, "heads": 12, "head_width": 64}, (1024,), 50_257, 124_439_808 + 50_257 * 769),
]


@for_each(("kind", "options", "sample", "classes", "parameters"), SIZES)
def test_models_have_the_sizes_of_their_papers(
    kind: str, options: dict[str, object], sample: tuple[int, ...], classes: int, parameters: int
) -> None:
    with torch.device("meta"):
        model = assemble(kind, options, sample, classes)
    assert sum(parameter.numel() for parameter in model.parameters()) == parameters
    chosen = MODELS.options(kind, options)
    assert 4 * parameters <= MODELS[kind].size_bound_bytes(chosen) <= max(2**28, 5 * parameters)


def test_tokens_follow_a_table() -> None:
    data = load_dataset("tokens", {"train_samples": 50, "test_samples": 5, "context": 40, "vocabulary": 9}, 3)
    assert torch.equal(data.train_inputs[:, 1:], data.train_labels[:, :-1])
    pairs = list(zip(data.train_inputs.flatten().tolist(), data.train_labels.flatten().tolist(), strict=True))
    counts = Counter(pairs)
    most = {a: max(range(9), key=lambda b: counts[a, b]) for a in range(9)}
    assert sum(most[a] == b for a, b in pairs) / len(pairs) == pytest.approx(0.91, abs=0.03)
