"""Checkpoints of a running job: all nodes stop between two rounds, write their state, and continue.

1. Workers meet at a barrier after every n-th round. Each of them has the replies to all its pushes by then, so no
   message is in flight, whatever the synchronisation: a consistent cut (Chandy and Lamport, TOCS 3(1), 1985, reduced
   to stopping).
2. The scheduler releases the workers and tells the servers; all of them write, and meet at a second barrier.
3. The scheduler makes the files a checkpoint (``commit``) and releases everyone.
"""

from __future__ import annotations

import errno
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
    """One node's part. ``resumed``: the run begins with a checkpoint, with this node's ``state`` at ``first_round``."""

    def __init__(self, world: World, membership: Membership, plan: Plan, files: CheckpointFiles | None) -> None:
        self._world, self._membership, self._files = world, membership, files
        self._every = plan.checkpoint_every if files else 0  # rounds; 0: this run writes no checkpoints
        faults = [fault for fault in plan.faults if fault.kind == "disk_full" and world.node in fault.targets]
        self._disk_full_rounds = [(fault.round or 0, (fault.round or 0) + int(fault.value)) for fault in faults]
        self._rounds, self._deadline_s = plan.training.rounds, plan.timeouts.run_deadline_s
        self._workers = len(plan.training_workers)
        self._savers = self._workers + len(plan.with_role("server")) + len(plan.with_role("global_server"))
        checkpoint = files.resumed if files else None
        self.resumed = checkpoint is not None
        self.first_round = checkpoint.round + 1 if checkpoint else 0
        self.state: NodeState = dict(checkpoint.states.get(world.node, {})) if checkpoint else {}

    def due(self, round_: int) -> bool:
        """Return whether a checkpoint follows ``round_``; none follows the last round."""
        return self._every > 0 and (round_ + 1) % self._every == 0 and round_ + 1 < self._rounds

    async def save(self, round_: int, state: Callable[[], Awaitable[Mapping[str, Any]]]) -> None:
        """Write a worker's state after ``round_``. Return when all have written, or it is skipped."""
        name = f"{CHECKPOINT}{round_}"
        released = await self._membership.barrier(name, self._workers, self._deadline_s)
        if not released.get("skipped"):
            await self._write(round_, await state())

    def serve(self, state: GetState) -> None:
        """Write a server's state whenever the workers stand still."""
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
            digest = await self._world.wait(writing, "its checkpoint to be written", self._deadline_s)
        except OSError as error:
            self._world.record("warning", message=f"no checkpoint of round {round_}: {error}")
        await self._membership.barrier(f"{SAVED}{round_}", self._savers, self._deadline_s, sha256=digest)

    def _check_disk(self, round_: int) -> None:
        """Raise ``OSError`` in the rounds in which a fault of the Plan fills the disk."""
        if any(begin <= round_ < end for begin, end in self._disk_full_rounds):
            self._world.record("fault", fault="disk_full", targets=self._world.node, begins=True)
            raise OSError(errno.ENOSPC, "disk full (a fault of the scenario)")


async def commit(world: World, files: CheckpointFiles, round_: int, digests: Mapping[str, str], wait_s: float) -> None:
    """Make the files of ``digests`` a checkpoint, or discard them where a node could not write (an empty digest)."""

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

    failure = await world.wait(world.aside(make), "the checkpoint's manifest", wait_s)
    complete = not failure and all(digests.values())
    files.failures = 0 if complete else files.failures + 1
    if files.failures == GIVE_UP_AFTER:
        why = failure or f"{', '.join(node for node in digests if not digests[node])} could not write"
        raise RunFailed(f"no checkpoint could be written {GIVE_UP_AFTER} times in a row; the last time: {why}")
    if failure:
        world.record("warning", message=f"no checkpoint of round {round_}: {failure}; earlier ones are kept")
    elif complete:
        world.record("checkpoint", round=round_)
