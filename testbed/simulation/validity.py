"""A run's doubts about its own prediction: where the flows' window model may be off by more than 5 %.

Of 400 small networks drawn at random (2 to 200 Mbit/s, 1 to 80 ms one way, up to 16 workers, models of 1 to 480 KB,
short and long queues, losses; six rounds), each simulated by flows and packet by packet, 153 differed by more than 5 %,
and the median by 2.9 %. At least one of the following held in all of the 153, and in 143 of the others; where none
held, the median difference was 0.5 %, and the largest 4.0 %:

* a path loses packets at random, and a message may have to wait for a lost packet;
* bursts are larger than the queue of their path, and repairing their losses would take 5 % of the time between two
  pauses, or the queue holds only a few packets;
* a message is so small that the token bucket of an emulated link's shaper lets much of it pass at once;
* a message does not fill its path, and windows start again after idle time, or BBR paces it;
* three or more connections share a link and send less than 16 bandwidth-delay products at a time, or two connections
  have different round-trip times and a loss-based algorithm;
* a run lasts less than twenty round trips, so that the start of its connections matters.

"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from testbed.plan.shaping import burst_bytes
from testbed.simulation.flows.connection import FlowConnection
from testbed.simulation.paths import WanLink
from testbed.simulation.tcp_model import TcpModel

OFF = 0.05  # share of the time of a round
AT_ONCE_SHARE = OFF / 4  # up, down, and as much on the way between two servers
CROWDED_SHARE = 0.03
LOST_SHARE = 0.002
PACED_SHARE = 0.03
TINY_QUEUE_BYTES = 10_000  # a few packets: each burst loses packets, and may wait for a timeout
LONG_FLOW = 16  # bandwidth-delay products
CROWD = 3  # connections
UNEVEN_RTTS = 1.5  # ratio of round-trip times
_COMPETITOR_SHARE = 0.01  # a connection with a smaller share of a link's bytes does not compete
_SEGMENT_BYTES = 1448


@dataclass(frozen=True, slots=True)
class Burst:
    """The largest burst of a connection.

    period_s  mean time from one burst to the next
    pause_s   mean time from one pause to the next, however short; losses in a queue may delay each pause
    """

    size_bytes: float
    period_s: float
    pause_s: float
    capacity: float  # of the path, bytes/s
    rtt_s: float
    queue_bytes: float
    loss: float

    @classmethod
    def of(cls, connection: FlowConnection, trained_s: float) -> Burst:
        pipe = connection.pipe
        it = connection.record
        return cls(
            size_bytes=it.largest_burst_bytes,
            period_s=trained_s / max(it.bursts, 1),
            pause_s=trained_s / max(it.pauses, 1),
            capacity=pipe.capacity,
            rtt_s=pipe.rtt_s,
            queue_bytes=pipe.queue_bytes,
            loss=connection.worst_loss,
        )

    @property
    def bdps(self) -> float:
        """The burst's size in bandwidth-delay products."""
        return self.size_bytes / max(self.capacity * self.rtt_s, 1.0)

    def share(self, time_s: float) -> float:
        """Return a time as a share of the period."""
        return time_s / self.period_s if self.period_s > 0 else 0.0

    @property
    def lost_share(self) -> float:
        """Expected wait for lost packets (a round trip and a timeout if any is lost), as a share of the period."""
        any_lost = 1 - (1 - self.loss) ** (self.size_bytes / _SEGMENT_BYTES)
        return self.share(any_lost * (self.rtt_s + 0.2))

    @property
    def repair_share(self) -> float:
        """Time of repairing losses behind a full queue, as a share of the time between two pauses."""
        return (self.rtt_s + self.queue_bytes / self.capacity) / self.pause_s if self.pause_s > 0 else 0.0


