"""The scheduler: registers nodes, releases barriers, keeps the membership, ends the run. It carries no tensors."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import islice
from typing import Any

from testbed.engine.checkpoint import CheckpointFiles, Members, commit
from testbed.engine.membership import (
    AGREE,
    BEGUN,
    CHECKPOINT,
    END,
    FINAL,
    SAVED,
    SCRIPTS,
    TRAIN,
    collected_at,
    collector_of,
)
from testbed.engine.peers import TRAINED, EpochReports, FirstRounds, agrees, has_all, has_servers
from testbed.errors import NodeLost, RunFailed
from testbed.messages import Message, MessageKind
from testbed.plan.asynchronous import is_scored_at_top
from testbed.plan.model import Plan
from testbed.results.events import HAS_LEFT, WAS_LOST
from testbed.world import World


class MembershipLedger:
    """Keeps which nodes take part, and carries out the consequences when a node is lost, leaves or joins.

    Every change makes a new membership epoch. The scheduler alone decides changes, one after the other, numbers them,
    records them and sends them to all nodes in that order (EPOCH), so every node sees the same history.

    Nodes must not mistake a message of a lost process for one of the process that replaces it. So a joining node
    receives the number of its epoch (READY), and nodes mark their messages with an epoch (``engine.peers``).

    epoch   the number of changes so far
    absent  nodes that do not take part, in the order of their loss
    joined  by node that was not there from the start: the epoch in which it joined
    first   by worker that has joined: its first round, by the last agreement
    """

    def __init__(self, plan: Plan, begin: Members) -> None:
        self._nodes = {node.name: node for node in plan.nodes}
        self._waiting: dict[str, float] = {}  # nodes that wait for an absent parent: when each registered
        self._new = set(begin.new)  # nodes that have never taken part
        self._left = set(begin.left)  # nodes that have ended their part on purpose
        self.absent: dict[str, None] = dict.fromkeys(begin.absent)
        self._agrees = agrees(plan)
        self.joined = dict(begin.joined)
        self.first = dict(begin.first)
        self._successors = dict(begin.successors)  # by lost server: the replica that has taken over
        self.epoch = begin.epoch
        self._present: list[str] = []
        self._training: list[str] = []
        self._note_present()

    def _note_present(self) -> None:
        """Cache which nodes take part: with thousands of nodes, each of their messages asks for it."""
        present = [node for node in self._nodes.values() if node.role != "scheduler" and node.name not in self.absent]
        self._present = [node.name for node in present]
        self._training = [node.name for node in present if node.role == "worker" and node.trains]

    def members(self, more_waiting: Collection[str], trained_s: float) -> Members:
        """Return the membership for a checkpoint.

        more_waiting  further nodes that have registered, and join after the checkpoint
        trained_s     seconds of training so far
        """
        new = tuple(name for name in self.absent if name in self._new)
        waiting = (*self._waiting, *more_waiting)
        left = tuple(name for name in self.absent if name in self._left)
        return Members(
            epoch=self.epoch,
            absent=tuple(self.absent),
            new=new,
            waiting=waiting,
            joined=dict(self.joined),
            first=dict(self.first),
            successors=dict(self._successors),
            trained_s=trained_s,
            left=left,
        )

    def record_missing(self, world: World, missing: Collection[str]) -> None:
        """Record the nodes that were lost or left before the checkpoint: the resumed run has no other event of this."""
        gone = [name for name in missing if name not in self._new]
        lost = [name for name in gone if name not in self._left]
        for nodes, why in (lost, WAS_LOST), ([name for name in gone if name in self._left], HAS_LEFT):
            if nodes:
                targets = ", ".join(nodes)
                world.record("epoch", number=self.epoch, targets=targets, begins=False, message=why)

    def ready(self) -> dict[str, Any]:
        """Return the metadata of READY for the nodes that take part when the run begins or resumes."""
        meta: dict[str, Any] = {"name": "ready"}
        meta |= {"gone": list(self.absent)} if self.absent else {}
        meta |= {"epoch": self.epoch, "joined": dict(self.joined)} if self.epoch else {}
        meta |= {"first": dict(self.first)} if self.first else {}
        return meta | ({"heirs": self._successors} if self._successors else {})

    def present(self) -> Sequence[str]:
        """Return the nodes that take part, without the scheduler, in the Plan's order."""
        return self._present

    def training(self) -> Sequence[str]:
        """Return the training workers that take part, in the Plan's order."""
        return self._training

    async def remove(self, world: World, node: str, why: str, well: bool = False) -> list[str]:
        """Remove ``node`` and the nodes that depend on it, tell the others, and return the removed nodes.

        ``well``: the node leaves on purpose. It and the nodes that leave with it wait for the scheduler's consent.
        Raise ``RunFailed`` if the run cannot continue without the node.
        """
        self._waiting.pop(node, None)  # else READY would go to a process that has been replaced
        if node in self.absent or node not in self._nodes:
            return []
        successor = self._successor(node)
        self._successors |= {node: successor} if successor else {}
        needed = self._nodes[node].role in ("global_server", "scheduler") or node in self._successors.values()
        if needed and not successor:
            raise RunFailed(f"{node} is lost ({why}), and no run continues without it; write 'on_failure: restart'")
        leaving = [node, *self._dependents(node)]
        self._left.update(leaving if well else ())
        told = self.present()
        self.absent.update(dict.fromkeys(leaving))
        self._note_present()
        for name in leaving:
            self.joined.pop(name, None)
        self.first = {name: round_ for name, round_ in self.first.items() if name not in leaving}
        if not self._training:
            raise RunFailed(f"{node} is lost ({why}), and no other training worker is left")
        self._record(world, leaving, joins=False, why=f"{why}; {successor} takes over" if successor else why)
        meta = {"epoch": self.epoch, "left": leaving, "why": f"{leaving[0]} is lost ({why})"}
        meta |= ({"heir": successor} if successor else {}) | ({"well": True} if well else {})
        for name in told:
            if well or name != node:
                await self._tell(world, name, meta)
        return leaving

    def _successor(self, node: str) -> str:
        """Return the replica that takes over from ``node``; empty if ``node`` is no global server or none is left."""
        replicas = [
            each.name for each in self._nodes.values() if each.role == "replica" and each.name not in self.absent
        ]
        return replicas[0] if replicas and self._nodes[node].role == "global_server" else ""

    def _dependents(self, node: str) -> list[str]:
        """Return the nodes that leave with ``node``: a local server's workers, or the local server of a last worker."""
        lost = self._nodes[node]
        if lost.role == "server":
            return [child for child in lost.children if child not in self.absent]
        servers = [self._nodes[name] for name in lost.parents if self._nodes[name].role == "server"]
        return [
            server.name
            for server in servers
            if server.name not in self.absent and self.absent.keys() | {node} >= set(server.children)
        ]

    async def add(self, world: World, node: str, registered_s: float) -> list[str]:
        """Let the registered ``node`` join as soon as its parents take part. Return all nodes that join now.

        ``registered_s``: when the process registered, by its own clock. READY repeats this time, so that a process
        recognises its own READY: before the scheduler reads a registration, that process may be lost and a next one
        may have registered.
        """
        self._waiting[node] = registered_s
        joined: dict[str, float] = {}
        while ready := [name for name in self._waiting if all(p not in self.absent for p in self._parents(name))]:
            for name in ready:
                joined[name] = self._waiting.pop(name)
                self.absent.pop(name, None)
                self._left.discard(name)
        self._note_present()
        for name, process_s in joined.items():
            self._record(world, [name], joins=True, why="it has joined" if name in self._new else "it is back")
            self._new.discard(name)
            meta: dict[str, Any] = {"registered_s": process_s, "epoch": self.epoch}
            meta |= {"gone": list(self.absent), "heirs": self._successors}
            if self._agrees:
                self.joined[name] = self.epoch
                meta["joined"] = dict(self.joined)
            await world.send(name, Message(MessageKind.READY, meta=meta))
            for other in self.present() if self._agrees else ():
                if other != name:
                    await self._tell(world, other, {"epoch": self.epoch, "left": [], "joined": [name]})
        return list(joined)

    async def end(self, world: World) -> None:
        """Tell the nodes that wait for their parents that the run has ended without them."""
        for name in self._waiting:
            await self._tell(world, name, {"left": [name], "why": "the run has ended meanwhile"})

    def _parents(self, name: str) -> tuple[str, ...]:
        return tuple(self._successors.get(parent, parent) for parent in self._nodes[name].parents)

    async def _tell(self, world: World, node: str, meta: dict[str, Any]) -> None:
        await world.send(node, Message(MessageKind.EPOCH, meta=dict(meta)))

    def _record(self, world: World, nodes: list[str], joins: bool, why: str) -> None:
        self.epoch += 1
        world.record("epoch", number=self.epoch, targets=", ".join(nodes), begins=joins, message=why)


