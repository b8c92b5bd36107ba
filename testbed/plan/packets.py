"""An upper bound of the data packets that a run sends, and the number that takes a simulation about ten seconds.

Packets cost 0.3 to 0.5 µs of processor time each. They are counted by arithmetic on the Plan:

    rounds · sum over the nodes that send of (2 models, to its servers and back) · links on the way

and, for a pipeline, the activations and their gradients of each step. It is an upper bound, as codecs, rounds that stay
inside a data centre, and a target that ends the run early reduce the number.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from testbed.numbers import seconds
from testbed.plan.bounds import has_unknown_model, model_bytes, most_steps
from testbed.plan.model import OFFLOADED_LAN_BPS, NetworkPlan, NodePlan, Plan, TrainingPlan
from testbed.plan.stages import Sent, sent_in_step
from testbed.policy.sync import SYNC

MOST_PACKETS = 20_000_000
_PACKET_S = 0.5e-6
# bytes of a TCP segment, and segments in a frame of a LAN whose hosts offload segmentation
SEGMENT_BYTES = 1448
FRAME_SEGMENTS = 45


def packets_of(plan: Plan) -> int:
    """Return an upper bound of the data packets that all rounds of a Plan send."""
    sent = tuple(sent_in_step(plan.pipeline, plan.nodes)) if plan.pipeline is not None else ()
    sync = plan.technique.sync_tier1
    steps = most_steps(SYNC[sync.kind], SYNC.options(sync.kind, sync.options), plan.training.rounds)
    return predicted_packets(plan.network, plan.nodes, plan.training, sent, steps)


def cure_of_flows(plans: Sequence[Plan]) -> str:
    """Return the advice how to simulate jobs packet by packet, for as many rounds as take about ten seconds."""
    packets = sum(map(packets_of, plans))
    cure = "'simulation: {network: packets}'"
    if packets <= MOST_PACKETS or any(has_unknown_model(plan.training.model) for plan in plans):
        return f"simulate packet by packet: {cure}"
    rounds = max(plan.training.rounds for plan in plans)
    each = f"all rounds may be {packets:,} packets, which take {seconds(packets * _PACKET_S)} of a processor"
    first = max(1, rounds * MOST_PACKETS // packets)
    shown = f"the first {first} rounds" if first > 1 else "one round"
    return f"simulate {shown} packet by packet: 'training: {{rounds: {first}}}' with {cure} ({each})"


def predicted_packets(
    network: NetworkPlan,
    nodes: Sequence[NodePlan],
    training: TrainingPlan,
    sent: Sequence[Sent] = (),
    steps: int = 1,
) -> int:
    """Return an upper bound of the data packets.

    sent   the messages between the stages of a pipeline in each step
    steps  steps of a round
    """
    size_bytes = model_bytes(training.model, training.data)
    segments = math.ceil(size_bytes / SEGMENT_BYTES)
    in_frame = {site.name: FRAME_SEGMENTS if site.lan_rate_bps >= OFFLOADED_LAN_BPS else 1 for site in network.sites}
    frames = {name: math.ceil(segments / count) for name, count in in_frame.items()}
    sites = {node.name: node.data_center for node in nodes}
    longest = max(map(len, network.routes.values()), default=0)
    each_round = 0
    for node in nodes:
        if node.parents:
            ways = [_hops(network, node.data_center, sites[parent]) for parent in node.parents]
            each_round += 2 * (math.ceil(segments * sum(ways) / len(ways)) + frames[node.data_center])
        elif node.role == "worker":  # among workers: twice a model, as in a ring
            each_round += 2 * (segments * longest + frames[node.data_center])
    for each in sent:
        of_step = math.ceil(each.size_bytes / SEGMENT_BYTES)
        of_lan = math.ceil(of_step / in_frame[each.source])
        each_round += steps * (of_step * _hops(network, each.source, each.target) + of_lan)
    return each_round * training.rounds


def _hops(network: NetworkPlan, source: str, target: str) -> int:
    return 0 if source == target else len(network.between(source, target))
