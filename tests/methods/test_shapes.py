"""Codecs and optimizers know the shapes of tensors, wherever these travel; and the outer optimizer is chosen apart."""

from __future__ import annotations

from pathlib import Path

import torch

from testbed.key_shape import HEAD, MATRIX, TABLE, VECTOR, KeyShape, shapes_of
from testbed.training.optimizers import KeyOptimizer
from tests.engine.runs import run
from tests.for_each import for_each

MLP = ("training.model={kind: mlp, hidden: 8}", "training.rounds=4")
LOCAL = ("sync={kind: diloco, h: 2}", "optimizer={kind: sgd, learning_rate: 0.05}")
# of the MLP: 8 × 64, 8, 10 × 8, 10; each tile sends 32 coefficients, or as many as it has, with 4 bytes and a place
TILES = ((512, 32, 9), (8, 8, 3), (80, 32, 7), (10, 10, 4))
DEMO_BYTES = sorted(4 * sent + -(-sent * bits // 8) for _, sent, bits in TILES)


@for_each(
    "settings",
    [
        ("codec=demo",),  # on both tiers
        ("codec={tier1: none, tier2: demo}", "paradigm={kind: hips, inside: ring}"),
        ("codec=demo", "paradigm=ps"),
    ],
)
def test_a_codec_is_told_the_shape_of_every_key(settings: tuple[str, ...], tmp_path: Path) -> None:
    done = run(tmp_path, *MLP, "optimizer={kind: signsgd, at: global}", *settings)
    pushes = [event for event in done.of_kind("transfer") if event["message"] == "push" and event["tier"] == "wan"]
    assert {event["payload_bytes"] for event in pushes} == set(DEMO_BYTES)


def test_slices_of_whole_rows_are_smaller_matrices() -> None:
    matrix = KeyShape((6, 5, 2), MATRIX)
    assert matrix.matrix == (6, 10)
    assert matrix.part(0, 60) is matrix
    assert matrix.part(20, 50) == KeyShape((3, 5, 2), MATRIX)
    assert matrix.part(20, 45) == KeyShape((25,), VECTOR)
    assert KeyShape((7,)).part(2, 5) == KeyShape((3,))


def test_roles_follow_from_the_model() -> None:
    shapes = shapes_of([(50, 8), (8, 8), (8,), (10, 8), (10,)], frozenset({0}))
    assert [each.role for each in shapes] == [TABLE, MATRIX, VECTOR, HEAD, VECTOR]


@for_each("paradigm", ["hips", "ps", "allreduce", "{kind: gossip, algorithm: dpsgd}"])
def test_muon_steps_with_matrices_in_every_paradigm(paradigm: str, tmp_path: Path) -> None:
    """Its parameters differ from those of AdamW alone, and are finite."""
    settings = (*MLP, "sync={kind: diloco, h: 2}", f"paradigm={paradigm}")
    muon = run(tmp_path / "muon", *settings, "optimizer={kind: muon, adam_learning_rate: 0.001}")
    adam = run(tmp_path / "adam", *settings, "optimizer={kind: adamw, beta2: 0.95, weight_decay: 0}")
    assert torch.isfinite(muon.parameters("west/worker0")).all()
    assert muon.hashes().isdisjoint(adam.hashes())


# ---- outer optimizers -----------------------------------------------------------------------------------------------


@for_each("paradigm", ["hips", "allreduce"])
def test_the_scenarios_outer_optimizer_takes_the_place_of_the_algorithms(paradigm: str, tmp_path: Path) -> None:
    settings = (*MLP, LOCAL[1], f"paradigm={paradigm}")
    own = run(tmp_path / "own", *settings, "sync={kind: diloco, h: 2, outer_learning_rate: 0.5, outer_momentum: 0.6}")
    chosen = run(
        tmp_path / "chosen", *settings, LOCAL[0], "outer_optimizer={kind: nesterov, learning_rate: 0.5, momentum: 0.6}"
    )
    other = run(tmp_path / "other", *settings, LOCAL[0], "outer_optimizer={kind: sgd, learning_rate: 0.5}")
    assert own.hashes() == chosen.hashes()
    assert own.hashes() != other.hashes()


@for_each("sync", ["{kind: hfa, k1: 2, k2: 1}", "{kind: esync, fixed_steps: 2}"])
def test_means_of_models_have_an_outer_step_too(sync: str, tmp_path: Path) -> None:
    """Along the values less the mean: with a step size of 1 it is the mean, as without an outer optimizer."""
    settings = (*MLP, LOCAL[1], f"sync={sync}")
    mean = run(tmp_path / "mean", *settings)
    same = run(tmp_path / "same", *settings, "outer_optimizer={kind: sgd, learning_rate: 1}")
    half = run(tmp_path / "half", *settings, "outer_optimizer={kind: sgd, learning_rate: 0.5}")
    assert torch.allclose(same.parameters("west/worker0"), mean.parameters("west/worker0"), atol=1e-6)
    assert not torch.allclose(half.parameters("west/worker0"), mean.parameters("west/worker0"), atol=1e-3)


def test_an_outer_schedule_warms_up_and_falls(tmp_path: Path) -> None:
    outer = "{kind: nesterov, learning_rate: 0.5, warmup: 2, schedule: cosine, period: 4}"
    scheduled = run(tmp_path / "scheduled", *MLP, *LOCAL, f"outer_optimizer={outer}")
    constant = run(tmp_path / "constant", *MLP, *LOCAL, "outer_optimizer={kind: nesterov, learning_rate: 0.5}")
    assert scheduled.hashes() != constant.hashes()


def test_three_definitions_of_nesterov() -> None:
    """Each beside its formula in plain PyTorch; the first two part when the step size changes."""
    gradients = torch.randn(20, 5, generator=torch.Generator().manual_seed(1))
    found = {}
    for definition in ("torch", "sutskever", "averaged"):
        options = {"definition": definition, "learning_rate": 0.5, "momentum": 0.8, "warmup": 10}
        key = KeyOptimizer("nesterov", options, torch.zeros(5))
        value = torch.zeros(5)
        memory = torch.zeros(5)
        for number, gradient in enumerate(gradients):
            rate = 0.5 * min(1, (number + 1) / 10)
            key.step(gradient)
            if definition == "torch":
                memory = 0.8 * memory + gradient
                value = value - rate * (gradient + 0.8 * memory)
            elif definition == "sutskever":
                memory = 0.8 * memory - rate * gradient
                value = value + 0.8 * memory - rate * gradient
            else:
                memory = 0.8 * memory + 0.2 * gradient
                value = value - rate * (0.2 * gradient + 0.8 * memory)
        assert torch.allclose(key.value, value, atol=1e-5), definition
        found[definition] = key.value
    assert not torch.allclose(found["torch"], found["sutskever"], atol=1e-2)


@for_each(("buffer", "spread"), [(1, 0.0), (4, 0.0), (4, 0.25)])
def test_delayed_nesterov_is_equal_to_its_reference(buffer: int, spread: float) -> None:
    options = {"learning_rate": 0.3, "momentum": 0.9, "buffer": buffer, "spread": spread}
    key = KeyOptimizer("delayed_nesterov", options, torch.zeros(5))
    value = torch.zeros(5)
    momentum = torch.zeros(5)
    total = torch.zeros(5)
    for number, gradient in enumerate(torch.randn(100, 5, generator=torch.Generator().manual_seed(1))):
        key.step(gradient)
        total += gradient
        if (number + 1) % buffer == 0:
            momentum = 0.9 * momentum + total / buffer
            value -= 0.3 * ((1 - spread * buffer + spread) * 0.9 * momentum + gradient / buffer)
            total.zero_()
        else:
            value -= 0.3 * (spread * 0.9 * momentum + gradient / buffer)
    assert torch.allclose(key.value, value, rtol=1e-5, atol=1e-5)


def test_delayed_nesterov_without_a_buffer_is_torchs() -> None:
    alone = KeyOptimizer("delayed_nesterov", {"buffer": 1}, torch.zeros(5))
    plain = KeyOptimizer("nesterov", {}, torch.zeros(5))
    for gradient in torch.randn(20, 5, generator=torch.Generator().manual_seed(1)):
        alone.step(gradient)
        plain.step(gradient)
    assert torch.allclose(alone.value, plain.value, rtol=1e-5)
