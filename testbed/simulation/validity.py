"""Where the TCP model claims nothing: warnings of a run about its own prediction.

* Sharing is fluid in the model. Errors stay below 10 % of real TCP where each of the connections that share a link
  sends at least 16 bandwidth-delay products at a time; with 4, and 16 senders, real transfers took up to 40 % longer.
* Loss-based algorithms share unevenly, and leave capacity unused, where round-trip times differ.
* Random losses limit the rate by a formula. With 1 and 2 %, transfers over packets took 0.84 to 1.16 times as long with
  loss-based algorithms; with 5 to 20 % 0.67 to 1.17 times, and up to 5 times with BBR. The first losses of a message of
  a few segments cost it some round trips more.
* A connection that has a link to itself is within a few per cent whatever it sends (``testbed figure transfers``).
  Where bursts overflow the queue, rounds were within 16 % of exact runs (median 3 %).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from testbed.simulation.paths import WanLink
from testbed.simulation.tcp import TcpConnection
from testbed.simulation.tcp_model import TcpModel

LONG_FLOW = 16  # bandwidth-delay products
UNEVEN_RTTS = 1.5  # ratio of round-trip times
HEAVY_LOSS = 0.02  # share of packets
_COMPETITOR_SHARE = 0.01  # of a link's bytes: a connection with less does not compete


def validity_warnings(
    links: Iterable[WanLink], connections: Mapping[int, Collection[TcpConnection]], model: TcpModel
) -> list[str]:
    """Return at most three sentences for the run's report; none where everything is inside the model's claim.

    ``connections``: those that cross each link, by its number.
    """
    short: list[tuple[float, str]] = []  # how far outside the claim, least first, and what
    uneven: list[tuple[float, str]] = []
    lossy: list[tuple[float, str]] = []
    for link in links:
        loss = max((each.worst_loss for each in connections.get(link.number, ())), default=0.0)
        if loss > HEAVY_LOSS * (1 + 1e-9):  # as the loss of a path is rounded
            share = f"{100 * loss:.3g} % of the packets"
            lossy.append((-loss, f"{share} are lost at random on paths over {link.plan.name}"))
        competitors = _competitors(connections.get(link.number, ()))
        if len(competitors) < 2:
            continue
        bdps = min(each.mean_burst_bdps for each in competitors)
        if bdps < LONG_FLOW:
            short.append((bdps, f"on {link.plan.name}, {len(competitors)} connections send {bdps:.2g}"))
        rtts = [each.rtt_s for each in competitors]
        if model.loss_based and max(rtts) > UNEVEN_RTTS * min(rtts):
            ratio = max(rtts) / max(min(rtts), 1e-9)
            uneven.append((-ratio, f"{len(competitors)} connections of {link.plan.name}"))
    control = model.congestion_control
    texts = (
        (short, f"{{}} bandwidth-delay products at a time{{}}: sharing is not validated below {LONG_FLOW}"),
        (lossy, f"{{}}{{}}: not validated above {100 * HEAVY_LOSS:g} %; use 'simulation: {{{{network: emulated}}}}'"),
        (uneven, f"round-trip times of {{}} differ{{}}: {control} may share unevenly"),
    )
    return [text.format(min(found)[1], _others(found)) for found, text in texts if found]


def _others(found: Sequence[object]) -> str:
    if len(found) == 1:
        return ""
    return f" (and on {len(found) - 1} other link direction{'s' if len(found) > 2 else ''})"


def _competitors(connections: Collection[TcpConnection]) -> list[TcpConnection]:
    carried = [each.carried_bytes for each in connections]
    threshold = _COMPETITOR_SHARE * sum(carried)
    return [each for each, bytes_ in zip(connections, carried, strict=True) if bytes_ > threshold]
