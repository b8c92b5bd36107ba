"""Frozen parameters of a model stay as they were built, the same at all workers, and do not travel."""

from __future__ import annotations

from math import prod
from pathlib import Path

import pytest
from torch import nn

from testbed.engine.learner import make_learner
from testbed.training import models
from tests.engine.runs import Simulated, run

WIDTH, CLASSES = 8, 10
TRAINED = WIDTH + (WIDTH * CLASSES + CLASSES)  # a bias, and the last layer
SETTINGS = ("training.model=mlp", "training.rounds=4", "training.evaluate_every=2")


def build(options: object, input_shape: tuple[int, ...], classes: int) -> nn.Module:
    inner = nn.Linear(WIDTH, WIDTH)
    inner.weight.requires_grad_(False)
    first = nn.Linear(prod(input_shape), WIDTH).requires_grad_(False)
    return nn.Sequential(nn.Flatten(), first, nn.ReLU(), inner, nn.Sequential(nn.ReLU(), nn.Linear(WIDTH, classes)))


def pushed_elements(ended: Simulated) -> float:
    pushes = [event for event in ended.of_kind("transfer") if event["message"] == "push"]
    rounds = len(ended.of_kind("round"))
    return sum(event["payload_bytes"] for event in pushes if "worker" in event["source"]) / 4 / rounds


def test_only_what_is_trained_travels_with_the_bits_of_a_step_by_layers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(models._BUILDERS, "mlp", build)
    whole = run(tmp_path / "whole", *SETTINGS)
    by_layers = run(tmp_path / "layers", *SETTINGS, "order={kind: fifo, overlap: layers}")
    assert len(whole.hashes()) == 1 and whole.hashes() == by_layers.hashes()
    assert pushed_elements(whole) == pushed_elements(by_layers) == TRAINED


@pytest.mark.parametrize("technique", ["sync=tap", "paradigm=gossip"])
def test_who_scores_has_the_same_frozen_parameters(
    technique: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(models._BUILDERS, "mlp", build)
    ended = run(tmp_path, *SETTINGS, technique)
    node = (ended.plan.with_role("global_server") or ended.plan.training_workers)[0]
    score = ended.of_kind("evaluate")[-1]
    for worker in ended.plan.training_workers:
        found = make_learner(ended.plan, worker).evaluate(ended.results[node.name])
        assert found is not None and (found.accuracy, found.loss) == (score["accuracy"], score["loss"])
