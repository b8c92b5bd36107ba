"""Emulation on several machines: whole data centres on each, and WAN links between machines as VXLAN tunnels.

This process is the driver, as of a deployment (``testbed.execution.cluster``); agents make the network's parts and
start the nodes in them. The machines' own network is measured first, and a run refused whose links it cannot carry.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from testbed.cluster import underlay
from testbed.cluster.machines import machines_of
from testbed.cluster.starting import AgentStarter
from testbed.cluster.underlay import Pair, UnderlayPath
from testbed.errors import NetworkMismatch
from testbed.execution.cluster import Driver, driving, run_attempts
from testbed.plan.model import Plan
from testbed.results.progress import Progress

if TYPE_CHECKING:
    from emulation.measurement import Measurement

RATE_BUDGET_S = 3.0  # for rates of links between machines, after which no further group of links is flooded
LOST_SHARE = 1e-3  # of a link's packets, by the machines' network: more is a warning
_MOST_BYTES = 1 << 30  # of a measurement of the underlay, which its time limits
_BRING_UP_LIMIT_S = 120.0
_MEASURE_LIMIT_S = 600.0
_LATE_S = 0.3  # between the beginnings of two agents' floods
_CORRECT_INTERVAL_S = 2.0


def run(plan: Plan, directory: Path, report: Progress, starter: AgentStarter | None = None) -> None:
    """Run all nodes to their end, as ``cluster.run`` does. Raise ``CapabilityError`` if a machine cannot emulate,
    ``NetworkMismatch`` if the machines' network cannot carry the links, or one is far from the plan."""
    with driving(plan, directory, report, starter) as driver:
        network = MachinesNetwork(plan, driver)
        driver.stage("measuring the machines' network")
        network.measure_underlay()
        driver.stage("bringing the network up")
        network.bring_up()
        driver.stage("measuring the links")
        network.measure()
        driver.stage("starting nodes")
        network.start_monitors()
        run_attempts(plan, directory, network.following(driver.report), driver.epoch_ns, driver.agents)
        network.end()


