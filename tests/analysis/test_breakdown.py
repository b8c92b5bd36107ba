"""The time split and the waits of runs, with servers and without, against answers worked out by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from analysis import breakdown, waits
from analysis.breakdown import PARTS
from testbed.results import tables
from testbed.results.events import EventLog
from testbed.results.intervals import union
from tests.for_each import for_each
from tests.results.fake_run import make_plan, write_events

COLUMNS = [f"{part}_s" for part in PARTS]
Line = tuple[str, str, float, float, dict[str, object]]


def write(events: Path, *lines: Line) -> None:
    """(node, kind, t0, t, fields) each."""
    logs = {node: EventLog(events, node) for node in dict.fromkeys(line[0] for line in lines)}
    for node, kind, t0, t, fields in lines:
        logs[node].write(kind, t, t0=t0, **{"round": 0, **fields})
    for log in logs.values():
        log.close()


def hop(source: str, target: str, message: str, begin: float, end: float, key: int = 0) -> Line:
    tier = "lan" if source.split("/", maxsplit=1)[0] == target.split("/", maxsplit=1)[0] else "wan"
    fields: dict[str, object] = {"source": source, "target": target, "message": message, "key": key, "tier": tier}
    return target, "transfer", begin, end, fields


def test_one_round_by_hand(tmp_path: Path) -> None:
    """0-10 compute, 10-11 LAN, 11-14 waits for worker1, 14-15 sum, 15-35 WAN, 35-45 waits for others, 45-47 update,
    47-57 WAN, 57-58 LAN; key 1 is faster and therefore not critical."""
    write(
        tmp_path / "events",
        ("a/worker0", "compute", 0, 10, {"work": "step"}),
        hop("a/worker0", "a/server0", "push", 9, 11),  # overlaps the end of the computation: counts there
        hop("a/worker0", "a/server0", "push", 5, 6, key=1),
        hop("a/worker1", "a/server0", "push", 13, 14),
        ("a/server0", "compute", 14, 15, {"work": "sum"}),
        hop("a/server0", "b/global0", "push", 15, 35),
        hop("a/server0", "b/global0", "push", 8, 12, key=1),
        hop("c/server0", "b/global0", "push", 20, 45),
        ("b/global0", "compute", 45, 47, {"work": "optimizer"}),
        hop("b/global0", "a/server0", "value", 47, 57),
        hop("b/global0", "a/server0", "value", 20, 22, key=1),
        hop("a/server0", "a/worker0", "value", 57, 58),
        hop("a/server0", "a/worker0", "value", 22, 23, key=1),
        ("a/worker0", "round", 0, 60, {"loss": 1.0, "samples": 32}),
    )
    row = breakdown.per_round(tables.read(tmp_path)).iloc[0]
    # compute 10 + sum 1 + update 2; LAN 1 + 1; WAN 20 + 10; waiting 3 + 10, and 2 after the last value
    assert row[COLUMNS].tolist() == pytest.approx([13, 0, 2, 30, 15])
    assert row["data_center"] == "a"


def test_the_fake_run_has_its_known_split(tmp_path: Path) -> None:
    write_events(make_plan(), tmp_path / "events")
    split = breakdown.per_node(tables.read(tmp_path)).set_index("node")
    # seconds per round, as the fake run was made
    assert split.loc["tokyo/worker0", COLUMNS].tolist() == pytest.approx([0.086, 0, 0.004, 0.200, 0.0], abs=2e-6)
    assert split.loc["frankfurt/worker0", COLUMNS].tolist() == pytest.approx([0.056, 0, 0.004, 0.200, 0.030], abs=2e-6)
    assert split.loc["virginia/worker0", COLUMNS].tolist() == pytest.approx([0.056, 0, 0.008, 0.0, 0.128], abs=2e-6)
    server = split.loc["frankfurt/server0", COLUMNS].tolist()
    assert server == pytest.approx([0.001, 0, 0.004, 0.200, 0.085], abs=2e-6)


def test_codecs_are_a_part_of_their_own_at_workers_and_servers(tmp_path: Path) -> None:
    """0-2 compute, 2-3 encodes, 3-5 LAN, 5-6 decodes, 6-8 sum (while another is decoded), 8-9 LAN, 9-10 decodes."""
    write(
        tmp_path / "events",
        ("a/worker0", "compute", 0, 2, {"work": "step"}),
        ("a/worker0", "compute", 2, 3, {"work": "encode"}),
        hop("a/worker0", "a/server0", "push", 3, 5),
        ("a/server0", "compute", 5, 7, {"work": "decode"}),
        ("a/server0", "compute", 6, 8, {"work": "sum"}),
        hop("a/server0", "a/worker0", "value", 8, 9),
        ("a/worker0", "compute", 9, 10, {"work": "decode"}),
        ("a/worker0", "round", 0, 10, {"loss": 1.0, "samples": 32}),
        ("a/worker0", "start", 0, 0, {"role": "worker", "data_center": "a"}),
        ("a/server0", "start", 0, 0, {"role": "server", "data_center": "a"}),
    )
    found = tables.read(tmp_path)
    assert breakdown.per_round(found)[COLUMNS].iloc[0].tolist() == [4, 3, 3, 0, 0]
    split = breakdown.per_node(found).set_index("node")
    assert split.loc["a/server0", COLUMNS].tolist() == [2, 1, 3, 0, 4]


def test_a_server_counts_in_the_rounds_until_its_loss(tmp_path: Path) -> None:
    """It sums for 2 s of the first of two rounds, at whose end it is lost."""
    write(
        tmp_path / "events",
        ("a/server0", "compute", 0, 2, {"work": "sum"}),
        ("a/worker0", "round", 0, 10, {"loss": 1.0, "samples": 32}),
        ("a/worker0", "round", 10, 20, {"loss": 1.0, "samples": 32, "round": 1}),
        ("b/scheduler", "epoch", 10, 10, {"number": 1, "targets": "a/server0", "begins": False, "message": "is lost"}),
        ("a/worker0", "start", 0, 0, {"role": "worker", "data_center": "a"}),
        ("a/server0", "start", 0, 0, {"role": "server", "data_center": "a"}),
    )
    split = breakdown.per_node(tables.read(tmp_path)).set_index("node")
    assert split.loc["a/server0", [*COLUMNS, "rounds"]].tolist() == [2, 0, 0, 0, 8, 1]


def test_a_replica_that_takes_over_has_a_row_of_its_own(tmp_path: Path) -> None:
    """A copy of the values is 1 s on its way to it in the first round; it makes the update of the second."""
    write(
        tmp_path / "events",
        hop("a/global0", "a/replica0", "copy", 8, 9),
        ("a/replica0", "compute", 12, 14, {"work": "optimizer"}),
        ("a/worker0", "round", 0, 10, {"loss": 1.0, "samples": 32}),
        ("a/worker0", "round", 10, 20, {"loss": 1.0, "samples": 32, "round": 1}),
        ("a/worker0", "start", 0, 0, {"role": "worker", "data_center": "a"}),
        ("a/replica0", "start", 0, 0, {"role": "replica", "data_center": "a"}),
    )
    split = breakdown.per_node(tables.read(tmp_path)).set_index("node")
    assert split.loc["a/replica0", [*COLUMNS, "rounds"]].tolist() == [1, 0, 0.5, 0, 8.5, 2]


def test_intervals() -> None:
    some = union([(5, 6), (0, 2), (1, 3), (4, 4), (8, 7)])
    assert some.edges.tolist() == [[0, 3], [5, 6]]
    assert some.total() == 4
    assert some.minus(union([(1, 2), (5, 9)])).edges.tolist() == [[0, 1], [2, 3]]
    assert some.intersection(union([(2, 5.5)])).edges.tolist() == [[2, 3], [5, 5.5]]
    assert some.minus(union([])).total() == 4
    assert union([]).minus(some).total() == 0


def test_workers_that_sum_among_themselves_go_through_the_one_that_pushes(tmp_path: Path) -> None:
    """0-10 compute; worker0 waits for worker1's sum until 13, pushes until 14; WAN 14-24, 26-36; handed out 37-39."""
    write(
        tmp_path / "events",
        ("a/worker0", "compute", 0, 10, {"work": "step"}),
        ("a/worker1", "compute", 0, 12, {"work": "step"}),
        inside("a/worker1", "a/worker0", 12, 13),
        hop("a/worker0", "a/server0", "push", 13, 14),
        hop("a/server0", "b/global0", "push", 14, 24),
        hop("b/worker0", "b/global0", "push", 3, 4),
        ("b/global0", "compute", 24, 26, {"work": "optimizer"}),
        hop("b/global0", "a/server0", "value", 26, 36),
        hop("a/server0", "a/worker0", "value", 36, 37),
        inside("a/worker0", "a/worker1", 37, 39),
        ("a/worker0", "round", 0, 37, {"loss": 1.0, "samples": 32}),
        ("a/worker1", "round", 0, 39, {"loss": 1.0, "samples": 32}),
    )
    rows = breakdown.per_round(tables.read(tmp_path)).set_index("node")
    # worker0: compute 10 + update 2, LAN 1 + 1 + 1, WAN 20, and it waits while worker1 computes
    assert rows.loc["a/worker0", COLUMNS].tolist() == pytest.approx([12, 0, 3, 20, 2])
    # worker1: compute 12 + update 2, LAN as worker0 and 2 more
    assert rows.loc["a/worker1", COLUMNS].tolist() == pytest.approx([14, 0, 5, 20, 0])


