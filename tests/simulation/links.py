"""WAN links for tests, without a Plan."""

from __future__ import annotations

from testbed.plan.model import LinkPlan
from testbed.simulation.packets.engine import PacketEngine
from testbed.simulation.paths import SitePath, WanLink


def wan_link(
    rate_bps: float = 80e6, delay_s: float = 0.0, queue_bytes: int = 10**6, loss: float = 0.0, number: int = 0
) -> WanLink:
    plan = LinkPlan(
        name="a>b", source="a", target="b", rate_bps=rate_bps, delay_s=delay_s, queue_bytes=queue_bytes, loss=loss
    )
    return WanLink(plan, number=number)


def path_over(link: WanLink) -> SitePath:
    """A path over this link alone."""
    path = SitePath("wan", (link,), 0.0)
    path.refresh()
    return path


def change(engine: PacketEngine, link: int, state: WanLink, rate_bps: float, delay_s: float, loss: float = 0.0) -> None:
    state.rate_bps, state.delay_s, state.loss = rate_bps, delay_s, loss
    engine.link_changed(link, state, rate=True)
