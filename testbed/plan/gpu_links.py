"""Sums on GPUs use the GPUs' own links: refused where these would bypass what is emulated between the nodes."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict

from testbed.errors import ScenarioError
from testbed.plan.model import EMULATED, NetworkPlan, NodePlan
from testbed.policy.collective import INSIDE, inside_of
from testbed.policy.collective.gloo import NCCL
from testbed.scenario import Scenario


def check_gpu_links(scenario: Scenario, network: NetworkPlan, nodes: tuple[NodePlan, ...]) -> None:
    """Raise ``ScenarioError`` if workers would sum on GPUs beside an emulated link."""
    if scenario.run.on not in EMULATED:
        return
    options = asdict(scenario.paradigm.options)
    workers = Counter(node.data_center for node in nodes if node.role == "worker" and node.trains)
    inside = inside_of(options)
    if inside is not None and inside.on_gpu:
        shaped = [site.name for site in network.sites if workers[site.name] > 1 and not site.is_unshaped]
        if shaped:
            others = " or ".join(f"'{name}'" for name, each in INSIDE.items() if not each.on_gpu)
            raise _refusal(
                scenario, "inside", f"the emulated LAN of {shaped[0]}",
                f"write {others}, or leave that LAN unshaped: 'lan: {{rate: 10 Gbit/s, delay: 0 ms}}'",
            )  # fmt: skip
    elif options.get("backend") == NCCL and len(workers) > 1:
        cure = "write 'gloo', or 'paradigm: {kind: hips, inside: nccl}', whose sums stay in a data centre"
        raise _refusal(scenario, "backend", "the emulated WAN", cure)


def _refusal(scenario: Scenario, option: str, bypassed: str, cure: str) -> ScenarioError:
    where = f"{scenario.place_of('paradigm', option)}: paradigm.{option}"
    return ScenarioError(f"{where}: the GPUs of this machine sum by links of their own, past {bypassed} ({cure})")
