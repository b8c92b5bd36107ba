"""Training as people do it: mixed precision, parts of a batch, compiled models, determinism; models of real sizes."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch

from testbed.errors import ScenarioError
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


def test_a_warm_up_leaves_no_trace() -> None:
    warm, cold = trainer(), trainer()
    warm.warm_up(by_segments=False)
    warm.warm_up(by_segments=True)
    assert warm.epoch == cold.epoch
    assert same_bits(warm.gradient(0).gradients, cold.gradient(0).gradients)


def test_determinism_is_torchs_and_is_set_back() -> None:
    try:
        configure("float32", True, torch.device("cpu"))
        assert torch.are_deterministic_algorithms_enabled()
    finally:
        configure("float32", False, torch.device("cpu"))
    assert not torch.are_deterministic_algorithms_enabled()


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


@for_each(
    ("overrides", "problem"),
    [
        (("training.accumulate=17",), "17 parts of a batch of 16 samples"),
        (("training.accumulate=2", "order={kind: p3, overlap: layers}"), "before the batch's other parts"),
        (("training.accumulate=2", "paradigm={kind: allreduce, overlap: buckets}"), "before the batch's other parts"),
        (("device.kind=cuda", "run.on=exact"), "the kernel of an exact run has none"),
        (("training.precision=half",), "not one of float32, tf32, bf16"),
        (("device.index=many",), "device.index"),
        (("device.share=0 %",), "device.share"),
    ],
)
def test_what_cannot_be_is_refused(overrides: tuple[str, ...], problem: str) -> None:
    with pytest.raises(ScenarioError, match=problem):
        load(THREE_SITES, overrides)


def test_the_result_records_what_bits_depend_on() -> None:
    def of(*overrides: str) -> dict[str, Any]:
        return numerics(msgspec.to_builtins(build_plan(load(THREE_SITES, overrides))))

    assert of() == {}
    assert of("training.precision=bf16")["numerics"]["precision"] == "bf16"
    found = of("device.kind=cuda", "training.deterministic=true")["numerics"]
    assert found == {"devices": ["cpu", "cuda"], "precision": "float32", "deterministic": True, "compile": False}


def test_tf32_without_a_gpu_is_warned_of() -> None:
    plan = build_plan(load(THREE_SITES, ("training.precision=tf32",)))
    assert any("'tf32' has no effect" in warning for warning in plan.warnings)


def test_steps_on_a_gpu_are_measured_unless_they_are_simulated() -> None:
    overrides = ("device={kind: cuda, share: 50 %, index: 1}",)
    for on, pace in (("local", "measured"), ("emulate", "measured"), ("simulate", "paced")):
        plan = build_plan(load(THREE_SITES, overrides), on)
        device = plan.with_role("worker")[0].device
        assert (device.kind, device.share, device.index, device.pace) == ("cuda", 0.5, 1, pace)
        assert plan.with_role("server")[0].device.kind == "cpu"
    assert build_plan(load(THREE_SITES, ("device={kind: cuda, pace: paced}",)), "local").nodes[0].device.pace == "paced"


def test_servers_aggregate_where_they_are_told_to() -> None:
    plan = build_plan(load(THREE_SITES, ("device.server_device=cuda",)), "local")
    assert {node.device.kind for role in ("server", "global_server") for node in plan.with_role(role)} == {"cuda"}
    assert {node.device.kind for node in plan.with_role("worker")} == {"cpu"}


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


@for_each(
    ("kind", "options", "data", "given"),
    [
        ("vit", {"size": "tiny", "patch": 4}, "teacher", {"side": 8, "channels": 3}),
        ("transformer", {}, "tokens", {"context": 12, "vocabulary": 50}),
    ],
)
def test_they_train_on_synthetic_inputs(
    kind: str, options: dict[str, object], data: str, given: dict[str, object]
) -> None:
    loaded = load_dataset(data, {"train_samples": 8, "test_samples": 2, **given}, 1)
    model = build_model(kind, options, loaded.input_shape, loaded.classes, 1)
    one = Trainer(model, loaded, Batches(torch.arange(8), 2, 1, 0))
    result = one.gradient(0)
    assert all(bool(gradient.isfinite().all()) for gradient in result.gradients)
    assert sum(float(gradient.norm()) for gradient in result.gradients) > 0


def test_tokens_follow_a_table() -> None:
    data = load_dataset("tokens", {"train_samples": 50, "test_samples": 5, "context": 40, "vocabulary": 9}, 3)
    assert torch.equal(data.train_inputs[:, 1:], data.train_labels[:, :-1])
    pairs = list(zip(data.train_inputs.flatten().tolist(), data.train_labels.flatten().tolist(), strict=True))
    counts = Counter(pairs)
    most = {a: max(range(9), key=lambda b: counts[a, b]) for a in range(9)}
    assert sum(most[a] == b for a, b in pairs) / len(pairs) == pytest.approx(0.91, abs=0.03)
