"""Makes a node's parts of overlays, beside its ``KVWorker`` and ``Server``, from the Plan."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from testbed.codec.base import Codec
from testbed.engine import sync_setup
from testbed.engine.inbox import Mail
from testbed.engine.kvworker import PushRoute, Send
from testbed.engine.overlay.group import InterceptedMail, OverlayGroup, OverlayMail
from testbed.engine.overlay.member import OverlayMember
from testbed.engine.overlay.root import Root
from testbed.engine.peers import EpochMail, Peers, first_rounds
from testbed.engine.session import Session
from testbed.messages import MessageKind
from testbed.plan.model import NodePlan, Plan
from testbed.policy.overlay import OVERLAYS
from testbed.policy.overlay.base import ROOT, GroupSetting
from testbed.policy.sync import SYNC
from testbed.settings.job import Choice
from testbed.training.seeds import seed_for


class NodeOverlays:
    """One node's parts of the overlays towards its parents and towards its children; a star needs none."""

    def __init__(self, plan: Plan, node: NodePlan, session: Session) -> None:
        self._plan = plan
        self._node = node
        self._world = session.world
        self._inbox = session.inbox
        self._peers = session.peers
        self._mail = OverlayMail(EpochMail(session.inbox, session.peers, together=True))

    def towards_parents(self, make_codec: Callable[[], Codec]) -> tuple[Mail, PushRoute] | None:
        """Return the mail and push route of a ``KVWorker``, if this node contributes through an overlay."""
        parents = self._node.parents
        if not parents or not _relays(self._plan, parents[0]):
            return None
        if self._node.name not in sync_setup.contributors(self._plan, self._plan.node(parents[0])):
            return None
        mail = InterceptedMail(self._inbox)
        groups = {parent: group_of(self._plan, parent, self._peers) for parent in parents}
        members = {
            parent: OverlayMember(self._world, self._mail, mail, group, make_codec())
            for parent, group in groups.items()
        }
        self._peers.greets.update(*(group.members for group in groups.values()))
        return mail, PushRoute(
            lambda server, message: members[server].push(message),
            lambda server, declaration: members[server].declare(declaration),
            members,
        )

    def towards_children(self) -> tuple[Mail, Send, Root] | None:
        """Return the mail and the way of replies of a ``Server``, and the root, if its children use an overlay."""
        if not _relays(self._plan, self._node.name):
            return None
        mail = InterceptedMail(EpochMail(self._inbox, self._peers, together=True))
        root = Root(self._world, self._mail, mail, group_of(self._plan, self._node.name, self._peers))
        mail.before(MessageKind.DECLARE, root.on_declare)
        return mail, root.send, root


def _choice(plan: Plan, server: str) -> Choice:
    """Return the overlay between ``server`` and its children."""
    return plan.technique.overlay_tier1 if plan.node(server).role == "server" else plan.technique.overlay_tier2


def _relays(plan: Plan, server: str) -> bool:
    return OVERLAYS[_choice(plan, server).kind].relays


def group_of(plan: Plan, root: str, peers: Peers) -> OverlayGroup:
    """Return the group of the server ``root``, as one of the group's nodes sees it. ``peers``: that node's peers."""
    choice = _choice(plan, root)
    server = plan.node(root)
    members = sync_setup.contributors(plan, server)
    options = OVERLAYS.options(choice.kind, choice.options)
    rates = partial(planned_rates, plan, root, members)
    lan_rounds = sync_setup.lan_rounds(plan) if server.role == "global_server" else 1
    kind: Any = OVERLAYS[choice.kind]
    seed = seed_for(plan.seed, "overlay", root)
    path = partial(wan_links, plan)
    policy = kind(GroupSetting(root, members, seed, rates, lan_rounds, path), options)
    sync = plan.technique.sync_tier1 if server.role == "server" else plan.technique.sync_tier2
    return OverlayGroup(
        root,
        members,
        options.chunk,
        options.merge == "sum",
        not SYNC[sync.kind].waits,
        policy,
        peers,
        partial(first_rounds, plan, server, peers),
    )


def wan_links(plan: Plan, source: str, target: str) -> frozenset[str]:
    """Return the names of the WAN's links on the path between two nodes; none inside a data centre."""
    here = plan.node(source).data_center
    there = plan.node(target).data_center
    return frozenset(plan.network.between(here, there) if here != there else ())


def planned_rates(plan: Plan, root: str, members: tuple[str, ...]) -> dict[tuple[int, int], float]:
    """Return bytes per second between ranks (−1: the root) whose data centres are neighbours.

    Between neighbours there may be routers, but no other data centre: that could merge the contributions, so a path
    through it consists of several hops of the overlay.
    """
    sites = {rank: plan.node(name).data_center for rank, name in enumerate((root, *members), start=ROOT)}
    links = {link.name: link for link in plan.network.links}

    def rate_bps(source: str, target: str) -> float | None:
        """Return the rate of the path's slowest link, LANs included; ``None`` if it crosses a third data centre."""
        lan_bps = min(plan.site(source).lan_rate_bps, plan.site(target).lan_rate_bps)
        route = [links[name] for name in plan.network.between(source, target)] if source != target else []
        if any(link.target not in plan.network.routers for link in route[:-1]):
            return None
        return min([lan_bps, *(link.rate_bps for link in route)])

    rates = {(one, other): rate_bps(sites[one], sites[other]) for one in sites for other in sites if one != other}
    return {pair: rate / 8 for pair, rate in rates.items() if rate is not None}
