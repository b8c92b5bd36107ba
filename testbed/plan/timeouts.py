"""Derives deadlines from rates, delays and sizes, so that they suit a slow WAN, and applies the user's changes.

rtt              2 x the longest path's delay + the time that its full queues take to drain
heartbeat        max(1 s, 4 rtt)
dead_after       max(10 s, 10 heartbeats)        transfer   20 x model bytes / slowest rate + 10 rtt
tcp_user_timeout max(60 s, dead_after, 20 x one packet / slowest rate): a slow link is not a dead one
round            the time of the steps between two pushes (HFA, DiLoCo), plus how late a fast worker may be (ESync)
apart            the time of the rounds between two exchanges of data centres (HFA), the longest wait for the slowest
step_deadline    max(tcp_user_timeout, 4 transfers + 20 steps or 2 aparts): a model up and down both tiers
run_deadline     at least 10 step deadlines, or 5 times the rounds' expected time: a round and 4 transfers each

A link's own outages (``down``, and rates of 0 in its trace) are known beforehand, so deadlines allow for them:
``outage`` is twice the longest one, as TCP doubles the time between retransmissions. ``dead_after`` is then at least
outage + 3 heartbeats, and ``step_deadline`` is 4 outages longer. Rates count only the time when a link is up.

A step of a pipeline also includes the time that activations and their gradients travel, one message after another: at
any moment, either a stage computes or a message is on its way.

If many nodes push across one link, their models take turns there. ``step_deadline`` is at least twice, and
``run_deadline`` five times, as long as this takes, up and down; but this rule raises no deadline above its ceiling.

Derived deadlines above ``CEILINGS_S``, outages not counted, are refused. A deadline of hours usually results from a
mistake (a queue of 100 MB before a slow link, a device with a thousandth of its speed), so the message names the value.
``timeouts: {dead_after: 20 min}`` raises the ceiling of one deadline, and of those that must not be shorter than it.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise, takewhile

from testbed.errors import ScenarioError
from testbed.numbers import lasting, size
from testbed.plan.bounds import model_bytes, most_steps
from testbed.plan.effects import slowed, with_faults
from testbed.plan.model import FaultPlan, LinkPlan, NetworkPlan, NodePlan, TrainingPlan
from testbed.plan.network import MIN_QUEUE_BYTES, default_queue_bytes, longest_delay_s
from testbed.plan.pace import longest_step_s
from testbed.plan.silence import longest_outage, longest_wait_s
from testbed.plan.stages import Sent
from testbed.scenario import Scenario
from testbed.scenario.reading.axes import Technique
from testbed.settings.run import Timeouts
from testbed.settings.series import Series
from testbed.units import format_duration, format_rate, format_size
from topologies.traces.model import MIN_RATE_BPS

PACKET_BITS = 1500 * 8
MARGIN = 20
_EVEN = 3  # from this number of stages on, twice an even part of a model is less than the model
RUN_MARGIN = 5
RENDEZVOUS_S = 60.0
# additional times before nodes that share a GPU, or the cores, meet
_GPU_START_S = 60.0
_COMPILATION_S = 300.0
PATIENCE_S = 30.0
_ORDER = ("heartbeat", "dead_after", "tcp_user_timeout", "step_deadline", "run_deadline")
_LEAST_HEARTBEATS = 3  # a node is not lost because one or two are late
_MAY_BE_EQUAL = ("dead_after", "tcp_user_timeout")  # these may equal the next one in ``_ORDER``
RUN_STEPS = 10  # the run deadline is at least this many step deadlines
# Ordered so that none may be shorter than the one before it. Heartbeats are bounded by ``dead_after``.
CEILINGS_S = {
    "dead_after": 300.0,
    "rendezvous": 600.0,
    "tcp_user_timeout": 600.0,
    "step_deadline": 72 * 3600.0,
    "run_deadline": 720 * 3600.0,
}


@dataclass(frozen=True, slots=True)
class Reason:
    """A part of a deadline, in seconds, and its cause in the scenario: the key, a text, and perhaps a cure."""

    part_s: float
    key: tuple[str, ...]
    text: str
    cure: str = ""


Reasons = dict[str, tuple[Reason, ...]]  # by deadline


@dataclass(frozen=True, slots=True)
class Pace:
    """The quantities from which the deadlines are derived.

    worst  the link that takes the largest part of the longest path; ``None`` if there are no links
    """

    rtt_s: float
    slowest_bps: float
    transfer_s: float  # of one model over the slowest link, without a margin
    step_s: float  # of a training step, ``travel_s`` included
    travel_s: float  # for which activations and their gradients travel in a pipeline's step
    round_s: float  # for which a worker computes between two pushes
    apart_s: float  # for which a data centre computes between two exchanges with the others
    size_bytes: int  # of one model, at most
    worst: LinkPlan | None
    start_s: float  # until nodes can meet: for GPU contexts and compiled models
    taking_turns_s: float  # for all models that cross one link, one way, without a margin
    outage_s: float  # until a message sent during the longest outage has arrived


def derive(
    scenario: Scenario,
    network: NetworkPlan,
    nodes: tuple[NodePlan, ...],
    training: TrainingPlan,
    faults: tuple[FaultPlan, ...] = (),
    sent: tuple[Sent, ...] = (),
) -> Timeouts:
    """Return the deadlines of a run. Raise ``ScenarioError`` if they are too long or out of order.

    ``sent``: the messages between the stages of a pipeline in a step.

    The deadlines of steps and of the run allow for ``faults`` that slow links and devices down, up to the ceilings. The
    other deadlines do not depend on faults.
    """
    size_bytes = _sent_bytes(model_bytes(training.model, training.data), nodes)
    _refuse_dead_links(scenario, network)
    pace = _pace(scenario, network, nodes, size_bytes, longest_travel_s(network, sent))
    changes = {name: value for name, value in vars(scenario.timeouts).items() if value is not None}
    rounds = scenario.training.rounds
    derived = _derive(pace, rounds, changes)
    if faults:
        hit_network = with_faults(network, faults)
        hit_travel_s = longest_travel_s(hit_network, sent)
        slowest = _pace(scenario, hit_network, slowed(nodes, faults), size_bytes, hit_travel_s)
        slowest = replace(slowest, outage_s=pace.outage_s)
        hit = _derive(slowest, rounds, changes)
        for key, name in (("step_deadline_s", "step_deadline"), ("run_deadline_s", "run_deadline")):
            longer_s = max(getattr(derived, key), min(getattr(hit, key), CEILINGS_S[name]))
            derived = replace(derived, **{key: longer_s})
    timeouts = Timeouts(**{**asdict(derived), **changes})
    if scenario.is_program:  # a program has its own deadline, ``workload.timeout``
        return timeouts
    without_outages = derived if not pace.outage_s else _derive(replace(pace, outage_s=0.0), rounds, changes)
    judged = Timeouts(**{**asdict(without_outages), **changes})
    problems = [*too_long(scenario, judged, _reasons(scenario, pace, rounds)), *_out_of_order(scenario, timeouts)]
    if problems:
        raise ScenarioError(problems)
    return timeouts


def _sent_bytes(size_bytes: int, nodes: tuple[NodePlan, ...]) -> int:
    """Return the bytes of a model that a worker exchanges: the whole model, or twice an even part for a stage.

    If the user's cuts make a stage even larger, the margins of the deadlines cover it.
    """
    stages = len({node.stage for node in nodes if node.stage is not None})
    return size_bytes if stages < _EVEN else -(-2 * size_bytes // stages)


def slowest_bps(link: LinkPlan) -> float:
    """Return the lowest mean rate over ``PATIENCE_S`` of up-time and, if the trace repeats with outages, over a period.

    So a second at a low rate does not make a link slow, but being down for most of each period does.
    """
    series = link.rate_trace
    if series is None:
        return link.rate_bps
    lowest = slowest_mean(_without_outages(series), PATIENCE_S)
    if series.repeats and 0 in series.values:
        lowest = min(lowest, slowest_mean(series, max(PATIENCE_S, series.period_s)))
    return max(MIN_RATE_BPS, lowest)


def _without_outages(series: Series) -> Series:
    """Return the series with the times cut out at which its value is 0. A series that is always 0 is unchanged."""
    if 0 not in series.values or not any(series.values):
        return series
    end_s = series.repeats_from_s + series.period_s if series.repeats else math.inf
    times = list[float]()
    values = list[float]()
    gone_s = 0.0
    gone_before_s = 0.0
    for (begin_s, after_s), value in zip(pairwise([*series.times_s, end_s]), series.values, strict=True):
        if value > 0:
            times.append(begin_s - gone_s)
            values.append(value)
        elif math.isfinite(after_s):
            gone_s += after_s - begin_s
            gone_before_s += max(0.0, min(after_s, series.repeats_from_s) - begin_s)
    period_s = series.period_s - (gone_s - gone_before_s)
    from_s = series.repeats_from_s - gone_before_s
    return replace(series, times_s=tuple(times), values=tuple(values), period_s=period_s, repeats_from_s=from_s)


def _refuse_dead_links(scenario: Scenario, network: NetworkPlan) -> None:
    """Raise ``ScenarioError`` for links that are never up."""
    dead = [link for link in network.links if longest_outage(link) == (0.0, math.inf)]
    if dead:
        whose = f" ({dead[0].rate_trace.source})" if dead[0].rate_trace and dead[0].rate_trace.source else ""
        raise ScenarioError(
            f"{scenario.place_of('topology', 'links')}: topology.links: {dead[0].name} is down all the time{whose}; "
            "remove the link, or give it a rate above 1 kbit/s at some time"
        )


def slowest_mean(series: Series, window_s: float) -> float:
    """Return the least mean of a series over any interval of length ``window_s``."""
    laps = math.ceil(window_s / series.period_s) + 1 if series.repeats else 0
    end_s = series.repeats_from_s + laps * series.period_s if laps else series.times_s[-1] + window_s
    first = takewhile(lambda segment: segment[0] < end_s, series.segments())
    times, values = map(list, zip(*((begin_s, value) for begin_s, _, value in first), strict=True))
    sums = [0.0]  # integral until each time
    for value, time, after in zip(values, times, [*times[1:], end_s], strict=True):
        sums.append(sums[-1] + value * (after - time))
    times.append(end_s)

    def integral(at_s: float) -> float:
        index = bisect_right(times, at_s) - 1
        return sums[-1] if index >= len(values) else sums[index] + values[index] * (at_s - times[index])

    # the mean is least where a window begins or ends at a change
    starts = {max(0.0, start) for time in times for start in (time, time - window_s) if start + window_s <= end_s}
    return min((integral(start + window_s) - integral(start)) / window_s for start in starts)


def longest_travel_s(network: NetworkPlan, sent: Sequence[Sent]) -> float:
    """Return how long activations and their gradients travel in a step, if they travel one after another.

    The messages of all replicas are assumed to take turns on links; the delays of different replicas overlap.
    """
    links = {link.name: link for link in network.links}
    sites = {site.name: site for site in network.sites}
    occupied_s = 0.0
    delays_s = defaultdict[int, float](float)  # by replica
    for each in sent:
        route = [links[name] for name in network.between(each.source, each.target)] if each.crosses_wan else []
        ends = (sites[each.source], sites[each.target])
        rates_bps = [*(end.lan_rate_bps for end in ends), *map(slowest_bps, route)]
        occupied_s += sum(8 * each.size_bytes / rate_bps for rate_bps in rates_bps)
        delay_s = sum(end.lan_delay_s for end in ends) + sum(longest_delay_s(link) + link.jitter_s for link in route)
        delays_s[each.replica] += each.messages * delay_s
    return occupied_s + max(delays_s.values(), default=0.0)


def _pace(
    scenario: Scenario, network: NetworkPlan, nodes: tuple[NodePlan, ...], size_bytes: int, travel_s: float
) -> Pace:
    links = {link.name: link for link in network.links}
    lan_rate = min(site.lan_rate_bps for site in network.sites)
    sharers = max((len(node.children) for node in nodes), default=1)  # share one LAN port at the busiest server
    slowest = min([lan_rate, *(slowest_bps(link) for link in network.links)])
    longest = max(network.routes.values(), key=lambda route: sum(_seconds(links[name]) for name in route), default=())
    worst = max((links[name] for name in longest), key=_seconds, default=None)
    rtt = 2 * (sum(_seconds(links[name]) for name in longest) + 2 * max(site.lan_delay_s for site in network.sites))
    transfer = size_bytes * 8 * max(1 / slowest, sharers / lan_rate)
    step = max((longest_step_s(node.device) for node in nodes if node.role == "worker"), default=0.0) + travel_s
    start = _GPU_START_S * any(node.device.kind != "cpu" for node in nodes)
    start += _COMPILATION_S * scenario.training.compile
    home = next((node for node in nodes if node.role == "scheduler"), nodes[0]).data_center
    return Pace(
        rtt,
        slowest,
        transfer,
        step,
        travel_s,
        *_work(scenario, step),
        size_bytes,
        worst,
        start,
        _taking_turns_s(network, nodes, size_bytes),
        2 * longest_wait_s(home, network),
    )


def _taking_turns_s(network: NetworkPlan, nodes: tuple[NodePlan, ...], size_bytes: int) -> float:
    """Return the longest time that a link needs to carry one model for each node that pushes across it."""
    sites = {node.name: node.data_center for node in nodes}
    links = {link.name: link for link in network.links}
    pushers: Counter[tuple[str, str]] = Counter()
    for node in nodes:
        for above in {sites[parent] for parent in node.parents} - {node.data_center}:
            pushers[node.data_center, above] += 1
    models: Counter[str] = Counter()
    for (below, above), count in pushers.items():
        for name in (*network.between(below, above), *network.between(above, below)):
            models[name] += count
    return max(
        (size_bytes * 8 * count / slowest_bps(links[name]) for name, count in models.items() if count > 1), default=0.0
    )


def _work(scenario: Scenario, step_s: float) -> tuple[float, float]:
    """Return ``round_s`` and ``apart_s``, by the workers' synchronisation algorithm."""
    sync = _facing(scenario)
    algorithm = sync.declared
    options = sync.options
    round_s = steps_of(scenario) * step_s + algorithm.slack_s(options)
    return round_s, round_s * algorithm.lan_rounds(options)