def inside(source: str, target: str, begin: float, end: float) -> Line:
    node, event, t0, t, fields = hop(source, target, "collective", begin, end)
    return node, event, t0, t, {**fields, "payload_bytes": 100}


def test_relays_of_an_overlay_are_followed_up_and_down(tmp_path: Path) -> None:
    """c's contribution goes over b, whose own is there at 4, and the new value comes over d; 2 LAN, 30 and 17 WAN."""
    write(
        tmp_path / "events",
        ("c/worker0", "compute", 0, 10, {"work": "step"}),
        hop("c/worker0", "c/server0", "push", 10, 11),
        hop("b/worker0", "b/server0", "push", 3, 4),
        hop("c/server0", "b/server0", "merge", 11, 31),
        ("b/server0", "compute", 31, 32, {"work": "sum"}),
        hop("b/server0", "a/global0", "merge", 32, 42),
        hop("d/server0", "a/global0", "merge", 5, 45),
        ("a/global0", "compute", 45, 47, {"work": "optimizer"}),
        hop("a/global0", "d/server0", "spread", 47, 57),
        hop("d/server0", "c/server0", "spread", 57, 64),
        hop("c/server0", "c/worker0", "value", 64, 65),
        ("c/worker0", "round", 0, 65, {"loss": 1.0, "samples": 32}),
    )
    # compute 10 + sum 1 + update 2; waits from 42 to 45 for what d relays
    assert breakdown.per_round(tables.read(tmp_path))[COLUMNS].iloc[0].tolist() == pytest.approx([13, 0, 2, 47, 3])


