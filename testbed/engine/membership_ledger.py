"""Who belongs to the run: nodes that die take with them who cannot do without them, and may come back.

Every change is an epoch. The scheduler decides it, records it, and tells all who are there.
"""

from __future__ import annotations

from typing import Any

from testbed.errors import RunFailed
from testbed.messages import Message, MessageKind
from testbed.plan.fault_clock import late_comers
from testbed.plan.model import NodePlan, Plan
from testbed.world import World


class MembershipLedger:
    """The scheduler's book of who is there. ``number`` grows with every change."""

    def __init__(self, plan: Plan) -> None:
        self._nodes = {node.name: node for node in plan.nodes}
        self._waiting: list[str] = []  # who is back before those whom it needs
        self._new = set(late_comers(plan))  # who has never been there
        self.gone: dict[str, None] = dict.fromkeys(late_comers(plan))
        self._heirs: dict[str, str] = {}  # by servers whose places they have taken
        self.number = 0

    def present(self) -> list[str]:
        """All but the scheduler itself, in the Plan's order."""
        return [name for name, node in self._nodes.items() if node.role != "scheduler" and name not in self.gone]

    async def left(self, world: World, node: str, why: str, well: bool = False) -> list[str]:
        """``node`` is gone, for whatever reason. Returns who is gone with it. ``RunFailed`` if that is the end.

        ``well``: it goes in good order, and waits to hear that it may, as does whoever goes with it.
        """
        if node in self._waiting:
            self._waiting.remove(node)  # or it would be told to begin when it is another process of that name
        if node in self.gone or node not in self._nodes:
            return []
        heir = self._heir(node)
        self._heirs |= {node: heir} if heir else {}
        needed = self._nodes[node].role in ("global_server", "scheduler") or node in self._heirs.values()
        if needed and not heir:
            raise RunFailed(f"{node} is gone ({why}), and nobody can go on without it; write 'on_failure: restart'")
        leaving = [node, *self._dependents(node)]
        told = self.present()
        self.gone.update(dict.fromkeys(leaving))
        if not any(self._nodes[name].role == "worker" and self._nodes[name].trains for name in self.present()):
            raise RunFailed(f"{node} was the last: {why}; no worker is left")
        self._record(world, leaving, joins=False, why=f"{why}; {heir} takes its place" if heir else why)
        said = {"epoch": self.number, "left": leaving, "why": f"{leaving[0]} is gone ({why})"}
        said |= ({"heir": heir} if heir else {}) | ({"well": True} if well else {})
        await self._tell(world, [name for name in told if well or name != node], said)
        return leaving

    def _heir(self, node: str) -> str:
        """Who takes its place, if it is a global server with a replica that is there."""
        replicas = [each.name for each in self._nodes.values() if each.role == "replica" and each.name not in self.gone]
        return replicas[0] if replicas and self._nodes[node].role == "global_server" else ""

    def _dependents(self, node: str) -> list[str]:
        """A server without workers has nothing to do, and workers without their server cannot do anything."""
        own = self._nodes[node]
        if own.role == "server":
            return [child for child in own.children if child not in self.gone]
        servers = [self._nodes[name] for name in own.parents if self._nodes[name].role == "server"]
        return [server.name for server in servers if not self._others_of(server, node) and server.name not in self.gone]

    def _others_of(self, server: NodePlan, node: str) -> list[str]:
        return [child for child in server.children if child not in self.gone and child != node]

    async def back(self, world: World, node: str) -> list[str]:
        """``node`` has registered again. Returns who takes part from now on: it, and who has waited for it."""
        self._waiting.append(node)
        joined: list[str] = []
        while ready := [name for name in self._waiting if all(parent not in self.gone for parent in self._above(name))]:
            for name in ready:
                self._waiting.remove(name)
                self.gone.pop(name, None)
                joined.append(name)
        for name in joined:
            self._record(world, [name], joins=True, why="it has joined" if name in self._new else "it is back")
            self._new.discard(name)
            meta = {"again": True, "epoch": self.number, "gone": list(self.gone), "heirs": self._heirs}
            await world.send(name, Message(MessageKind.READY, meta=meta))
        return joined

    async def end(self, world: World) -> None:
        """The run has ended before those whom some of the returned need were back."""
        for name in self._waiting:
            await world.send(
                name, Message(MessageKind.EPOCH, meta={"left": [name], "why": "the run has ended meanwhile"})
            )

    def _above(self, name: str) -> tuple[str, ...]:
        return tuple(self._heirs.get(parent, parent) for parent in self._nodes[name].parents)

    async def _tell(self, world: World, nodes: list[str], said: dict[str, Any]) -> None:
        for name in nodes:
            await world.send(name, Message(MessageKind.EPOCH, meta=dict(said)))

    def _record(self, world: World, nodes: list[str], joins: bool, why: str) -> None:
        self.number += 1
        world.record("epoch", number=self.number, targets=", ".join(nodes), begins=joins, message=why)