class Scheduler:
    """The scheduler of a run. It is in the central data centre."""

    def __init__(self, plan: Plan, files: CheckpointFiles | None = None) -> None:
        self._plan = plan
        self._files = files
        self._resuming = files.resumed if files else None  # until all nodes have loaded their states
        late = plan.late_comers
        begin = self._resuming.members if self._resuming else Members(absent=late, new=late)
        self._first_nodes = tuple(
            node.name for node in plan.nodes if node.role != "scheduler" and node.name not in begin.missing
        )
        self._workers = {node.name for node in plan.with_role("worker")}
        self._training_workers = {worker.name for worker in plan.training_workers}
        self._unfinished = self._workers.difference(begin.absent)
        self._starting = self._training_workers.difference(begin.absent)  # workers that begin to train together
        self._training_has_ended = False  # True once at least one worker has ended its training
        self._finished: list[str] = []  # workers, in the order in which they finished
        self._trained_s = begin.trained_s
        self._trains_since_s = 0.0
        self._ledger = MembershipLedger(plan, begin)
        self._agrees = agrees(plan)
        self._agreement = EpochReports()
        self._first_rounds = FirstRounds(plan, begin.joined, begin.first) if has_servers(plan) else None
        self._timeouts = plan.timeouts
        self._arrived: dict[str, list[str]] = {}  # by barrier: the nodes that wait there
        self._sizes: dict[str, int] = {}
        # rounds begun by the scripts that wait in a barrier; ``None``: these scripts have made all their rounds
        self._rounds_begun: int | None = None
        self._trained: set[str] = set()  # workers that were released from the barrier TRAINED
        self._digests: dict[str, str] = {}  # by node: the digest of its checkpoint file
        self._order = {node.name: number for number, node in enumerate(plan.nodes)}
        self._saving: set[str] | None = self._savers() if self._resuming else None  # nodes that write a checkpoint now
        self._written_in = self._ledger.epoch  # the epoch in which these nodes were told to write
        self._saved_round = self._resuming.round if self._resuming else -1  # the round of the last checkpoint
        # nodes that registered during a checkpoint, and when: they join after it
        self._registered: dict[str, float] = dict.fromkeys(begin.waiting, 0.0)

    async def __call__(self, world: World) -> None:
        world.record("start", role="scheduler")
        if self._resuming is not None:
            self._ledger.record_missing(world, self._resuming.members.missing)
        await self._rendezvous(world)
        while self._unfinished:
            message = await world.receive("workers to finish", self._timeouts.run_deadline_s)
            await self._handle(world, message)
        await self._wait_for_final_scores(world)
        await _release(world, self._ledger.present(), END)
        await self._ledger.end(world)
        world.record("final", role="scheduler")

    async def _wait_for_final_scores(self, world: World) -> None:
        """Return when the global servers that score the model have scored the final model."""
        scoring = (
            {node.name for node in self._plan.with_role("global_server")} if is_scored_at_top(self._plan) else set()
        )
        await _release(world, sorted(scoring), FINAL)
        while scoring:
            message = await world.receive("the score of the final model", self._timeouts.run_deadline_s)
            if message.kind in (MessageKind.DONE, MessageKind.LOST):
                scoring.discard(message.sender)

    async def _handle(self, world: World, message: Message) -> None:
        if message.kind is MessageKind.DONE:
            self._unfinished.discard(message.sender)
            self._finished.append(message.sender)
            self._refuse_endless_barrier()
            self._training_has_ended = self._training_has_ended or message.sender in self._training_workers
            await self._skip_checkpoints(world)
            if SCRIPTS in self._arrived:  # a worker that has joined may wait there after the others' last barrier
                await self._release_if_complete(world, SCRIPTS)
        elif message.kind is MessageKind.LOST:
            await self._remove(world, message.sender, message.meta["why"])
        elif message.kind is MessageKind.LEAVE:
            await self._remove(world, message.sender, HAS_LEFT, well=True)
        elif message.kind is MessageKind.REGISTER:
            # a node that registers again is a new process, whether or not its loss was noticed
            await self._remove(world, message.sender, "it was started anew")
            if self._saving is not None:
                self._registered[message.sender] = message.sent_at_s
            else:
                await self._add(world, message.sender, message.sent_at_s)
        else:
            assert message.kind is MessageKind.BARRIER, f"the scheduler cannot handle {message.kind}"
            await self._on_barrier(world, message)

    async def _add(self, world: World, node: str, registered_s: float) -> None:
        joined = await self._ledger.add(world, node, registered_s)
        self._unfinished.update(name for name in joined if name in self._workers)

    async def _remove(self, world: World, node: str, why: str, well: bool = False) -> None:
        self._registered.pop(node, None)  # else READY would go to a process that has been replaced
        removed = await self._ledger.remove(world, node, why, well)
        self._unfinished.difference_update(removed)
        if removed:
            await self._release_without(world, removed)

    async def _release_without(self, world: World, removed: list[str]) -> None:
        """Complete the barriers, and the agreement, that waited only for the removed nodes."""
        self._trained.difference_update(removed)
        self._starting.difference_update(removed)
        self._finished = [node for node in self._finished if node not in removed]  # no barrier waits for removed nodes
        if self._saving is not None:
            self._saving.difference_update(removed)
        for name in list(self._arrived):
            self._arrived[name] = [node for node in self._arrived[name] if node not in removed]
            await self._release_if_complete(world, name)
        if self._agrees:
            await self._agree(world)

    async def _agree(self, world: World) -> None:
        members = self._ledger.training() if self._first_rounds is None else self._ledger.present()
        decision = self._agreement.decide(self._ledger.epoch, members)
        if decision is None:
            return
        if self._first_rounds is not None:
            progress = {name: self._agreement.progress(name) for name in self._ledger.training()}
            summed = {name: self._agreement.progress(name) for name in members if name not in self._workers}
            decision["first"] = self._ledger.first = self._first_rounds.give(progress, self._ledger.joined, summed)
            decision["holder"] = ""  # the values are at the servers
            if SCRIPTS in self._arrived:  # only now it is known whether joined workers come to this barrier
                await self._release_if_complete(world, SCRIPTS)
        elif self._resuming is None:
            self._begin_training(world)
        await _release(world, members, **decision)

    def _is_complete(self, name: str) -> bool:
        arrived = self._arrived[name]
        if name.startswith(CHECKPOINT):
            return has_all(arrived, self._ledger.training())
        if name.startswith(SAVED):
            return self._saving is not None and has_all(arrived, self._saving)
        if name == TRAINED and self._agrees:
            awaited = len(self._ledger.training()) - len(self._trained)
            return len(arrived) >= awaited and has_all(self._trained.union(arrived), self._ledger.training())
        if name == SCRIPTS and self._first_rounds is not None:
            return self._all_scripts_have_come(arrived)
        if name in (TRAIN, SCRIPTS) and self._plan.recovery.on_failure == "continue":
            return has_all(arrived, self._starting)
        return len(arrived) >= self._sizes[name]

    def _all_scripts_have_come(self, arrived: Collection[str]) -> bool:
        """Return whether all scripts that come to this barrier have come.

        A worker that has joined may still be starting. It comes to this barrier unless its first round is later, so the
        others wait until its first round is known.
        """
        first = self._ledger.first
        if any(name in self._ledger.joined and name not in first for name in self._ledger.training()):
            return False
        begun = self._rounds_begun
        if begun is None:
            others = self._finished  # the waiting workers joined after these had finished
        else:
            others = [name for name, round_ in first.items() if round_ >= begun]
        return set(arrived).issuperset(set(self._ledger.training()).difference(others))

    async def _rendezvous(self, world: World) -> None:
        missing = dict.fromkeys(self._first_nodes)
        while missing:
            names = ", ".join(islice(missing, 5)) + (", …" if len(missing) > 5 else "")
            message = await world.receive(f"registration of {names}", self._timeouts.rendezvous_s)
            if message.kind is MessageKind.LOST:
                why = message.meta["why"]
                raise NodeLost(f"{message.sender} is lost ({why}), and no run begins before all nodes have registered")
            assert message.kind is MessageKind.REGISTER, f"{message.kind} from {message.sender} before READY"
            for node in (message.sender, *collected_at(self._plan, message.sender)):
                missing.pop(node, None)  # may be gone already: a lost process and its successor both registered
            if message.sender in self._registered:
                self._registered[message.sender] = message.sent_at_s
        present = [name for name in self._first_nodes if name not in self._ledger.absent]
        for node in self._collectors(present):
            await world.send(node, Message(MessageKind.READY, meta=self._ledger.ready()))

    def _collectors(self, nodes: Iterable[str]) -> tuple[str, ...]:
        """Return the nodes to which a message must go so that it reaches all of ``nodes``."""
        return tuple(dict.fromkeys(collector_of(self._plan, node) for node in nodes))

    async def _on_barrier(self, world: World, message: Message) -> None:
        name = message.meta["name"]
        if name.startswith(AGREE):
            self._agreement.report(message.sender, message.meta)
            return await self._agree(world)
        arrived = self._arrived.setdefault(name, [])
        # a local server may come to the barrier before training for its workers; every other node comes for itself
        collected = collected_at(self._plan, message.sender) if name == TRAIN else ()
        arrived.extend([node for node in collected if node in self._training_workers] or [message.sender])
        self._digests[message.sender] = message.meta.get("sha256", "")
        self._sizes[name] = message.meta["size"]
        self._rounds_begun = message.meta.get("rounds_begun", self._rounds_begun)
        self._training_has_ended = self._training_has_ended or name == TRAINED
        self._refuse_endless_barrier()
        await self._skip_checkpoints(world)
        if name in self._arrived:
            await self._release_if_complete(world, name)
        return None

    def _refuse_endless_barrier(self) -> None:
        for name, nodes in self._arrived.items():
            have_joined = self._rounds_begun is None and all(node in self._ledger.joined for node in nodes)
            if name.startswith(SCRIPTS) and nodes and self._finished and not have_joined:
                raise RunFailed(
                    f"{nodes[0]} waits in store.barrier() for {self._finished[0]}, whose script has ended: all "
                    "workers must call it equally often"
                )

    async def _release_if_complete(self, world: World, name: str) -> None:
        if not self._arrived[name] or not self._is_complete(name):
            return
        nodes = self._arrived.pop(name)
        if name == TRAINED:
            self._trained.update(nodes)
        if name == BEGUN:
            self._starting.update(nodes)
        if name.startswith(SAVED):
            world.spawn(self._end_checkpoint(world, int(name.removeprefix(SAVED))), "end a checkpoint")
        elif name.startswith(CHECKPOINT):
            self._saving = self._savers()
            world.spawn(self._begin_checkpoint(world, name), "begin a checkpoint")
        else:
            if name == TRAIN:
                self._begin_training(world)
            await _release(world, self._collectors(nodes) if name == TRAIN else nodes, name)

    def _begin_training(self, world: World) -> None:
        self._trains_since_s = self._trains_since_s or world.now()

    # ---- checkpoints: these run as tasks, and nodes may be lost meanwhile -----------------------------------------

    def _savers(self) -> set[str]:
        """Return the nodes that write a checkpoint: the present training workers, servers and replicas."""
        servers = (name for name in self._ledger.present() if name not in self._workers)
        return {*self._ledger.training(), *servers}

    def _saving_in_order(self) -> list[str]:
        """Return the nodes that write, in the Plan's order: a resumed run could not repeat the order of arrival."""
        return sorted(self._saving or (), key=self._order.__getitem__)

    async def _begin_checkpoint(self, world: World, name: str) -> None:
        await world.settle()  # else the states would lack messages in flight for which no round waits
        self._written_in = self._ledger.epoch
        await _release(world, self._saving_in_order(), name)

    async def _end_checkpoint(self, world: World, round_: int) -> None:
        """Commit the files that all nodes have written as a checkpoint.

        If the run resumes from this checkpoint, commit nothing and go on at the checkpoint's instant. If the membership
        changed during the writing, tell the present nodes to write again.
        """
        assert self._files is not None
        resumed = self._resuming
        name = f"{SAVED}{round_}"
        instant = await world.settle(resumed.instant if resumed else None)
        nodes = self._saving_in_order()
        if self._ledger.epoch != self._written_in and resumed is None:
            self._written_in = self._ledger.epoch
            await _release(world, nodes, name, again=True)
            return
        self._begin_training(world)
        if resumed is None:
            digests = {node: self._digests[node] for node in nodes}
            trained_s = self._trained_s + world.now() - self._trains_since_s
            cut = instant, self._ledger.members(self._registered, trained_s)
            await commit(world, self._files, round_, digests, cut, self._timeouts.run_deadline_s)
        self._resuming = None
        self._saved_round = round_
        self._saving = None
        await _release(world, nodes, name)
        registered, self._registered = self._registered, {}
        for node, registered_s in registered.items():
            await self._add(world, node, registered_s)

    async def _skip_checkpoints(self, world: World) -> None:
        """Release workers that wait for a checkpoint that will not be made.

        Either a worker has ended its training (at its target) and will not come to the barrier, or the checkpoint was
        made before the waiting worker joined.
        """
        for name in [name for name in self._arrived if name.startswith(CHECKPOINT)]:
            if self._training_has_ended or int(name.removeprefix(CHECKPOINT)) <= self._saved_round:
                await _release(world, self._arrived.pop(name), name, skipped=True)


async def _release(world: World, nodes: Iterable[str], name: str, **more: Any) -> None:
    for node in nodes:
        await world.send(node, Message(MessageKind.RELEASE, meta={"name": name, **more}))
