"""The trainer: same seed, same bits; scores beside the training; shapes without numbers; devices."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from testbed.training.batches import Batches
from testbed.training.datasets import load_dataset
from testbed.training.learner import values_sha256
from testbed.training.models import build_model, shape_of_model
from testbed.training.optimizers import ModelOptimizer
from testbed.training.shape_trainer import ShapeTrainer
from testbed.training.shapes import ModelShape, SegmentShape
from testbed.training.trainer import Trainer
from tests.for_each import for_each
from tests.training.jobs import JOBS, same_bits, trainer_for

ROOT = Path(__file__).parents[2]


def hash_after_training(job: str, folder: Path, steps: int = 3) -> str | None:
    trainer = trainer_for(job, folder)
    optimizer = ModelOptimizer("adam", {}, trainer.values())
    for step in range(steps):
        optimizer.step(trainer.gradient(step).gradients)
        trainer.load(optimizer.values())
    return values_sha256(trainer.values())


HASHES = """
import sys
from pathlib import Path
import torch
from testbed.execution.compiler import leave_out_compiler
leave_out_compiler()
torch.set_num_threads(1)
from tests.training.jobs import JOBS
from tests.training.test_trainer import hash_after_training
for job in JOBS:
    print(job, hash_after_training(job, Path(sys.argv[1])))
