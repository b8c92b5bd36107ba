"""Puts the overlay's parts beside a node's KVStore and Server, from the Plan."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from testbed.codec.base import Codec
from testbed.engine import technique
from testbed.engine.inbox import Mail
from testbed.engine.kvworker import Send
from testbed.engine.overlay.group import InterceptedMail, OverlayGroup, OverlayMail
from testbed.engine.overlay.member import Member, Trees
from testbed.engine.overlay.rates import planned_rates
from testbed.engine.overlay.root import Guide, Root
from testbed.messages import Message, MessageKind
from testbed.plan.model import Choice, NodePlan, Plan
from testbed.policy.overlay import OVERLAYS
from testbed.policy.overlay.netstorm import Detours, NetStorm
from testbed.policy.overlay.tree import Tree
from testbed.policy.overlay.tsengine import TsEngine
from testbed.training.seeds import seed_for
from testbed.world import World


class ParentOverlay:
    """A child's side, towards all of its servers."""

    def __init__(self, world: World, mail: Mail, members: Mapping[str, Callable[[InterceptedMail], Member]]) -> None:
        self.mail = InterceptedMail(mail)
        self._members = {server: make(self.mail) for server, make in members.items()}

    async def send(self, server: str, message: Message) -> None:
        """A push, to be merged on its way."""
        await self._members[server].push(message)

    def declared(self, server: str, sizes: dict[int, int]) -> None:
        """These wire keys live on ``server``."""
        self._members[server].declare(sizes)


@dataclass(frozen=True, slots=True)
class ChildOverlay:
    """A server's side, towards its children: where its mail comes from, and where its answers go."""

    mail: InterceptedMail
    send: Send


class Overlay:
    """One node's relays. A node that takes part in no overlay has neither ``above`` nor ``below``."""

    def __init__(self, plan: Plan, node: NodePlan, world: World, mail: Mail) -> None:
        self._plan, self._world, self._mail = plan, world, OverlayMail(mail)
        self._inbox, self._node = mail, node

    def above(self, make_codec: Callable[[], Codec]) -> ParentOverlay | None:
        """Towards this node's servers, if it contributes to them through an overlay."""
        if not self._node.parents or _choice(self._plan, self._node.parents[0]).kind == "star":
            return None
        groups = [_group(self._plan, parent) for parent in self._node.parents]
        if self._node.name not in groups[0].members:
            return None
        return ParentOverlay(
            self._world,
            self._inbox,
            {group.root: self._maker(group, make_codec) for group in groups},
        )

    def _maker(self, group: OverlayGroup, make_codec: Callable[[], Codec]) -> Callable[[InterceptedMail], Member]:
        guide = _guide(self._plan, group)
        detours = _detours(self._plan, group, group.rank(self._node.name))
        trees = Trees(None if isinstance(guide, TsEngine) else guide.trees, detours)
        return lambda store: Member(self._world, self._mail, store, group, make_codec(), trees)

    def below(self) -> ChildOverlay | None:
        """Towards this server's children, if they contribute through an overlay."""
        if _choice(self._plan, self._node.name).kind == "star":
            return None
        group = _group(self._plan, self._node.name)
        mail = InterceptedMail(self._inbox)
        root = Root(self._world, self._mail, mail, group, _guide(self._plan, group), _detours(self._plan, group, -1))
        mail.before(MessageKind.DECLARE, root.on_declare)
        return ChildOverlay(mail, root.send)


def _choice(plan: Plan, server: str) -> Choice:
    """The overlay between ``server`` and its children."""
    return plan.technique.overlay_tier1 if plan.node(server).role == "server" else plan.technique.overlay_tier2


def _group(plan: Plan, root: str) -> OverlayGroup:
    choice = _choice(plan, root)
    members = technique.contributors(plan, plan.node(root))
    return OverlayGroup(
        root, members, choice.options["chunk"], choice.options["merge"] == "sum", choice.kind == "netstorm"
    )


def _guide(plan: Plan, group: OverlayGroup) -> Guide:
    choice = _choice(plan, group.root)
    kind = OVERLAYS[choice.kind]
    options = kind.Options(**choice.options | _expiry(plan, group))
    if kind is TsEngine:
        return TsEngine(group.root, group.members, options, seed_for(plan.seed, "overlay", group.root))
    if kind is NetStorm:
        return NetStorm(len(group.members), options, planned_rates(plan, group))
    return Tree(len(group.members), options)


def _expiry(plan: Plan, group: OverlayGroup) -> dict[str, int]:
    """In workers' rounds, by which transfers are told apart: of those, only every k2-th comes up to here under HFA."""
    options, at_top = _choice(plan, group.root).options, plan.node(group.root).role == "global_server"
    return {"expiry": options["expiry"] * technique.lan_rounds(plan)} if "expiry" in options and at_top else {}


def _detours(plan: Plan, group: OverlayGroup, rank: int) -> Detours | None:
    """Ways around crowded links, for an overlay that takes any."""
    bound = _choice(plan, group.root).options.get("auxiliary", 0)
    return Detours(rank, planned_rates(plan, group), bound * group.chunk_bytes) if bound else None
