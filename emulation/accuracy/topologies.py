"""``python -m emulation.accuracy topologies``: does every built-in topology come up, answer and do what it says?

Each is built from a scenario as a run would be, its rates scaled down together until the fastest link fits this
machine. Every host pings every other; then every link and path is measured against the Plan.
"""

from __future__ import annotations

import argparse
import time

from emulation.measure import Measurement, describe, measure
from emulation.network import Emulation, no_record
from emulation.ping import Pair, ping
from emulation.probe import probe
from testbed.plan.build import build_plan
from testbed.plan.model import Plan
from testbed.scenario.load import loads
from topologies.library import BUILT_IN

FASTEST_BPS = 100e6  # of one link, after scaling: what is flooded must not measure the processor
RATE_BUDGET_S = 600.0  # all links, however long it takes
ECHOES = 5
WORKERS = 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", nargs="*", metavar="NAME", help="built-in topologies; default: all")


def run(options: argparse.Namespace) -> int:
    """Print one line a topology, and each value outside its tolerance; exit status 1 if there is any."""
    return max([_check(name) for name in options.names or BUILT_IN], default=0)


def scaled_plan(name: str) -> Plan:
    """The Plan of a built-in topology with one worker a data centre, its fastest link at 100 Mbit/s at most."""
    full = _plan(name, 1.0)
    fastest_bps = max(link.rate_bps for link in full.network.links)
    return full if fastest_bps <= FASTEST_BPS else _plan(name, fastest_bps / FASTEST_BPS)


def _plan(name: str, scale: float) -> Plan:
    use = f"{{use: {name}, scale: {scale!r}, workers: {WORKERS}}}"
    text = f"version: 1\nname: {name}\nseed: 1\ntopology: {use}\ntraining: {{model: mlp, data: digits, rounds: 1}}\n"
    return build_plan(loads(text, f"{name}.yaml"), "emulate")


def _check(name: str) -> int:
    plan, begin_s = scaled_plan(name), time.monotonic()
    with Emulation(plan, probe(), no_record) as net:
        up_s = time.monotonic() - begin_s
        pairs = ping_all(net)
        results = measure(net, no_record, RATE_BUDGET_S)
    asked, silent = len(pairs) * ECHOES, sum(ECHOES - len(pair.rtts_s) for pair in pairs)
    rtts, rates = ([each for each in results if each.what == what] for what in ("rtt", "rate"))
    print(  # noqa: T201 - a command
        f"{name:10} {len(net.layout.hosts):3} hosts, {len(plan.network.links):3} directed links, up in {up_s:.2f} s; "
        f"pingall: {silent} of {asked} unanswered; worst of {len(rtts)} round trips {_worst_rtt_ms(rtts):+.2f} ms; "
        f"worst of {len(rates)} rates {_worst_rate(rates):+.2%}",
        flush=True,
    )
    outside = [describe(each) for each in results if not each.ok]
    for sentence in outside:
        print(f"  OUTSIDE {sentence}", flush=True)  # noqa: T201
    missing = {link.name for link in plan.network.links} - {each.link for each in rates}
    assert not missing, f"not measured: {missing}"
    return int(bool(outside or (silent and not any(link.loss for link in plan.network.links))))


def ping_all(net: Emulation) -> list[Pair]:
    """Every host to every other, ``ECHOES`` times."""
    ports = net.layout.hosts
    pairs = [Pair(f"{a}>{b}", net.namespace_path(a), ports[b].ip) for a in ports for b in ports if a != b]
    slowest_s = max(link.delay_s for link in net.plan.network.links)
    ping(pairs, ECHOES, 0.2, 1.0 + 8 * slowest_s)
    return pairs


def _worst_rtt_ms(rtts: list[Measurement]) -> float:
    return max((((each.measured or 0.0) - each.planned) * 1e3 for each in rtts), key=abs)


def _worst_rate(rates: list[Measurement]) -> float:
    return max(((each.measured or 0.0) / each.planned - 1 for each in rates), key=abs)
