"""The scheduler: registers nodes, releases barriers, keeps the membership, declares the end. It carries no tensors."""

from __future__ import annotations

from collections.abc import Collection

from testbed.engine.checkpoint import CheckpointFiles, commit
from testbed.engine.membership import CHECKPOINT, END, SAVED
from testbed.engine.membership_ledger import MembershipLedger
from testbed.messages import Message, MessageKind
from testbed.plan.fault_clock import late_comers
from testbed.plan.model import Plan
from testbed.results.events import HAS_LEFT
from testbed.world import World


class Scheduler:
    """One per run, in the central data centre."""

    def __init__(self, plan: Plan, files: CheckpointFiles | None = None) -> None:
        late = late_comers(plan)
        self._files = files
        self._servers = tuple(node.name for node in plan.nodes if node.role in ("server", "global_server"))
        self._first_nodes = tuple(
            node.name for node in plan.nodes if node.role != "scheduler" and node.name not in late
        )
        self._workers = {node.name for node in plan.with_role("worker")}
        self._training_workers = {worker.name for worker in plan.training_workers}
        self._unfinished = self._workers.difference(late)
        self._training_has_ended = False  # at one worker at least
        self._ledger = MembershipLedger(plan)
        self._timeouts = plan.timeouts
        self._arrived: dict[str, list[str]] = {}  # by barrier
        self._digests: dict[str, str] = {}  # of checkpoint files, by node

    async def __call__(self, world: World) -> None:
        world.record("start", role="scheduler")
        await self._rendezvous(world)
        while self._unfinished:
            message = await world.receive("workers to finish", self._timeouts.run_deadline_s)
            await self._handle(world, message)
        await _tell(world, self._ledger.present(), END)
        await self._ledger.end(world)
        world.record("final", role="scheduler")

    async def _handle(self, world: World, message: Message) -> None:
        if message.kind is MessageKind.DONE:
            self._unfinished.discard(message.sender)
            self._training_has_ended = self._training_has_ended or message.sender in self._training_workers
            await self._skip_checkpoints(world)
        elif message.kind is MessageKind.LOST:
            await self._remove(world, message.sender, message.meta["why"])
        elif message.kind is MessageKind.LEAVE:
            await self._remove(world, message.sender, HAS_LEFT, well=True)
        elif message.kind is MessageKind.REGISTER:
            # a node that registers once more is a new process, whether or not its loss was noticed
            await self._remove(world, message.sender, "it was started anew")
            joined = await self._ledger.add(world, message.sender)
            self._unfinished.update(name for name in joined if name in self._workers)
        else:
            assert message.kind is MessageKind.BARRIER, f"the scheduler cannot handle {message.kind}"
            await self._on_barrier(world, message)

    async def _remove(self, world: World, node: str, why: str, well: bool = False) -> None:
        self._unfinished.difference_update(await self._ledger.remove(world, node, why, well))

    async def _rendezvous(self, world: World) -> None:
        missing = dict.fromkeys(self._first_nodes)
        while missing:
            names = ", ".join(list(missing)[:5]) + (", …" if len(missing) > 5 else "")
            message = await world.receive(f"registration of {names}", self._timeouts.rendezvous_s)
            assert message.kind is MessageKind.REGISTER, f"{message.kind} from {message.sender} before READY"
            missing.pop(message.sender)
        absent = {"gone": list(self._ledger.absent)} if self._ledger.absent else {}
        for node in self._first_nodes:
            await world.send(node, Message(MessageKind.READY, meta={"name": "ready", **absent}))

    async def _on_barrier(self, world: World, message: Message) -> None:
        name = message.meta["name"]
        arrived = self._arrived.setdefault(name, [])
        arrived.append(message.sender)
        self._digests[message.sender] = message.meta.get("sha256", "")
        if len(arrived) < message.meta["size"]:
            await self._skip_checkpoints(world)
            return
        if name.startswith(SAVED):
            assert self._files is not None
            round_, digests = int(name.removeprefix(SAVED)), {node: self._digests[node] for node in arrived}
            await commit(world, self._files, round_, digests, self._timeouts.run_deadline_s)
        others = self._servers if name.startswith(CHECKPOINT) else ()
        await _tell(world, (*self._arrived.pop(name), *others), name)

    async def _skip_checkpoints(self, world: World) -> None:
        """Release the workers that wait for a checkpoint which one that has finished (at its target) will not reach."""
        for name in [name for name in self._arrived if name.startswith(CHECKPOINT) and self._training_has_ended]:
            for node in self._arrived.pop(name):
                await world.send(node, Message(MessageKind.RELEASE, meta={"name": name, "skipped": True}))


async def _tell(world: World, nodes: Collection[str], name: str) -> None:
    for node in nodes:
        await world.send(node, Message(MessageKind.RELEASE, meta={"name": name}))