class MachinesNetwork:
    """The emulated network, whose parts agents have."""

    def __init__(self, plan: Plan, driver: Driver) -> None:
        self._plan, self._driver, self._record = plan, driver, driver.record
        self._agents, self._connections = driver.agents, driver.agents.connections
        self._by_name = {agent.name: agent for agent in self._agents}
        self._machines = machines_of(plan.network, self._agents.placements)
        self._crossing = underlay.crossing(plan, self._machines)
        self._paths: dict[Pair, UnderlayPath] = {}
        self._corrected_s = 0.0

    def measure_underlay(self) -> None:
        """Measure the network between machines that have links to each other. Raise ``NetworkMismatch``."""
        for pair in self._crossing:
            self._paths[pair] = self._measured(pair)
        underlay.refuse_uncarried(self._plan, self._machines, self._paths)

    def _measured(self, pair: Pair) -> UnderlayPath:
        source, target = (self._by_name[name] for name in pair)
        found = self._driver.measured(source, target, target.placement.inside, most_bytes=_MOST_BYTES)
        if "failed" in found:
            raise NetworkMismatch(f"{pair[1]} cannot be reached from {pair[0]}: {found['failed']}")
        self._record("path", path=">".join(pair), when="before", **found)
        return UnderlayPath(found["min_rtt_s"], found["rate_bps"], found["mtu_bytes"])

    def bring_up(self) -> None:
        """Let all agents make their parts, and wait until the paths between them work."""
        mtu_bytes = underlay.mtu_bytes(self._paths.values())
        if warning := underlay.mtu_warning(mtu_bytes):
            self._record("warning", message=warning)
        addresses = {agent.name: agent.placement.inside for agent in self._agents}
        first_vni = int(self._agents.run_id[:6], 16)
        questions = {}
        for agent in self._agents:
            delays_s = {one: path.delay_s for (one, other), path in self._paths.items() if other == agent.name}
            part = {
                "machine": agent.name, "machines": self._machines, "addresses": addresses, "delays_s": delays_s,
                "first_vni": first_vni, "mtu_bytes": mtu_bytes,
            }  # fmt: skip
            questions[agent.name] = {"do": "network", "part": part, "epoch_s": agent.epoch_there_ns / 1e9}
        for name, about in self._connections.ask_all(questions, _BRING_UP_LIMIT_S).items():
            self._by_name[name].about["emulation"] = about
        self._ask_all("contact")

    def _ask_all(self, do: str) -> dict[str, Any]:
        return self._connections.ask_all({agent.name: {"do": do} for agent in self._agents}, _BRING_UP_LIMIT_S)

    def measure(self) -> None:
        """Measure all links, as on one machine, and record it. Raise ``NetworkMismatch`` as ``judge`` does."""
        from emulation.measurement import Measurement, judge

        found = [
            each for agent in self._agents for each in self._connections.ask(agent.name, _MEASURE_LIMIT_S, do="links")
        ]
        judge([*(Measurement(**each) for each in found), *self._measure_rates()], self._record)

    def _measure_rates(self) -> list[Measurement]:
        """Measure rates of links between machines: of each pair one link of each rate, others while time is left."""
        from emulation.measurement import flood_groups, repeated

        pairs = {link.name: pair for pair, found in self._crossing.items() for link in found}
        everything = [link for found in self._crossing.values() for link in found]
        results: list[Measurement] = []
        end_s = time.monotonic() + RATE_BUDGET_S
        for group in flood_groups(everything, lambda link: (*pairs[link.name], link.rate_bps)):
            if results and time.monotonic() > end_s:
                break
            results += repeated({link.name for link in group}, partial(self._flood, pairs))
        return results

    def _flood(self, pairs: Mapping[str, Pair], links: set[str]) -> list[Measurement]:
        """Flood links together: the agent at each end is asked to do its part at the same time."""
        from emulation.measurement import Measurement

        names: dict[str, list[str]] = {}
        for link in sorted(links):
            for machine in pairs[link]:
                names.setdefault(machine, []).append(link)
        asked = {name: {"do": "flood", "links": found, "wait_s": _LATE_S} for name, found in names.items()}
        answers = self._connections.ask_all(asked, _BRING_UP_LIMIT_S)
        return [Measurement(**each) for answer in answers.values() for each in answer]

    def start_monitors(self) -> None:
        """Let each agent sample the links whose rate it makes."""
        self._ask_all("monitor")

    def following(self, report: Progress) -> Progress:
        """Return a ``report`` that starts traces with training, keeps their clocks right, and counts losses."""
        start_s: float | None = None
        trained_s = 0.0

        def on_progress(line: dict[str, Any]) -> None:
            nonlocal start_s, trained_s
            if line["kind"] == "train" and start_s is None:
                start_s, trained_s = line["t"], line.get("trained_s", 0.0)
            if start_s is not None and time.monotonic() - self._corrected_s > _CORRECT_INTERVAL_S:
                self._corrected_s = time.monotonic()
                for agent in self._agents:
                    times = {"start_s": agent.clock_there_s(start_s), "trained_s": trained_s}
                    self._connections.send(agent, {"do": "follow", **times})
                self._exchange_losses()
            report(line)

        return on_progress

    def _exchange_losses(self) -> None:
        """Tell agents what the other ends of their links have lost: a link's counters are where it begins."""
        sources = {link.name: pair[0] for pair, found in self._crossing.items() for link in found}
        lost: dict[str, dict[str, int]] = {}
        for answer in self._ask_all("losses").values():
            for link, packets in answer.items():
                lost.setdefault(sources[link], {})[link] = packets
        for machine, found in lost.items():
            self._connections.send(self._by_name[machine], {"do": "lost", "links": found})

    def end(self) -> None:
        """End the agents' helpers, and warn of links whose packets the underlay has lost."""
        self._exchange_losses()
        answers = self._ask_all("ended")
        sent = {name: count for answer in answers.values() for name, count in answer["sent"].items()}
        for answer in answers.values():
            for name, arrived in answer["arrived"].items():
                lost = sent[name] - arrived
                if lost > max(LOST_SHARE * sent[name], 10):
                    message = f"{name}: the machines' network has lost {lost} of {sent[name]} packets"
                    self._record("warning", message=message)
