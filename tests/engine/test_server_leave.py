"""A member that ends, or is lost, while the pushes of a round wait or are about to be aggregated."""

from __future__ import annotations

from collections.abc import Coroutine
from types import SimpleNamespace
from typing import Any

import pytest

from testbed.engine.aggregation import Contributions, PendingPush
from testbed.engine.server import Server
from testbed.errors import RunFailed
from testbed.policy.events import Aggregate, Push
from testbed.policy.sync.base import SyncPolicy, Tier
from testbed.policy.sync.fsa import Fsa
from testbed.policy.sync.ssp import Ssp


def leave_while_pending(policy: SyncPolicy) -> list[str]:
    """Member a has pushed and b has not; b leaves. Return the names of the tasks that follow."""
    policy.on_push(Push("a", key=0, round=0))
    tasks: list[str] = []

    def spawn(coroutine: Coroutine[Any, Any, None], name: str) -> None:
        coroutine.close()
        tasks.append(name)

    server: Any = object.__new__(Server)
    server._policy, server._ended_members = policy, set()
    server._world = SimpleNamespace(spawn=spawn)
    server._contributions = SimpleNamespace(pending=lambda: [(0, 0)])
    server._on_leave(SimpleNamespace(sender="b"))
    return tasks


def test_who_is_held_by_a_bound_is_released() -> None:
    assert leave_while_pending(Ssp(Tier.of("a", "b"), Ssp.Options(staleness=0))) == ["b leaves"]


def test_a_round_that_waits_for_ever_is_named() -> None:
    with pytest.raises(RunFailed, match="round 0 of key 0 waits for b, whose script has ended"):
        leave_while_pending(Fsa(Tier.of("a", "b"), Fsa.Options()))


def test_a_change_of_the_membership_does_not_take_what_a_decided_round_combines() -> None:
    """A task begins later than it is made: what it sums is no longer among what such a change drops in between."""
    policy = Fsa(Tier.of("a", "b"), Fsa.Options())
    contributions = Contributions()
    for member in ("a", "b"):
        contributions.add(member, 0, 0, PendingPush(None, {}, 0.0))
        effects = policy.on_push(Push(member, key=0, round=0))
    server: Any = object.__new__(Server)
    server._policy, server._contributions = policy, contributions
    server._codecs, server._taken_round = {}, {}
    server._unanswered = None
    begun: list[int] = []
    server._members = SimpleNamespace(peers=SimpleNamespace(begun=begun.append))
    server._world = SimpleNamespace(now=lambda: 0.0)
    coroutine = server._carry_out([effect for effect in effects if isinstance(effect, Aggregate)])
    assert contributions.pending() == []
    assert server._taken_round == {0: 0}  # pushed once more, the round is not summed again
    assert begun == [0], "which the scheduler is told when the membership changes"
    coroutine.close()
