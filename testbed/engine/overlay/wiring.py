"""An overlay's parts beside a node's ``KVWorker`` and ``Server``, from the Plan."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from testbed.codec.base import Codec
from testbed.engine import sync_setup
from testbed.engine.inbox import Mail
from testbed.engine.kvworker import Send
from testbed.engine.overlay.group import InterceptedMail, OverlayGroup, OverlayMail
from testbed.engine.overlay.member import OverlayMember, Trees
from testbed.engine.overlay.root import Root
from testbed.messages import Message, MessageKind
from testbed.plan.model import Choice, NodePlan, Plan
from testbed.plan.routes import routes_of
from testbed.policy.overlay import OVERLAYS
from testbed.policy.overlay.base import ROOT, GroupSetting, Overlay, TreeOverlay
from testbed.policy.overlay.netstorm import Detours
from testbed.training.seeds import seed_for
from testbed.world import World


class ParentOverlay:
    """A child's side, towards all of its servers."""

    def __init__(
        self, world: World, mail: Mail, members: Mapping[str, Callable[[InterceptedMail], OverlayMember]]
    ) -> None:
        self.mail = InterceptedMail(mail)
        self._members = {server: make(self.mail) for server, make in members.items()}

    async def send(self, server: str, message: Message) -> None:
        """Take a push, to be merged with those of others between here and the server."""
        await self._members[server].push(message)

    def on_declared(self, server: str, sizes: dict[int, int]) -> None:
        """Note the elements of the wire keys that live on ``server``."""
        self._members[server].declare(sizes)


@dataclass(frozen=True, slots=True)
class ChildOverlay:
    """A server's side, towards its children: the mail that it reads, and how it sends replies."""

    mail: InterceptedMail
    send: Send


class NodeOverlays:
    """One node's relays, none where a star stands between it and its parents, or its children."""

    def __init__(self, plan: Plan, node: NodePlan, world: World, mail: Mail) -> None:
        self._plan, self._world, self._mail = plan, world, OverlayMail(mail)
        self._inbox, self._node = mail, node

    def towards_parents(self, make_codec: Callable[[], Codec]) -> ParentOverlay | None:
        """Return the side towards this node's servers, if it contributes to them through an overlay."""
        if not self._node.parents or not _kind(self._plan, self._node.parents[0]).relays:
            return None
        groups = [_group(self._plan, parent) for parent in self._node.parents]
        if self._node.name not in groups[0].members:
            return None
        return ParentOverlay(
            self._world,
            self._inbox,
            {group.root: self._maker(group, make_codec) for group in groups},
        )

    def _maker(
        self, group: OverlayGroup, make_codec: Callable[[], Codec]
    ) -> Callable[[InterceptedMail], OverlayMember]:
        policy = _policy(self._plan, group)
        detours = _detours(self._plan, group, group.rank(self._node.name))
        trees = Trees(policy.trees if isinstance(policy, TreeOverlay) else None, detours)
        return lambda store: OverlayMember(self._world, self._mail, store, group, make_codec(), trees)

    def towards_children(self) -> ChildOverlay | None:
        """Return the side towards this server's children, if they contribute through an overlay."""
        if not _kind(self._plan, self._node.name).relays:
            return None
        group = _group(self._plan, self._node.name)
        mail = InterceptedMail(self._inbox)
        root = Root(self._world, self._mail, mail, group, _policy(self._plan, group), _detours(self._plan, group, ROOT))
        mail.before(MessageKind.DECLARE, root.on_declare)
        return ChildOverlay(mail, root.send)


def _choice(plan: Plan, server: str) -> Choice:
    """Return the overlay between ``server`` and its children."""
    return plan.technique.overlay_tier1 if plan.node(server).role == "server" else plan.technique.overlay_tier2


def _kind(plan: Plan, server: str) -> type[Overlay]:
    return OVERLAYS[_choice(plan, server).kind]


def _group(plan: Plan, root: str) -> OverlayGroup:
    options, members = _choice(plan, root).options, sync_setup.contributors(plan, plan.node(root))
    return OverlayGroup(root, members, options["chunk"], options["merge"] == "sum", _kind(plan, root).adapts)


def _policy(plan: Plan, group: OverlayGroup) -> Overlay:
    choice, at_top = _choice(plan, group.root), plan.node(group.root).role == "global_server"
    setting = GroupSetting(
        group.root,
        group.members,
        seed_for(plan.seed, "overlay", group.root),
        partial(planned_rates, plan, group),
        sync_setup.lan_rounds(plan) if at_top else 1,
    )
    make: Any = OVERLAYS[choice.kind]
    policy: Overlay = make(setting, OVERLAYS.options(choice.kind, choice.options))
    return policy


def _detours(plan: Plan, group: OverlayGroup, rank: int) -> Detours | None:
    """Return the detours around links with long queues, for an overlay that takes any."""
    choice = _choice(plan, group.root)
    bound_bytes = OVERLAYS[choice.kind].detour_bytes(OVERLAYS.options(choice.kind, choice.options))
    return Detours(rank, planned_rates(plan, group), bound_bytes) if bound_bytes else None


def planned_rates(plan: Plan, group: OverlayGroup) -> dict[tuple[int, int], float]:
    """Return bytes per second between ranks (−1: the root) whose data centres are neighbours.

    Routers may lie between neighbours, other data centres may not: those can merge what they pass on, so a path through
    them is a path of the overlay.
    """
    nodes = {rank: plan.node(name) for rank, name in enumerate((group.root, *group.members), start=-1)}
    rates = {}
    for one, here in nodes.items():
        for other, there in nodes.items():
            if one != other and (rate_bps := _rate_bps(plan, here.data_center, there.data_center)) is not None:
                rates[one, other] = rate_bps / 8
    return rates


def _rate_bps(plan: Plan, source: str, target: str) -> float | None:
    """Return the slowest link of the path, LANs included; ``None`` if a third data centre lies on it."""
    lan = min(plan.site(source).lan_rate_bps, plan.site(target).lan_rate_bps)
    if source == target:
        return lan
    links = {link.name: link for link in plan.network.links}
    route = [links[name] for name in routes_of(plan.network).between(source, target)]
    if any(link.target not in plan.network.routers for link in route[:-1]):
        return None
    return min(lan, *(link.rate_bps for link in route))