def test_a_round_that_a_restart_repeats_has_its_own_transfers(tmp_path: Path) -> None:
    def attempt(at: float, wan_s: float) -> list[Line]:
        return [
            ("a/worker0", "compute", at, at + 1, {"work": "step"}),
            hop("a/worker0", "b/global0", "push", at + 1, at + 1 + wan_s),
            hop("b/global0", "a/worker0", "value", at + 2 + wan_s, at + 2 + 2 * wan_s),
        ]

    ended = [("a/worker0", "round", at, at + 2 + 2 * wan_s, {"loss": 1.0}) for at, wan_s in ((0.0, 3.0), (40.0, 4.0))]
    cut_short = attempt(20, 2)[:2]
    write(tmp_path / "events", *attempt(0, 3), ended[0], *cut_short, *attempt(40, 4), ended[1])
    rows = breakdown.per_round(tables.read(tmp_path))[COLUMNS]
    assert rows.to_numpy().tolist() == [[1, 0, 0, 6, 1], [1, 0, 0, 8, 1]]


def test_a_value_that_came_after_the_reply_did_not_make_it(tmp_path: Path) -> None:
    """A server that replies with what it has does not wait for the same key from above; other keys had come."""
    write(
        tmp_path / "events",
        ("a/worker0", "compute", 0, 1, {"work": "step"}),
        hop("a/worker0", "a/server0", "push", 1, 2),
        hop("b/global0", "a/server0", "value", 0.5, 2.5, key=1),
        hop("a/server0", "a/worker0", "value", 3, 4),
        hop("b/global0", "a/server0", "value", 6, 9),
        ("a/worker0", "round", 0, 10, {"loss": 1.0}),
    )
    index = breakdown._index(found := tables.read(tmp_path), found["transfers"])
    _, down = breakdown.critical_path(index, "a/worker0", 0, (0, 10))
    assert [(value.source, value.key) for value in down] == [("b/global0", 1), ("a/server0", 0)]


