"""Even data centres around a central one: a scenario whose rounds have closed forms, and what a run of it gives.

M: bytes of the model (ResNet-18, one key), W workers in each of D data centres, C the LAN's and U the WAN's rate, ε and
δ their one-way delays (a WAN path has a LAN's at each end), c a step. Headers are some 1e-6 of a message.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed.engine.roles import make_role
from testbed.plan.build import build_plan
from testbed.scenario.load import loads
from testbed.simulation.run import SimulationOptions, simulate
from tests.simulation.star import FLUID, read_events

HEADERS = 2e-5  # relative
M = 11_689_512 * 4
CENTRAL = "a"


@dataclass(frozen=True)
class Even:
    """``sites`` data centres beside a central one that does not train; rates in bit/s."""

    sites: int = 3
    workers: int = 2
    wan_bps: float = 1e8
    lan_bps: float = 1e10
    delay_s: float = 0.02
    lan_delay_s: float = 1e-4
    step_s: float = 0.5
    rounds: int = 3
    servers: int = 1
    buckets: int = 1
    settings: tuple[str, ...] = ()

    def text(self) -> str:
        names = [f"b{i}" for i in range(self.sites)]
        sites = [f"{{name: {name}, workers: {self.workers}}}" for name in names]
        links = [
            f"{{between: [{CENTRAL}, {name}], rate: {self.wan_bps:.0f} bit/s, delay: {self.delay_s * 1e6:.0f} us}}"
            for name in names
        ]
        return f"""
version: 1
name: even
seed: 1
run: {{on: simulate}}
topology:
  data_centers: [{{name: {CENTRAL}, central: true, workers: 0, global_servers: {self.servers}}}, {", ".join(sites)}]
  links: [{", ".join(links)}]
  lan: {{rate: {self.lan_bps:.0f} bit/s, delay: {self.lan_delay_s * 1e6:.0f} us}}
training: {{model: {{kind: declared, name: resnet18, buckets: {self.buckets}}}, data: none, batch: 1,
           rounds: {self.rounds}, evaluate_every: 100, compute: modelled}}
device: {{step_time: {self.step_s * 1e6:.0f} us}}
order: {{kind: fifo, slice: whole}}
simulation: {{network: flows}}
timeouts: {{rendezvous: 1 h, step_deadline: 100 h, run_deadline: 300 h}}
"""

    @property
    def delta_s(self) -> float:
        return self.delay_s + 2 * self.lan_delay_s

    @property
    def lan_s(self) -> float:
        """Up or down inside a data centre."""
        return self.lan_delay_s + M * 8 * self.workers / self.lan_bps

    def wan_s(self, size: float = M) -> float:
        """Up or down between data centres; the global servers' ports may be the bottleneck."""
        return self.delta_s + size * 8 * max(1 / self.wan_bps, self.sites / (self.servers * self.lan_bps))


class Ran:
    """All events, and the lengths of rounds."""

    def __init__(self, even: Even, options: SimulationOptions = FLUID) -> None:
        plan = build_plan(loads(even.text(), overrides=even.settings))
        with tempfile.TemporaryDirectory() as name:
            exits = simulate(plan, make_role, Path(name), lambda event: None, options)
            assert [end.error for end in exits.values() if end.error] == []
            self.events: list[dict[str, Any]] = [e for e in read_events(Path(name)) if e["node"] in exits]

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [event for event in self.events if event["kind"] == kind]

    def rounds_s(self) -> list[float]:
        """Of the first worker that trains; all others wait for the same."""
        return [event["t"] - event["t0"] for event in self.of("round") if event["node"] == "b0/worker0"]

    def wan_payload(self) -> int:
        crossing = [e for e in self.of("transfer") if e["tier"] == "wan" and e["key"] >= 0 and e["round"] >= 0]
        return sum(event["payload_bytes"] for event in crossing)
