"""Checkpoints of a running job: everybody stops between two rounds, keeps its state, and goes on.

Workers meet at a barrier after every n-th round. Then each has the answer to all it ever pushed, so nothing is on its
way, whatever the synchronisation: a consistent cut (Chandy and Lamport, TOCS 1985, made simple by stopping). The
scheduler tells the servers, all write, and it makes the files a checkpoint.
"""

from __future__ import annotations

import errno
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from testbed.engine.checkpoint_files import CheckpointFiles, NodeState
from testbed.engine.membership import CHECKPOINT, SAVED, Membership
from testbed.errors import RunFailed
from testbed.plan.model import Plan
from testbed.world import World

GIVE_UP_AFTER = 3  # checkpoints in a row that could not be written
GetState = Callable[[], Mapping[str, Any]]


class Checkpointer:
    """One node's part. ``every`` 0: this run keeps no checkpoints, though it may have begun with one."""

    def __init__(self, world: World, membership: Membership, plan: Plan, files: CheckpointFiles | None) -> None:
        self._world, self._membership, self._files = world, membership, files
        self._every = plan.checkpoint_every if files else 0
        faults = [fault for fault in plan.faults if fault.kind == "disk_full" and world.node in fault.targets]
        self._full = [(fault.round or 0, (fault.round or 0) + int(fault.value)) for fault in faults]
        self._planned_rounds, self._patience_s = plan.training.rounds, plan.timeouts.run_deadline_s
        self._workers = len(plan.training_workers)
        self._savers = self._workers + len(plan.with_role("server")) + len(plan.with_role("global_server"))
        checkpoint = files.resumed if files else None
        self.resumed = checkpoint is not None
        self.first_round = checkpoint.round + 1 if checkpoint else 0
        self.state: NodeState = dict(checkpoint.states.get(world.node, {})) if checkpoint else {}

    def due(self, round_: int) -> bool:
        """Whether there is to be a checkpoint after ``round_``. After the last round there is none."""
        return self._every > 0 and (round_ + 1) % self._every == 0 and round_ + 1 < self._planned_rounds

    async def save(self, round_: int, state: Callable[[], Awaitable[Mapping[str, Any]]]) -> None:
        """A worker has finished ``round_``. Returns when all have kept their state."""
        name = f"{CHECKPOINT}{round_}"
        released = await self._membership.barrier(name, self._workers, self._patience_s)
        if not released.get("skipped"):
            await self._write(round_, await state())

    def serve(self, state: GetState) -> None:
        """A server keeps ``state()`` whenever the workers stand still."""
        if self._every:
            self._membership.on_checkpoint = lambda round_: self._world.spawn(
                self._write(round_, state()), f"checkpoint of round {round_}"
            )

    async def _write(self, round_: int, state: Mapping[str, Any]) -> None:
        files, node = self._files, self._world.node
        assert files is not None
        digest = ""
        try:
            self._check_disk(round_)
            writing = self._world.aside(lambda: files.write(round_, node, state))
            digest = await self._world.wait(writing, "its checkpoint to be written", self._patience_s)
        except OSError as error:
            self._world.record("warning", message=f"no checkpoint of round {round_}: {error}")
        await self._membership.barrier(f"{SAVED}{round_}", self._savers, self._patience_s, sha256=digest)

    def _check_disk(self, round_: int) -> None:
        """A fault of the Plan may have filled it."""
        if any(begin <= round_ < end for begin, end in self._full):
            self._world.record("fault", fault="disk_full", targets=self._world.node, begins=True)
            raise OSError(errno.ENOSPC, "disk full (a fault of the scenario)")


async def commit(world: World, files: CheckpointFiles, round_: int, digests: Mapping[str, str], wait_s: float) -> None:
    """The scheduler's part: all have written, or tried to."""

    def make() -> str:
        try:
            if all(digests.values()):
                files.commit(round_, digests)
                return ""
            files.discard(round_)
        except OSError as error:
            files.discard(round_)
            return str(error)
        return ""

    trouble = await world.wait(world.aside(make), "the checkpoint's manifest", wait_s)
    whole = not trouble and all(digests.values())
    files.failures = 0 if whole else files.failures + 1
    if files.failures == GIVE_UP_AFTER:
        why = trouble or f"{', '.join(node for node in digests if not digests[node])} could not write"
        raise RunFailed(f"no checkpoint could be written {GIVE_UP_AFTER} times in a row; the last time: {why}")
    if trouble:
        world.record("warning", message=f"no checkpoint of round {round_}: {trouble}; the ones before it are kept")
    elif whole:
        world.record("checkpoint", round=round_)


# ---- states as flat names -------------------------------------------------------------------------------------------


def under(prefix: str, state: Mapping[str, Any]) -> dict[str, Any]:
    """The same state, with every name below ``prefix``."""
    return {f"{prefix}/{name}": content for name, content in state.items()}


def below(prefix: str, state: Mapping[str, Any]) -> dict[str, Any]:
    """Inverse of ``under``: what lies below ``prefix``."""
    start = f"{prefix}/"
    return {name.removeprefix(start): content for name, content in state.items() if name.startswith(start)}


def as_text(value: Any) -> str:
    """Plain values that are no tensors, such as notes."""
    return json.dumps(value)