def test_nodes_that_send_each_other_a_key_are_no_endless_path(tmp_path: Path) -> None:
    write(
        tmp_path / "events",
        hop("a/server0", "b/server0", "spread", 1, 2),
        hop("b/server0", "a/server0", "spread", 0, 1),
        hop("a/server0", "b/server0", "merge", 0, 1),
        hop("b/server0", "a/server0", "merge", 0, 1),
        hop("a/worker0", "a/server0", "push", 0, 1),
        hop("a/server0", "a/worker0", "value", 2, 3),
        ("a/worker0", "round", 0, 3, {"loss": 1.0}),
    )
    assert breakdown.per_round(tables.read(tmp_path))[COLUMNS].iloc[0].sum() == pytest.approx(3)


def message(source: str, target: str, begin: float, end: float, kind: str = "collective", key: int = 0) -> Line:
    node, event, t0, t, fields = hop(source, target, kind, begin, end, key)
    return node, event, t0, t, {**fields, "payload_bytes": 100}


def step(node: str, begin: float, end: float, work: str = "step") -> Line:
    return node, "compute", begin, end, {"work": work}


def round_of(node: str, begin: float, end: float) -> Line:
    return node, "round", begin, end, {"loss": 1.0, "samples": 32}


def plan_of(kind: str, **options: Any) -> dict[str, Any]:
    return {"nodes": [{"parents": []}], "technique": {"paradigm": {"kind": kind, "options": options}}}


def split(directory: Path) -> dict[str, list[float]]:
    rows = breakdown.per_round(tables.read(directory)).set_index("node")
    return {node: rows.loc[node, COLUMNS].tolist() for node in rows.index}


def waited(directory: Path, plan: dict[str, Any]) -> dict[tuple[str, str], float]:
    rows = waits.pairs(tables.read(directory), plan)
    return {(row.waiter, row.awaited): row.waited_s for row in rows.itertuples()}


def test_a_chain_of_messages_begins_with_the_slowest_step(tmp_path: Path) -> None:
    """b computes until 10; its message is at c at 15, c sums until 16, a has the sum at 17 by the LAN it shares."""
    write(
        tmp_path / "events",
        step("a/worker0", 0, 2),
        step("a/worker1", 0, 3),
        step("b/worker0", 0, 10),
        message("a/worker1", "a/worker0", 3, 4),  # not what it waits for in the end
        message("a/worker1", "b/worker0", 3, 6),  # there before b has anything to add it to
        message("b/worker0", "a/worker1", 10, 15),
        step("a/worker1", 15, 16, "sum"),
        message("a/worker1", "a/worker0", 16, 17),
        step("a/worker0", 17, 18, "optimizer"),
        round_of("a/worker0", 0, 18),
        round_of("b/worker0", 0, 10),
    )
    # own step 2, sum 1, optimizer 1; LAN 1; WAN 5; from 2 to 10 it waits for b
    assert split(tmp_path)["a/worker0"] == pytest.approx([4, 0, 1, 5, 8])
    assert split(tmp_path)["b/worker0"] == pytest.approx([10, 0, 0, 0, 0])
    found = waited(tmp_path, plan_of("allreduce", algorithm="ring"))
    assert found == pytest.approx({("a/worker0", "b/worker0"): 8, ("a/worker1", "b/worker0"): 7})


