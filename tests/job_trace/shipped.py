"""The traces of scenarios/jobs: ``python -m tests.job_trace.shipped`` writes them anew."""

from __future__ import annotations

from pathlib import Path

from testbed.job_trace.model import COLLECTIVE, COMPUTE, RECEIVE, SEND, JobTrace, RankTrace, TraceNode
from testbed.job_trace.writing import write_chakra

FOLDER = Path(__file__).parents[2] / "scenarios" / "jobs"
MICRO_BATCHES = 4
FORWARD_S = 0.02  # of a stage and a micro-batch; backward takes twice as long
OPTIMIZER_S = 0.005
ACTIVATIONS_BYTES = 250_000
GRADIENTS_BYTES = 2_000_000


def two_stages() -> JobTrace:
    """A step of a model in two stages, each on two ranks: GPipe's schedule, then the sums of each stage's gradients.

    Ranks 0 and 1 have the first stage, ranks 2 and 3 the second; rank r sends to and takes from rank r ± 2.
    """
    groups = {"stage0": (0, 1), "stage1": (2, 3)}
    ranks = tuple(RankTrace(rank, "", tuple(_stage(rank, rank // 2))) for rank in range(4))
    return JobTrace(ranks, groups)


def _stage(rank: int, stage: int) -> list[TraceNode]:
    nodes: list[TraceNode] = []

    def add(name: str, kind: str, *after: int, duration_s: float = 0.0, size_bytes: int = 0, **more: object) -> int:
        node = TraceNode(len(nodes), name, kind, after, duration_s, size_bytes=size_bytes, **more)  # type: ignore[arg-type]
        nodes.append(node)
        return node.id

    peer = rank + 2 if stage == 0 else rank - 2
    last: tuple[int, ...] = ()
    for batch in range(MICRO_BATCHES):
        if stage == 1:
            got = add("activations", RECEIVE, size_bytes=ACTIVATIONS_BYTES, peer=peer, tag=batch)
            last = (*last, got)
        last = (add(f"forward {batch}", COMPUTE, *last, duration_s=FORWARD_S),)
        if stage == 0:
            add("activations", SEND, *last, size_bytes=ACTIVATIONS_BYTES, peer=peer, tag=batch)
    for batch in range(MICRO_BATCHES):
        tag = MICRO_BATCHES + batch
        if stage == 0:
            got = add("gradient", RECEIVE, size_bytes=ACTIVATIONS_BYTES, peer=peer, tag=tag)
            last = (*last, got)
        last = (add(f"backward {batch}", COMPUTE, *last, duration_s=2 * FORWARD_S),)
        if stage == 1:
            add("gradient", SEND, *last, size_bytes=ACTIVATIONS_BYTES, peer=peer, tag=tag)
    group = f"stage{stage}"
    summed = add("gradients", COLLECTIVE, *last, size_bytes=GRADIENTS_BYTES, operation="all_reduce", group=group)
    add("optimizer", COMPUTE, summed, duration_s=OPTIMIZER_S)
    return nodes


if __name__ == "__main__":
    write_chakra(two_stages(), FOLDER / "two-stages", "job", as_json=True)
