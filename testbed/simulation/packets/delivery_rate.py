"""The rate at which a path delivers, from one acknowledgement to the next, as Linux samples it (``tcp_rate_gen``).

A segment notes what had been delivered when it was sent, and when. When it has arrived, what was delivered since,
divided by the time since, is a sample. That time is the longer of the time in which it was sent and the time in which
it was acknowledged (Cheng, Cardwell, Hassas Yeganeh and Jacobson, draft-cheng-iccrg-delivery-rate-estimation). A sample
of segments before which nothing was left to send measures the program, not the path: it is ``application_limited``.
"""

from __future__ import annotations

from typing import NamedTuple

from testbed.simulation.packets.records import Connection, Segment


class RateSample(NamedTuple):
    """What an acknowledgement tells, in segments, and the rate.

    segments               that have arrived since the one before
    losses                 marked as lost by it
    prior_in_flight        before it came
    delivered, interval_s  segments and the time they took; negative: there is no rate
    prior_delivered        delivered when the last one of these was sent
    rtt_s                  of the last one; negative: it tells of none
    """

    segments: int
    losses: int
    prior_in_flight: int
    delivered: int
    interval_s: float
    prior_delivered: int
    application_limited: bool
    rtt_s: float


def begin_delivery(it: Connection, now_s: float) -> None:
    it.delivered_s = now_s  # when the last one did, by an acknowledgement
    it.first_sent_s = now_s


def limit_by_application(it: Connection, in_flight: int) -> None:
    """Nothing is left to send."""
    it.application_limited_until = max(it.delivered + in_flight, 1)


def note_delivered(it: Connection, segment: Segment, now_s: float) -> None:
    """Note the present state in a segment that is sent."""
    if it.following == it.first:
        it.first_sent_s = now_s
        it.delivered_s = now_s
    segment.delivered = it.delivered
    segment.delivered_s = it.delivered_s
    segment.first_sent_s = it.first_sent_s
    segment.application_limited = it.application_limited_until > 0


def take_delivered(it: Connection, segment: Segment) -> None:
    """Take a segment that is acknowledged for the first time."""
    it.delivered += 1
    is_later = segment.sent_s > it.sample_sent_s or (
        segment.sent_s == it.sample_sent_s and segment.number > it.sample_number
    )
    if not it.has_sample or is_later:
        it.has_sample = True
        it.sample_sent_s = segment.sent_s
        it.sample_number = segment.number
        it.sample_delivered = segment.delivered
        it.sample_delivered_s = segment.delivered_s
        it.sample_limited = segment.application_limited
        it.first_sent_s = segment.sent_s
        it.send_s = segment.sent_s - segment.first_sent_s


def rate_sample(
    it: Connection, now_s: float, segments: int, losses: int, prior_in_flight: int, rtt_s: float
) -> RateSample:
    """Return that of an acknowledgement, all of whose segments have been taken."""
    if it.delivered > it.application_limited_until:
        it.application_limited_until = 0
    if segments:
        it.delivered_s = now_s
    if not it.has_sample:
        return RateSample(segments, losses, prior_in_flight, -1, -1.0, 0, False, rtt_s)
    it.has_sample = False
    interval_s = max(it.send_s, now_s - it.sample_delivered_s)
    if interval_s < it.least_s - 1e-9:
        interval_s = -1.0
    delivered = it.delivered - it.sample_delivered
    return RateSample(
        segments, losses, prior_in_flight, delivered, interval_s, it.sample_delivered, it.sample_limited, rtt_s
    )


# ---- the maximum of the last ``length`` rounds, by the three best values of parts of it (Linux: ``minmax``) ----------


def add_rate(it: Connection, round_: int, rate: float, length: int) -> None:
    if rate >= it.best_rate or round_ - it.third_round > length:
        it.best_round = round_
        it.best_rate = rate
        _second(it, round_, rate)
        return
    if rate >= it.second_rate:
        _second(it, round_, rate)
    elif rate >= it.third_rate:
        _third(it, round_, rate)
    age = round_ - it.best_round
    if age > length:
        _drop_best(it, round_, rate)
        if round_ - it.best_round > length:
            _drop_best(it, round_, rate)
    elif it.second_round == it.best_round and age > length // 4:
        _second(it, round_, rate)
    elif it.third_round == it.second_round and age > length // 2:
        _third(it, round_, rate)


def _second(it: Connection, round_: int, rate: float) -> None:
    it.second_round = round_
    it.second_rate = rate
    _third(it, round_, rate)


def _third(it: Connection, round_: int, rate: float) -> None:
    it.third_round = round_
    it.third_rate = rate


def _drop_best(it: Connection, round_: int, rate: float) -> None:
    it.best_round = it.second_round
    it.best_rate = it.second_rate
    it.second_round = it.third_round
    it.second_rate = it.third_rate
    _third(it, round_, rate)
