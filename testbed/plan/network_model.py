"""Chooses the network model of a simulation: packets, or flows if there would be too many packets.

The packet model is the most accurate and the slowest. By default, a run uses it if the Plan predicts at most
``MOST_PACKETS`` data packets in all rounds, on the links between data centres and as LAN frames; these take about ten
seconds at most. The prediction is arithmetic on the Plan (``packets``), so a scenario uses the same model on every
machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from testbed.plan.bounds import has_unknown_model
from testbed.plan.model import NetworkPlan, NodePlan, TrainingPlan
from testbed.plan.packets import MOST_PACKETS, predicted_packets
from testbed.plan.stages import Sent
from testbed.plan.timeouts import steps_of
from testbed.scenario import Scenario
from testbed.settings.run import Simulation

_FORMER_WORDS = {"tcp": "flows", "emulated": "packets"}  # words of older scenarios


def simulation_of(
    scenario: Scenario,
    network: NetworkPlan,
    nodes: Sequence[NodePlan],
    training: TrainingPlan,
    sent: Sequence[Sent] = (),
) -> Simulation:
    """Return the settings of the simulation, with the chosen network model and the reason for the choice."""
    word = _FORMER_WORDS.get(scenario.simulation.network, scenario.simulation.network)
    reason = "as simulation.network says"
    if scenario.run.facilities.has_processes:
        word = "flows"
        reason = ""
    elif word == "auto":
        packets = predicted_packets(network, nodes, training, sent, steps_of(scenario))
        word, reason = _default(scenario, packets, has_unknown_model(training.model))
    return replace(scenario.simulation, network=word, network_reason=reason)


def _default(scenario: Scenario, packets: int, is_unknown: bool) -> tuple[str, str]:
    if scenario.checkpoint.every:
        return "flows", "by default, as the run keeps checkpoints, from which only flows go on at equal times"
    told = f"by default, as at most {packets:,} packets are predicted"
    if packets <= MOST_PACKETS:
        return "packets", told
    if is_unknown:
        return "flows", "by default, as the size of the script's model is not known beforehand"
    return "flows", f"{told}, and packets are simulated up to {MOST_PACKETS:,}"
