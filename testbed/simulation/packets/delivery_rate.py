"""The rate at which a path delivers segments, sampled with each acknowledgement as in Linux (``tcp_rate_gen``).

When a segment is sent, it records how many segments had been delivered so far, and when the last one was. When it is
acknowledged, the segments delivered since then, divided by an interval, give a sample. The interval is the longer of
the time in which these segments were sent and the time in which they were acknowledged (Cheng, Cardwell, Hassas Yeganeh
and Jacobson, draft-cheng-iccrg-delivery-rate-estimation). If the sender had run out of data, the sample measures the
program rather than the path: it is ``application_limited``.
"""

from __future__ import annotations

from typing import NamedTuple

from testbed.simulation.packets.records import Connection, Segment


class RateSample(NamedTuple):
    """What an acknowledgement says about the path, in segments.

    segments               segments that this acknowledgement is the first to acknowledge
    losses                 segments marked as lost because of it
    prior_in_flight        segments in flight before it came
    delivered, interval_s  their quotient is the rate; negative: there is no rate
    prior_delivered        how many had been delivered when the latest-sent of ``segments`` was sent
    application_limited    whether the program had left nothing to send then
    rtt_s                  round-trip time of the latest-sent segment that was sent only once; negative: none
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
    it.delivered_s = now_s
    it.first_sent_s = now_s


def limit_by_application(it: Connection, in_flight: int) -> None:
    """Mark the segments in flight as application-limited, as nothing is left to send."""
    it.application_limited_until = max(it.delivered + in_flight, 1)


def note_delivered(it: Connection, segment: Segment, now_s: float) -> None:
    """Record the present state in a segment that is being sent."""
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
    """Return the sample of an acknowledgement, after ``take_delivered`` has taken all its segments."""
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


# ---- the largest rate of the last ``length`` rounds, kept as the three best ones of parts of it (Linux: ``minmax``) --


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