def doubts(
    links: Iterable[WanLink],
    connections: Mapping[int, Collection[FlowConnection]],
    model: TcpModel,
    trained_s: float,
    cure: str,
) -> list[str]:
    """Return a sentence for each kind of doubt, about the link with the strongest reason; none if there is no doubt.

    connections  the connections over each link, by the link's number
    trained_s    how long training has taken
    cure         what the user can do instead, which ends each sentence
    """
    if not model.slow_start:  # an ideal network, by the user's choice
        return []
    found: dict[str, list[tuple[float, str]]] = {}  # by kind of doubt: strength and place
    for link in links:
        bursts = [Burst.of(each, trained_s) for each in _senders(connections.get(link.number, ()))]
        if not bursts:
            continue
        doubted = (*_of_bursts(link, bursts, model, trained_s), *_of_sharing(link, bursts, model))
        for what, amount, where in doubted:
            found.setdefault(what, []).append((amount, where))
    return [f"{max(places)[1]}{_others(places)}: {what}; {cure}" for what, places in found.items()]


def _of_bursts(
    link: WanLink, bursts: Sequence[Burst], model: TcpModel, trained_s: float
) -> Iterable[tuple[str, float, str]]:
    """Yield the doubts about single connections on a link: kind, strength, and the words for the place."""
    name = link.plan.name
    loss = max(each.loss for each in bursts)
    if max(each.lost_share for each in bursts) > LOST_SHARE:
        yield "transfers may take much longer or shorter", loss, f"{100 * loss:.3g} % of the packets are lost on {name}"
    over = sum(each.size_bytes / max(each.queue_bytes, 1.0) for each in bursts)
    tiny = min(each.queue_bytes for each in bursts) < TINY_QUEUE_BYTES
    if over > 1 and (tiny or max(each.repair_share for each in bursts) > OFF):
        yield "their losses and repair may take longer", over, f"bursts overflow the queue of {name}"
    bucket_bytes = burst_bytes(link.plan.rate_bps)
    at_once = max(each.share(min(each.size_bytes, bucket_bytes) / each.capacity) for each in bursts)
    if at_once > AT_ONCE_SHARE:
        yield "emulated rounds may be shorter", at_once, f"the shaper of {name} passes much of a message at once"
    short = [each for each in bursts if each.bdps < 1]
    if model.loss_based:
        windowed = model.slow_start_after_idle and any(
            each.size_bytes > model.initial_window_bytes and each.share(each.rtt_s) > OFF for each in short
        )
        what = "their windows may grow differently"
        where = f"messages over {name} restart from small windows"
    else:
        paced = [each.share(each.rtt_s * min(each.size_bytes / model.initial_window_bytes, 1.0)) for each in short]
        windowed = max(paced, default=0.0) > PACED_SHARE
        what = "BBR may send them slower or faster"
        where = f"messages over {name} do not fill the path"
    if windowed:
        yield what, max(each.rtt_s for each in short), where
    rtt_s = max(each.rtt_s for each in bursts)
    if rtt_s > OFF * trained_s:
        yield "its start weighs heavily", rtt_s, f"the run lasts only {trained_s / rtt_s:.0f} round trips of {name}"


def _of_sharing(link: WanLink, bursts: Sequence[Burst], model: TcpModel) -> Iterable[tuple[str, float, str]]:
    """Yield the doubts about how connections share a link, in the form of ``_of_bursts``."""
    name = link.plan.name
    count = len(bursts)
    capacity = min(each.capacity for each in bursts)
    period_s = min(each.period_s for each in bursts)
    crowded = sum(each.size_bytes for each in bursts) / capacity > CROWDED_SHARE * period_s
    rtts = [each.rtt_s for each in bursts]
    if count >= CROWD and crowded and any(each.bdps < LONG_FLOW for each in bursts):
        yield "they may share it differently", count, f"{count} connections send short messages over {name}"
    elif count > 1 and crowded and model.loss_based and max(rtts) > UNEVEN_RTTS * min(rtts):
        where = f"round-trip times of {count} connections of {name} differ"
        yield f"{model.congestion_control} may share unevenly", max(rtts) / max(min(rtts), 1e-9), where


def _others(found: Sequence[object]) -> str:
    if len(found) == 1:
        return ""
    return f" (and {len(found) - 1} other link direction{'s' if len(found) > 2 else ''})"


def _senders(connections: Collection[FlowConnection]) -> list[FlowConnection]:
    carried = [each.carried_bytes for each in connections]
    threshold = _COMPETITOR_SHARE * sum(carried)
    return [each for each, bytes_ in zip(connections, carried, strict=True) if bytes_ > threshold]