def steps_of(scenario: Scenario) -> int:
    """Return the most steps that a worker makes in a round."""
    sync = _facing(scenario)
    return most_steps(sync.declared, sync.options, scenario.training.rounds)


def _facing(scenario: Scenario) -> Technique:
    """Return the synchronisation algorithm of the tier to which workers push."""
    return scenario.sync.tier2 if scenario.paradigm.declared.tiers == 1 else scenario.sync.tier1


def _seconds(link: LinkPlan) -> float:
    return longest_delay_s(link) + link.jitter_s + link.queue_bytes * 8 / slowest_bps(link) / 2


def _derive(pace: Pace, rounds: int, changes: Mapping[str, float]) -> Timeouts:
    """Return the derived deadlines. ``changes``: the user's deadlines, below which later ones do not fall."""
    heartbeat = max(1.0, 4 * pace.rtt_s)
    silent = pace.outage_s + _LEAST_HEARTBEATS * heartbeat if pace.outage_s else 0.0
    dead_after = changes.get("dead_after_s", max(10.0, 10 * heartbeat, silent))
    user_timeout = max(
        60.0, dead_after, MARGIN * PACKET_BITS / pace.slowest_bps, changes.get("tcp_user_timeout_s", 0.0)
    )
    transfer = MARGIN * pace.transfer_s + 10 * pace.rtt_s
    step_deadline = max(user_timeout, 4 * transfer + max(MARGIN * pace.step_s, 2 * pace.apart_s))
    step_deadline = max(step_deadline, min(4 * pace.taking_turns_s, CEILINGS_S["step_deadline"]))
    step_deadline = max(step_deadline + 4 * pace.outage_s, changes.get("step_deadline_s", 0.0))
    expected = pace.round_s + 4 * (pace.transfer_s + pace.rtt_s)
    in_turns = min(
        RUN_MARGIN * rounds * (pace.round_s + 2 * pace.taking_turns_s + 4 * pace.rtt_s), CEILINGS_S["run_deadline"]
    )
    return Timeouts(
        heartbeat_s=heartbeat,
        dead_after_s=dead_after,
        tcp_user_timeout_s=user_timeout,
        step_deadline_s=step_deadline,
        run_deadline_s=max(RUN_STEPS * step_deadline, RUN_MARGIN * rounds * expected, in_turns),
        rendezvous_s=RENDEZVOUS_S + pace.start_s + 10 * pace.rtt_s,
    )


