"""Attackers push what their fault says, from its round on, with the same bits in every world and after a resume."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import torch
from torch import Tensor

from testbed.engine.attack import Attacks
from testbed.errors import ScenarioError
from testbed.world import Work
from tests.engine.checkpoint.test_every_technique import goes_on_as_if_nothing_had_been, plan_of
from tests.faults import runs
from tests.faults.runs import faults
from tests.for_each import for_each

SMALL = ("training.rounds=6", "training.batch=8", "data_centers[*].workers=3")
ATTACKERS = "node: '*/worker0'"
KINDS = ["sign_flip, strength: 3", "scale, strength: 10", "noise, strength: 5", "copy"]
DEFENCE = "aggregation={tier1: {kind: trimmed_mean, share: 0.4}, tier2: {kind: krum, share: 0.2}}"


class NoWorld:
    """Computes at once, and keeps what is recorded."""

    node = "east/worker0"

    def __init__(self) -> None:
        self.told: list[str] = []

    async def compute(self, work: Work, function):  # type: ignore[no-untyped-def]
        return function()

    def record(self, kind: str, **fields: object) -> None:
        self.told.append(kind)


def pushed(attack: str, rounds: int = 5, resumed_at: int = -1) -> list[Tensor]:
    """Return what an attacker pushes in each round, from round 2 on instead of round · (1, 2, 3)."""
    plan = plan_of(faults(f"kind: attack, attack: {attack}, node: east/worker0, round: 2"))
    world = NoWorld()
    attacks = Attacks(world, plan, plan.node("east/worker0"))  # type: ignore[arg-type]
    found = []
    for round_ in range(rounds):
        if round_ == resumed_at:
            state = attacks.state()
            attacks = Attacks(world, plan, plan.node("east/worker0"))  # type: ignore[arg-type]
            attacks.load_state(state)
        honest = {0: round_ * torch.tensor([1.0, 2.0, 3.0])}
        step = attacks.changed(round_, honest)
        try:
            step.send(None)
        except StopIteration as done:
            found.append(done.value[0])
        assert honest[0].tolist() == [round_, 2 * round_, 3 * round_], "the worker's own gradient stays"
    assert world.told == ["fault"]
    return found


@for_each("resumed_at", [-1, 2, 4])
def test_each_attack_is_what_it_says(resumed_at: int) -> None:
    three = torch.tensor([1.0, 2.0, 3.0])
    honest = [round_ * three for round_ in range(5)]
    for attack, expected in {
        "sign_flip": [*honest[:2], *(-each for each in honest[2:])],
        "sign_flip, strength: 3": [*honest[:2], *(-3 * each for each in honest[2:])],
        "scale, strength: 10": [*honest[:2], *(10 * each for each in honest[2:])],
        "copy": [*honest[:3], honest[2], honest[2]],
    }.items():
        found = pushed(attack, resumed_at=resumed_at)
        assert [each.tolist() for each in found] == [each.tolist() for each in expected], attack
    noisy = pushed("noise, strength: 5", resumed_at=resumed_at)
    assert [each.tolist() for each in noisy[:2]] == [each.tolist() for each in honest[:2]]
    noise = [(found - right) / right.square().mean().sqrt() for found, right in zip(noisy[2:], honest[2:], strict=True)]
    assert all(2 < float(each.abs().max()) < 20 for each in noise) and not torch.allclose(noise[0], noise[1])


def test_of_two_attacks_the_later_one_counts() -> None:
    plan = plan_of(
        faults(
            "kind: attack, attack: scale, strength: 10, node: east/worker0, round: 0",
            "kind: attack, attack: sign_flip, data_center: east, round: 1",
        )
    )
    attacks = Attacks(NoWorld(), plan, plan.node("east/worker0"))  # type: ignore[arg-type]
    for round_, expected in (0, 10.0), (1, -1.0):
        step = attacks.changed(round_, {0: torch.ones(1)})
        with pytest.raises(StopIteration) as done:
            step.send(None)
        assert done.value.value[0].tolist() == [expected]


@for_each("attack", KINDS)
def test_a_run_with_attackers_goes_on_from_a_checkpoint(attack: str, tmp_path: Path) -> None:
    plan = plan_of(
        "data_centers[*].workers=3", DEFENCE, faults(f"kind: attack, attack: {attack}, {ATTACKERS}, round: 1")
    )
    goes_on_as_if_nothing_had_been(plan, tmp_path, random.Random(attack))


@pytest.mark.slow  # 20 s: real processes
@pytest.mark.parametrize("attack", KINDS)
def test_both_worlds_have_the_same_bits(attack: str, tmp_path: Path) -> None:
    texts = (*SMALL, DEFENCE, faults(f"kind: attack, attack: {attack}, {ATTACKERS}, round: 1"))
    simulated = runs.run(tmp_path / "simulated", *texts)
    real = runs.run(tmp_path / "real", *texts, on="local")
    assert simulated.error is None and real.error is None
    assert simulated.hashes() == real.hashes() and len(real.hashes()) == 1
    calm = runs.run(tmp_path / "calm", *SMALL, DEFENCE)
    assert calm.hashes() != real.hashes()


REFUSED = [
    ("round: 3", "attack: scale", "'scale' by 1 changes nothing"),
    ("round: 3", "attack: copy, strength: 2", "has no effect on 'copy'"),
    ("at: 3 s", "attack: copy", "happens in a round"),
    ("round: 3, for: 1 s", "attack: copy", "has no effect on 'attack'"),
    ("round: 3", "factor: 2", "'attack' needs 'attack'"),
]


@for_each(("when", "what", "told"), REFUSED)
def test_what_makes_no_sense_is_refused(when: str, what: str, told: str) -> None:
    with pytest.raises(ScenarioError, match=told):
        runs.plan_of(faults(f"kind: attack, node: east/worker0, {when}, {what}"))


@for_each("other", ["paradigm=allreduce", "order={kind: p3, overlap: layers}"])
def test_what_no_server_gets_as_a_whole_cannot_be_changed(other: str) -> None:
    with pytest.raises(ScenarioError, match="change a whole contribution to a server"):
        runs.plan_of(other, faults("kind: attack, attack: copy, node: east/worker0, round: 1"))
