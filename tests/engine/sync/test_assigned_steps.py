"""Local steps that an algorithm from outside assigns on both tiers: each tier's own assignment counts."""

from __future__ import annotations

from pathlib import Path

from testbed.engine.roles import make_role
from testbed.plan.build import build_plan
from testbed.scenario import loads
from testbed.simulation.run import simulate
from tests.engine.runs import THREE_SITES

LATER = """
from testbed.policy.sync.diloco import DiLoCo


class Later(DiLoCo):
    '''Five steps from round 6 on, for the members of either tier by their names.'''

    assigns_steps = True

    def __init__(self, tier, options):
        super().__init__(tier, options)
        self._names = tier.names

    def on_push(self, push):
        self._round = push.round
        return super().on_push(push)

    def steps(self):
        return dict.fromkeys(self._names, 5) if self._round >= 5 else {}
"""


def test_the_upper_tier_does_not_erase_what_the_lower_assigns(tmp_path: Path) -> None:
    (tmp_path / "later.py").write_text(LATER)
    settings = (
        "training.model={kind: mlp, hidden: 8}",
        "training.rounds=9",
        "training.evaluate_every=9",
        f"sync={{kind: '{tmp_path}/later.py:Later', h: 1}}",
        "optimizer={kind: sgd, at: worker}",
    )
    plan = build_plan(loads(THREE_SITES.read_text(), overrides=settings, folder=THREE_SITES.parent), "simulate")
    seen: dict[str, list[int]] = {}

    def note(line: dict[str, object]) -> None:
        if line["kind"] == "round":
            seen.setdefault(str(line["node"]), []).append(int(str(line["steps"])))

    exits = simulate(plan, make_role, tmp_path / "run", note)
    assert not any(end.error for end in exits.values())
    assert set(seen) == {worker.name for worker in plan.training_workers}
    assert all(steps == [1] * 6 + [5] * 3 for steps in seen.values())