def _reasons(scenario: Scenario, pace: Pace, rounds: int) -> Reasons:
    links = ("topology", "links")
    device = ("device", "step_time")
    training = ("training",)
    rtt_s = pace.rtt_s
    slow = f"the slowest link has {format_rate(pace.slowest_bps)}"

    def path(part_s: float) -> Reason:
        if pace.worst is None:
            return Reason(part_s, ("topology", "lan"), f"a round trip takes {lasting(rtt_s)}")
        return _queue_reason(part_s, pace.worst, slowest_bps(pace.worst))

    model = f"a model of {size(pace.size_bytes)} takes {lasting(pace.transfer_s)} to transfer, as {slow}"
    work_s = pace.step_s - pace.travel_s
    step = f"a training step takes up to {lasting(work_s)} (its time, speed, variation and slowdown)"
    if scenario.is_traced:  # such a scenario has neither a model nor a step time
        device = ("workload", "trace")
        model = f"a rank's {size(pace.size_bytes)} take {lasting(pace.transfer_s)} to transfer, as {slow}"
        step = f"the work of all ranks, one after another, takes up to {lasting(work_s)}"
    travel = f"activations and their gradients of a step take {lasting(pace.travel_s)} to travel, as {slow}"
    work = f"a worker computes for {lasting(pace.apart_s)} between two exchanges"
    total = f"{rounds} rounds of {lasting(pace.round_s + 4 * (pace.transfer_s + rtt_s))}, and a margin of {RUN_MARGIN}"
    packet_s = MARGIN * PACKET_BITS / pace.slowest_bps
    parts = (
        path(40 * max(1.0, rtt_s)),
        Reason(packet_s, links, slow),
        Reason(4 * MARGIN * pace.transfer_s, links, model),
        Reason(MARGIN * work_s, device, step),
        Reason(MARGIN * pace.travel_s, links, travel),
        Reason(2 * pace.apart_s, device, work),
    )
    return {
        "dead_after": (path(0.0),),
        "rendezvous": (path(0.0),),
        "tcp_user_timeout": parts[:2],
        "step_deadline": parts,
        "run_deadline": (Reason(0.0, training, total),),
    }


