"""Where the model of TCP claims nothing: what a run has to say about its own prediction.

Sharing is fluid (errors up to 10 % against real TCP) where each of the connections that share a link sends at least 16
bandwidth-delay products at a time; with 4, and 16 senders, real transfers took up to 40 % longer. Loss-based algorithms
also share unevenly, and leave capacity unused, where round trips differ. A connection that has a link to itself is
within a few per cent whatever it sends (``python -m analysis.experiments.transfers``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from testbed.simulation.paths import WanLink
from testbed.simulation.tcp import Connection, TcpModel

LONG_FLOW = 16  # bandwidth-delay products
UNEVEN = 1.5  # of round trips
_SHARE = 0.01  # of a link's bytes: below, a connection is no competitor


def doubts(links: Iterable[WanLink], connections: Mapping[int, Sequence[Connection]], model: TcpModel) -> list[str]:
    """Sentences for the run's report, at most two; empty where everything is inside the model's claim."""
    short: list[tuple[float, str]] = []
    uneven: list[tuple[float, str]] = []
    for link in links:
        rivals = _rivals(connections.get(link.number, ()))
        if len(rivals) < 2:
            continue
        products = min(each.products for each in rivals)
        if products < LONG_FLOW:
            short.append((products, f"on {link.plan.name}, {len(rivals)} connections send {products:.2g}"))
        trips = [each.rtt_s for each in rivals]
        if model.loss_based and max(trips) > UNEVEN * min(trips):
            uneven.append((-max(trips) / max(min(trips), 1e-9), f"{len(rivals)} connections of {link.plan.name}"))
    said = []
    if short:
        rest = f" (and on {len(short) - 1} more)" if len(short) > 1 else ""
        said.append(
            f"{min(short)[1]} bandwidth-delay products at a time{rest}: shares are believed from {LONG_FLOW} on"
        )
    if uneven:
        rest = f" (and {len(uneven) - 1} more)" if len(uneven) > 1 else ""
        said.append(
            f"round trips of {min(uneven)[1]}{rest} differ: {model.congestion_control} may share unevenly there"
        )
    return said


def _rivals(connections: Sequence[Connection]) -> list[Connection]:
    carried = [each.carried_bytes for each in connections]
    return [each for each, mine in zip(connections, carried, strict=True) if mine > _SHARE * sum(carried)]
