"""Activations in a fixed subspace train the network that has the projection between its stages; bytes are exact."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from testbed.codec.table import make_codec
from testbed.engine.learner import training_parts
from testbed.plan.model import Plan
from testbed.plan.stages import plan_of_stage
from testbed.training.datasets.base import as_model_input
from tests.engine.runs import Simulated, run
from tests.methods.problem import TOLERANCE, apart

SEED, WIDTH, RANK, MICRO_BATCHES, STEPS, RATE = 5, 64, 6, 4, 12, 0.1
SCENARIO = f"""
version: 1
name: subspace
seed: {SEED}
run: {{on: simulate}}
topology:
  data_centers: [{{name: a, central: true, workers: 1}}, {{name: b, workers: 1}}]
  links: [{{between: [a, b], rate: 50 Mbit/s, delay: 3 ms}}]
training:
  {{model: {{kind: mlp, hidden: {WIDTH}, layers: 2}}, data: digits, batch: 30, rounds: {STEPS}, evaluate_every: 9}}
device: {{step_time: 100 ms}}
optimizer: {{kind: sgd, learning_rate: {RATE}}}
paradigm: {{kind: pipeline, micro_batches: {MICRO_BATCHES}, cuts: 1}}
"""
CODEC = f"{{kind: subspace, rank: {RANK}, width: {WIDTH}}}"
BOTH = (f"paradigm.activations={CODEC}", f"paradigm.activation_gradients={CODEC}")


def reference(plan: Plan, *, projects: bool) -> Tensor:
    """Train in plain PyTorch, by autograd, with X ← X U Uᵀ after the first block, where ``projects``."""
    model, dataset, batches, *_ = training_parts(plan_of_stage(plan, 0), plan.training_workers[0])
    blocks = list(model.children())
    drawn = torch.randn(WIDTH, RANK, dtype=torch.float64, generator=torch.Generator().manual_seed(SEED))
    basis = torch.linalg.qr(drawn).Q.float()
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    for step in range(STEPS):
        chosen = batches.indices(step)
        inputs, labels = as_model_input(dataset.train_inputs[chosen]), dataset.train_labels[chosen]
        hidden = blocks[0](inputs)
        if projects:
            hidden = hidden @ basis @ basis.T
        for block in blocks[1:]:
            hidden = block(hidden)
        optimizer.zero_grad()
        nn.functional.cross_entropy(hidden, labels).backward()
        optimizer.step()
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def trained(folder: Path, *overrides: str) -> Simulated:
    (folder / "scenario.yaml").write_text(SCENARIO)
    return run(folder, *overrides, scenario=folder / "scenario.yaml")


def parameters_of(done: Simulated) -> Tensor:
    return torch.cat([value for worker in done.plan.training_workers for value in done.results[worker.name]])


def test_a_pipeline_trains_the_network_with_the_projection(tmp_path: Path) -> None:
    for folder, settings in (("plain", ()), ("projected", BOTH)):
        (tmp_path / folder).mkdir()
        done = trained(tmp_path / folder, *settings)
        assert apart(parameters_of(done), reference(done.plan, projects=bool(settings))) < TOLERANCE
        assert apart(parameters_of(done), reference(done.plan, projects=not settings)) > 1e3 * TOLERANCE


def test_bytes_are_rank_numbers_for_each_row(tmp_path: Path) -> None:
    done = trained(tmp_path, *BOTH)
    sent = {
        kind: sum(event["payload_bytes"] for event in done.of_kind("transfer") if event["message"] == kind)
        for kind in ("activation", "activation-gradient")
    }
    assert set(sent.values()) == {STEPS * 30 * RANK * 4}
    assert done.plan.pipeline is not None
    assert done.plan.pipeline.activation_bytes == (8 * RANK * 4,)  # of the largest of 8, 8, 7 and 7 samples


@pytest.mark.parametrize(("size", "rows"), [(1, 1), (64, 1), (65, 2), (640, 10)])
def test_what_is_in_the_subspace_arrives(size: int, rows: int) -> None:
    """Sent twice is projected twice: what arrived arrives again. The last row may be short."""
    codec = make_codec("subspace", {"rank": RANK, "width": WIDTH}, seed=SEED)
    tensor = torch.randn(size, generator=torch.Generator().manual_seed(1))
    (payload,) = codec.encode(0, tensor)
    (shape_alone,) = codec.encode(0, tensor.to("meta"))
    assert payload.shape == shape_alone.shape == (rows * RANK,)
    arrived = codec.decode(0, (payload,), size)
    again = codec.decode(0, codec.encode(0, arrived), size)
    if size % WIDTH == 0:
        assert torch.allclose(again, arrived, atol=1e-6)
    whole = make_codec("subspace", {"rank": 999, "width": WIDTH}, seed=SEED)
    assert torch.allclose(whole.decode(0, whole.encode(0, tensor), size), tensor, atol=1e-5)
