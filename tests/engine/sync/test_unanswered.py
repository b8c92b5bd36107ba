"""A policy from outside that never answers a round, or ends the process, is named."""

from __future__ import annotations

import re
from pathlib import Path

from testbed.engine.roles import make_role
from testbed.execution.simulate import _error_of
from testbed.plan.build import build_plan
from testbed.scenario.load import load
from testbed.simulation.run import Exits, simulate
from tests.engine.runs import THREE_SITES

POLICY = """
from testbed.policy.sync.fsa import Fsa


class Mine(Fsa):
    def on_push(self, push):
        if push.round == 2:
            WHAT
        return super().on_push(push)
"""


def exits(tmp_path: Path, what: str) -> Exits:
    (tmp_path / "mine.py").write_text(POLICY.replace("WHAT", what))
    chosen = (f"sync={tmp_path / 'mine.py'}:Mine", "simulation.network=flows")
    plan = build_plan(load(THREE_SITES, chosen), "simulate")
    return simulate(plan, make_role, tmp_path / "run", lambda event: None)


def test_a_policy_that_leaves_a_round_unanswered_is_named(tmp_path: Path) -> None:
    told = str(_error_of(exits(tmp_path, "return []")))
    assert re.search(r"waits for policy '\S*mine.py:Mine' to answer round 2 of key 0, to which all have pushed", told)


def test_a_policy_that_ends_the_process_is_named_with_its_line(tmp_path: Path) -> None:
    told = str(_error_of(exits(tmp_path, "raise SystemExit(3)")))
    assert re.fullmatch(r"\w+/server0: \S*mine.py:8: SystemExit: 3", told)
