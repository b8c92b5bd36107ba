"""Where the model of TCP claims nothing: what a run has to say about its own prediction.

Sharing is fluid (errors up to 10 % against real TCP) where each of the connections that share a link sends at least 16
bandwidth-delay products at a time; with 4, and 16 senders, real transfers took up to 40 % longer. Loss-based algorithms
also share unevenly, and leave capacity unused, where round trips differ. A connection that has a link to itself is
within a few per cent whatever it sends (``testbed figure transfers``), unless its unpaced bursts
overflow the queue: then losses shrink a loss-based window below the path for some ten rounds, and 24 emulated rounds
took up to 28 % longer than predicted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from testbed.simulation.paths import WanLink
from testbed.simulation.tcp import TcpConnection
from testbed.simulation.tcp_model import TcpModel

LONG_FLOW = 16  # bandwidth-delay products
UNEVEN = 1.5  # of round trips
_SHARE = 0.01  # of a link's bytes: below, a connection is no competitor


def doubts(links: Iterable[WanLink], connections: Mapping[int, Sequence[TcpConnection]], model: TcpModel) -> list[str]:
    """Sentences for the run's report, at most three; empty where everything is inside the model's claim."""
    short: list[tuple[float, str]] = []
    uneven: list[tuple[float, str]] = []
    spilt: list[tuple[float, str]] = []
    for link in links:
        rivals = _rivals(connections.get(link.number, ()))
        if model.loss_based:
            spilt += [
                (-each.largest_burst_bytes / each.room_bytes, _spill(link, each)) for each in rivals if _spills(each)
            ]
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
    if spilt:
        rest = f" (and on {len(spilt) - 1} more ways)" if len(spilt) > 1 else ""
        said.append(f"{min(spilt)[1]}{rest}: how {model.congestion_control} recovers is not modelled")
    return said


def _spills(connection: TcpConnection) -> bool:
    return connection.products < LONG_FLOW and connection.largest_burst_bytes > connection.room_bytes


def _spill(link: WanLink, connection: TcpConnection) -> str:
    kilobytes = f"{connection.largest_burst_bytes / 1e3:.0f} kB on {link.plan.name}"
    return f"bursts of {kilobytes} overflow a queue that takes {connection.room_bytes / 1e3:.0f} kB of them"


def _rivals(connections: Sequence[TcpConnection]) -> list[TcpConnection]:
    carried = [each.carried_bytes for each in connections]
    return [each for each, mine in zip(connections, carried, strict=True) if mine > _SHARE * sum(carried)]
