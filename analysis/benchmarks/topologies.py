"""Every built-in topology: brought up, pinged, and measured against its plan.

Each is built from a scenario as a run would build it, with all rates scaled down together until the fastest link has
100 Mbit/s. Every host pings every other; then every link and path is measured.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from analysis.benchmarks.harness import Row
from emulation.measurement import describe
from emulation.network import Emulation, no_record
from emulation.ping import Pair, ping
from emulation.probe import probe
from testbed.plan.build import build_plan
from testbed.plan.model import Plan
from testbed.scenario.load import loads
from topologies.library import BUILT_IN

FASTEST_BPS = 100e6  # of one link after scaling: a faster flood would measure the processor
RATE_BUDGET_S = 600.0  # enough for all links
ECHOES = 5
WORKERS = 1


def scaled_plan(name: str) -> Plan:
    """The Plan of a built-in topology with one worker per data centre, its fastest link at 100 Mbit/s at most."""
    full = _plan(name, 1.0)
    fastest_bps = max(link.rate_bps for link in full.network.links)
    return full if fastest_bps <= FASTEST_BPS else _plan(name, fastest_bps / FASTEST_BPS)


def _plan(name: str, scale: float) -> Plan:
    use = f"{{use: {name}, scale: {scale!r}, workers: {WORKERS}}}"
    text = f"version: 1\nname: {name}\nseed: 1\ntopology: {use}\ntraining: {{model: mlp, data: digits, rounds: 1}}\n"
    return build_plan(loads(text, f"{name}.yaml"), "emulate")


def check(name: str) -> Row:
    """Measure one topology. ``note`` lists the values outside their tolerance."""
    plan = scaled_plan(name)
    with Emulation(plan, probe(), no_record) as net:
        pairs = ping_all(net)
        results = net.measure(RATE_BUDGET_S)
    silent = sum(ECHOES - len(pair.rtts_s) for pair in pairs)
    rtts = [each for each in results if each.what == "rtt"]
    rates = [each for each in results if each.what == "rate"]
    missing = {link.name for link in plan.network.links} - {each.link for each in rates}
    assert not missing, f"not measured: {missing}"
    outside = [describe(each) for each in results if not each.ok]
    lossy = any(link.loss for link in plan.network.links)
    return {
        "topology": name, "hosts": len(net.layout.hosts), "links": len(plan.network.links),
        "up_s": round(net.bring_up_s, 2), "echoes": len(pairs) * ECHOES, "unanswered": silent,
        "worst_rtt_error_ms": max((((each.measured or 0.0) - each.planned) * 1e3 for each in rtts), key=abs),
        "worst_rate_error": max(((each.measured or 0.0) / each.planned - 1 for each in rates), key=abs),
        "ok": not outside and (lossy or not silent), "note": "; ".join(outside),
    }  # fmt: skip


def ping_all(net: Emulation) -> list[Pair]:
    ports = net.layout.hosts
    pairs = [Pair(f"{a}>{b}", net.namespace_path(a), ports[b].ip) for a in ports for b in ports if a != b]
    slowest_s = max(link.delay_s for link in net.plan.network.links)
    ping(pairs, ECHOES, 0.2, 1.0 + 8 * slowest_s)
    return pairs


def measure(options: argparse.Namespace) -> Iterator[Row]:
    return map(check, options.names or BUILT_IN)


EMULATED = True
ARGUMENTS = {"names": {"nargs": "*", "metavar": "NAME", "help": "built-in topologies; default: all"}}