def _queue_reason(part_s: float, link: LinkPlan, slowest_bps: float) -> Reason:
    """Return the reason for a part that grows with the queue or the delay of the longest path's worst link."""
    drain_s = link.queue_bytes * 8 / slowest_bps
    by_delay = link.queue_bytes == default_queue_bytes(slowest_bps, link.delay_s) > MIN_QUEUE_BYTES
    delay_s = longest_delay_s(link)
    if by_delay or drain_s / 2 < delay_s + link.jitter_s:
        return Reason(part_s, ("topology", "links"), f"the delay of {link.name} is {format_duration(delay_s)}")
    held = format_size(link.queue_bytes)
    rate = format_rate(slowest_bps)
    text = f"{link.name} is too slow, with {rate}, for a queue of {held}, which takes {lasting(drain_s)} to drain"
    return Reason(part_s, ("topology", "links"), text, "write a higher rate, a smaller 'queue'")


def too_long(scenario: Scenario, timeouts: Timeouts, reasons: Reasons) -> Iterator[str]:
    """Yield a problem for the first derived deadline that is too long. Others often have the same cause."""
    longest_s = 0.0
    for name, ceiling_s in CEILINGS_S.items():
        value_s, longest_s = getattr(timeouts, f"{name}_s"), max(longest_s, ceiling_s)
        if getattr(scenario.timeouts, f"{name}_s") is None and value_s > longest_s:
            reason = max(reasons[name], key=lambda each: each.part_s)
            key = _written_key(scenario, reason.key)
            cure = f"{reason.cure} or" if reason.cure else "write"
            yield (
                f"{scenario.place_of(*key)}: {'.'.join(key)}: {reason.text}; so timeouts.{name} would be "
                f"{lasting(value_s)}, above {format_duration(ceiling_s)}; {cure} 'timeouts: {{{name}: …}}'"
            )
            return
        longest_s = max(longest_s, value_s * (RUN_STEPS if name == "step_deadline" else 1))


def _written_key(scenario: Scenario, key: tuple[str, ...]) -> tuple[str, ...]:
    """Return the key in the user's file. Links may come from ``topology.measurements`` or ``topology.use``."""
    if key != ("topology", "links"):
        return key
    written = (("topology", name) for name in ("links", "measurements", "use"))
    return next((each for each in written if scenario.place_of(*each) != scenario.place_of("topology")), key)


def _out_of_order(scenario: Scenario, timeouts: Timeouts) -> Iterator[str]:
    """Yield a problem wherever 3 heartbeats < dead_after <= tcp_user_timeout <= step_deadline < run_deadline fails."""
    for low, high in pairwise(_ORDER):
        below = getattr(timeouts, f"{low}_s")
        above = getattr(timeouts, f"{high}_s")
        what = low
        if low == "heartbeat":
            below, what = _LEAST_HEARTBEATS * below, f"{_LEAST_HEARTBEATS} times heartbeat"
        if below > above or (below == above and low not in _MAY_BE_EQUAL):
            changed = low if getattr(scenario.timeouts, f"{low}_s") is not None else high
            where = scenario.place_of("timeouts", changed)
            yield f"{where}: timeouts.{changed}: {what} ({below:g} s) must be below {high} ({above:g} s)"