def test_activations_on_their_way_are_time_of_links_for_the_stage_that_waits_for_them(tmp_path: Path) -> None:
    """b has micro-batch 0 at 8, of which it sums the gradients until 11, and micro-batch 1 at 15; a has b's at 18."""
    write(
        tmp_path / "events",
        step("a/worker0", 0, 3),
        step("a/worker0", 3, 10),
        step("a/worker0", 18, 20),
        message("a/worker0", "b/worker0", 3, 8, "activation"),
        step("b/worker0", 8, 11),
        message("b/worker0", "a/worker0", 11, 18, "activation-gradient"),
        message("a/worker0", "b/worker0", 10, 15, "activation", key=1),
        step("b/worker0", 15, 16),
        message("a/worker0", "b/worker0", 17, 19, "activation", key=2),  # for which it does not pause in this round
        round_of("a/worker0", 0, 20),
        round_of("b/worker0", 0, 20),
    )
    assert split(tmp_path)["a/worker0"] == pytest.approx([12, 0, 0, 7, 1])
    assert split(tmp_path)["b/worker0"] == pytest.approx([4, 0, 0, 5 + 4, 7])


def test_who_sums_inside_data_centres_waits_for_none_of_another(tmp_path: Path) -> None:
    """HFA: in round 0 a and b sum alone, and b falls behind; in round 1 all wait for it."""
    later = [
        (*each[:4], {**each[4], "round": 1})
        for each in (
            step("a/worker0", 3, 4),
            step("a/worker1", 3, 5),
            step("b/worker0", 9, 18),
            message("b/worker0", "a/worker1", 18, 20),
        )
    ]
    write(
        tmp_path / "events",
        step("a/worker0", 0, 1),
        step("a/worker1", 0, 2),
        step("b/worker0", 0, 9),
        message("a/worker1", "a/worker0", 2, 3),
        *later,
        round_of("a/worker0", 0, 3),
    )
    rows = waits.pairs(tables.read(tmp_path), plan_of("allreduce", algorithm="ring")).sort_values(["round", "waiter"])
    found = rows[["round", "waiter", "awaited", "waited_s"]].to_numpy().tolist()
    assert found == [
        [0, "a/worker0", "a/worker1", 1.0],
        [1, "a/worker0", "b/worker0", 14.0],
        [1, "a/worker1", "b/worker0", 13.0],
    ]


def test_an_exchange_hidden_by_the_step_costs_nothing_and_a_longer_one_its_tail(tmp_path: Path) -> None:
    write(
        tmp_path / "events",
        step("a/worker0", 0, 4),
        message("a/worker0", "b/worker0", 0, 3, "gossip"),
        message("b/worker0", "a/worker0", 3, 6, "gossip", key=1),
        message("c/worker0", "a/worker0", 1, 5.5, "gossip"),  # somebody else's offer
        step("b/worker0", 0, 5),
        round_of("a/worker0", 0, 6),
        round_of("b/worker0", 0, 5),
    )
    assert split(tmp_path)["a/worker0"] == pytest.approx([4, 0, 0, 2, 0])
    assert split(tmp_path)["b/worker0"] == pytest.approx([5, 0, 0, 0, 0])
    assert waited(tmp_path, plan_of("gossip", algorithm="adpsgd")) == {}


@for_each("library", ["gloo", "mpi"])  # the second one is a paradigm of older runs
def test_a_librarys_sum_is_one_hop_from_when_the_last_has_called_it(library: str, tmp_path: Path) -> None:
    write(
        tmp_path / "events",
        step("a/worker0", 0, 1),
        step("a/worker1", 0, 1),
        step("b/worker0", 0, 4),
        message("a/worker1", "a/worker0", 1, 9, library),  # its own neighbour is near, the ring's others are not
        message("b/worker0", "a/worker1", 1, 9, library),
        message("a/worker0", "b/worker0", 4, 9, library),
        round_of("a/worker0", 0, 9),
    )
    assert split(tmp_path)["a/worker0"] == pytest.approx([1, 0, 0, 5, 3])
    assert waited(tmp_path, plan_of(library))["a/worker0", "b/worker0"] == pytest.approx(3)