"""


@pytest.mark.slow  # 6 s; by default, tests/api has a whole run in another process
def test_another_process_gets_the_same_bits(tmp_path: Path) -> None:
    here = {job: hash_after_training(job, tmp_path) for job in JOBS}
    environment = {**os.environ, "PYTHONHASHSEED": "12345"}
    command = [sys.executable, "-c", HASHES, str(tmp_path)]
    result = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=240, check=True)
    assert dict(line.split() for line in result.stdout.splitlines()) == here
    assert len(set(here.values())) == len(JOBS)


# Chance is 0.1 for digits and teacher; the fox's characters are certain but for the first few of a window.
@pytest.mark.parametrize(
    ("job", "steps", "accuracy"),
    [("cnn", 120, 0.8), pytest.param("lenet", 150, 0.75, marks=pytest.mark.slow), ("transformer", 60, 0.7)],
)
def test_models_learn(job: str, steps: int, accuracy: float, tmp_path: Path) -> None:
    trainer = trainer_for(job, tmp_path)
    optimizer = ModelOptimizer("adam", {"learning_rate": 0.005}, trainer.values())
    before = trainer.evaluate(trainer.values())
    for step in range(steps):
        optimizer.step(trainer.gradient(step).gradients)
        trainer.load(optimizer.values())
    after = trainer.evaluate(trainer.values())
    assert before.accuracy < 0.3
    assert after.accuracy > accuracy
    assert after.loss < before.loss


@for_each("job", ["mlp", "resnet"])
def test_models_can_fit_a_batch(job: str, tmp_path: Path) -> None:
    trainer = trainer_for(job, tmp_path)
    optimizer = ModelOptimizer("adam", {"learning_rate": 0.01}, trainer.values())
    first = trainer.gradient(0).loss
    for _ in range(40):
        optimizer.step(trainer.gradient(0).gradients)
        trainer.load(optimizer.values())
    assert trainer.gradient(0).loss < 0.2 * first


def teacher_trainer(test_samples: int) -> Trainer:
    data = load_dataset("teacher", {"train_samples": 64, "test_samples": test_samples}, seed=1)
    model = build_model("mlp", {}, data.input_shape, data.classes, seed=1)
    return Trainer(model, data, Batches(torch.arange(64), 8, 1, 0))


def test_scores_of_a_large_test_set_are_those_of_all_samples() -> None:
    trainer = teacher_trainer(2500)
    data = load_dataset("teacher", {"train_samples": 64, "test_samples": 2500}, seed=1)
    model = build_model("mlp", {}, data.input_shape, data.classes, seed=1)
    with torch.no_grad():
        logits = model(data.test_inputs)
    score = trainer.evaluate(trainer.values())
    assert score.accuracy == (logits.argmax(1) == data.test_labels).sum().item() / 2500
    assert score.loss == pytest.approx(torch.nn.functional.cross_entropy(logits, data.test_labels).item(), rel=1e-5)


def test_evaluation_may_run_beside_training() -> None:
    trainer = teacher_trainer(4000)
    expected = [trainer.gradient(step) for step in range(20)]
    zeros = [torch.zeros(size) for size in trainer.sizes]
    with ThreadPoolExecutor(1) as aside:
        scores = aside.submit(lambda: [trainer.evaluate(zeros) for _ in range(10)])
        found = [trainer.gradient(step) for step in range(20)]
    assert all(same_bits(a.gradients, b.gradients) for a, b in zip(expected, found, strict=True))
    assert all(score.loss == pytest.approx(2.302585, rel=1e-5) for score in scores.result())


def test_values_are_copies(tmp_path: Path) -> None:
    trainer = trainer_for("mlp", tmp_path)
    values = trainer.values()
    values[0].zero_()
    assert trainer.values()[0].any()
    gradient = trainer.gradient(0).gradients[0].clone()
    trainer.gradient(1).gradients[0].zero_()
    assert torch.equal(trainer.gradient(0).gradients[0], gradient)


def test_bytes_and_floats_train_alike() -> None:
    """Images kept as bytes are scaled when a batch is made."""
    data = load_dataset("teacher", {"train_samples": 16, "test_samples": 4}, seed=1)
    as_bytes = (data.train_inputs * 40 + 128).clamp(0, 255).to(torch.uint8)
    gradients = []
    for inputs in (as_bytes, as_bytes.float() / 255):
        model = build_model("mlp", {}, data.input_shape, 10, seed=1)
        same = type(data)(inputs, data.train_labels, data.test_inputs, data.test_labels, 10)
        gradients.append(Trainer(model, same, Batches(torch.arange(16), 8, 1, 0)).gradient(0).gradients)
    assert same_bits(*gradients)


def test_shapes_without_numbers_have_the_same_keys_and_segments(tmp_path: Path) -> None:
    real = trainer_for("cnn", tmp_path)
    shapes = ShapeTrainer(shape_of_model("cnn", {}, (1, 8, 8), 10), batch_size=8)
    assert shapes.sizes == real.sizes
    assert shapes.shape.segments == real.shape.segments
    assert [gradient.numel() for gradient in shapes.gradient(0).gradients] == list(real.sizes)
    step = shapes.begin(0)
    for index in range(5):
        step.forward_segment(index)
    assert [gradient.numel() for gradient in step.backward_segment(4)] == [1280, 10]
    assert all(value.is_meta for value in shapes.values())
    assert values_sha256(shapes.values()) is None
    assert shapes.evaluate(shapes.values()) is None


def test_sizes_alone_are_one_segment() -> None:
    trainer = ShapeTrainer(ModelShape("sizes", (SegmentShape("model", (3, 4), 0, 0),)), 2)
    assert trainer.sizes == (3, 4)
    assert [gradient.numel() for gradient in trainer.begin(0).backward_segment(0)] == [3, 4]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_trains_like_the_processor(tmp_path: Path) -> None:
    data = load_dataset("digits", {}, seed=1)
    found = []
    for device in (torch.device("cpu"), torch.device("cuda", 0)):
        model = build_model("cnn", {}, data.input_shape, data.classes, seed=1)
        trainer = Trainer(model, data, Batches(torch.arange(64), 32, 1, 0), device)
        result = trainer.gradient(0)
        assert all(value.device == device for value in [*result.gradients, *trainer.values()])
        found.append((result, trainer.evaluate(trainer.values())))
    (cpu, cpu_score), (gpu, gpu_score) = found
    assert gpu.loss == pytest.approx(cpu.loss, rel=1e-3)
    assert gpu_score.loss == pytest.approx(cpu_score.loss, rel=1e-3)
    assert all(
        torch.allclose(a, b.cpu(), rtol=1e-2, atol=1e-4) for a, b in zip(cpu.gradients, gpu.gradients, strict=True)
    )
