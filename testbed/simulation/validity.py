"""Where the TCP model of flows may be off by more than 5 %: what a run doubts of its own prediction.

Of fifty-seven small networks drawn at random, each simulated by flows and packet by packet, 24 differed by more than
5 %. One of these held in all of them, and in nine of the others, which differed by up to 4 %:

* a path loses packets at random: rounds took 0.69 to 1.31 times as long as packet by packet;
* a burst of less than 40 bandwidth-delay products is larger than the queue of its path, and the round trip is at least
  30 ms (BBR: 15 ms), so that repair takes long: 0.83 to 0.96;
* three or more connections share a link, and send less than 16 bandwidth-delay products at a time, but enough to
  notice who goes first: 0.88 to 1.22;
* a message is so small that much of it passes an emulated link at once, as a shaper's bucket lets it: 1.07 to 1.11.

Besides, loss-based algorithms share unevenly where round-trip times differ, also in long transfers.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from testbed.plan.shaping import burst_bytes
from testbed.simulation.paths import WanLink
from testbed.simulation.tcp import TcpConnection
from testbed.simulation.tcp_model import TcpModel

LONG_FLOW = 16  # bandwidth-delay products
CROWD = 3  # connections
CROWDED = 0.05  # bandwidth-delay products that a crowd sends at a time; who goes first matters less than 5 % below
UNEVEN_RTTS = 1.5  # ratio of round-trip times
LONG_BURST = 40  # bandwidth-delay products: what a longer one loses at its beginning counts little
LONG_RTT_S = {True: 0.03, False: 0.015}  # by whether losses slow the sender down
AT_ONCE_SHARE = 0.12  # of the time of a message that the shaper's bucket saves
CURE = "simulate packet by packet: 'simulation: {network: emulated}'"
_COMPETITOR_SHARE = 0.01  # of a link's bytes: a connection with less does not compete


def doubts(
    links: Iterable[WanLink], connections: Mapping[int, Collection[TcpConnection]], model: TcpModel
) -> list[str]:
    """Return a sentence for each kind of doubt, about the link where there is most reason for it; at best none.

    ``connections``: those that cross each link, by its number.
    """
    if not model.slow_start:  # an ideal network, by the user's choice
        return []
    found: dict[str, list[tuple[float, str]]] = {}  # by what is in doubt: how much, and where
    for link in links:
        for what, amount, where in _of_link(link, connections.get(link.number, ()), model):
            found.setdefault(what, []).append((amount, where))
    return [f"{max(places)[1]}{_others(places)}: {what}; {CURE}" for what, places in found.items()]


def _of_link(
    link: WanLink, connections: Collection[TcpConnection], model: TcpModel
) -> Iterable[tuple[str, float, str]]:
    """Yield what is in doubt on one link, how much, and the words for it."""
    name = link.plan.name
    loss = max((each.worst_loss for each in connections), default=0.0)
    if loss > 0:
        yield "transfers may take much longer or shorter", loss, f"{100 * loss:.3g} % of the packets are lost on {name}"
    senders = _senders(connections)
    if not senders:
        return
    bursts = [each for each in senders if each.largest_burst_bdps < LONG_BURST]
    over = sum(each.largest_burst_bytes / max(each.queue_bytes, 1.0) for each in bursts)
    if over > 1 and max(each.rtt_s for each in bursts) >= LONG_RTT_S[model.loss_based]:
        yield "their losses and repair may take longer", over, f"bursts overflow the queue of {name}"
    at_once = max(each.share_at_once(burst_bytes(link.plan.rate_bps)) for each in senders)
    if at_once > AT_ONCE_SHARE:
        yield "emulated rounds may be shorter", at_once, f"the shaper of {name} passes much of a message at once"
    rtts = [each.rtt_s for each in senders]
    short = any(each.largest_burst_bdps < LONG_FLOW for each in senders)
    crowded = sum(each.largest_burst_bdps for each in senders) > CROWDED
    if short and len(senders) >= CROWD and crowded:
        yield "they may share it otherwise", len(senders), f"{len(senders)} connections send short messages over {name}"
    elif not short and model.loss_based and max(rtts) > UNEVEN_RTTS * min(rtts):
        where = f"round-trip times of {len(senders)} connections of {name} differ"
        yield f"{model.congestion_control} may share unevenly", max(rtts) / max(min(rtts), 1e-9), where


def _others(found: Sequence[object]) -> str:
    if len(found) == 1:
        return ""
    return f" (and {len(found) - 1} other link direction{'s' if len(found) > 2 else ''})"


def _senders(connections: Collection[TcpConnection]) -> list[TcpConnection]:
    carried = [each.carried_bytes for each in connections]
    threshold = _COMPETITOR_SHARE * sum(carried)
    return [each for each, bytes_ in zip(connections, carried, strict=True) if bytes_ > threshold]
