"""The time split and the waits of runs without servers, against answers worked out by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from analysis import breakdown, waits
from analysis.breakdown import PARTS
from testbed.results import tables
from tests.analysis.test_breakdown import Line, hop, write
from tests.for_each import for_each

COLUMNS = [f"{part}_s" for part in PARTS]


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
        step("a/worker0", 0, 2), step("a/worker1", 0, 3), step("b/worker0", 0, 10),
        message("a/worker1", "a/worker0", 3, 4),  # not what it waits for in the end
        message("a/worker1", "b/worker0", 3, 6),  # there before b has anything to add it to
        message("b/worker0", "a/worker1", 10, 15),
        step("a/worker1", 15, 16, "sum"),
        message("a/worker1", "a/worker0", 16, 17),
        step("a/worker0", 17, 18, "optimizer"),
        round_of("a/worker0", 0, 18), round_of("b/worker0", 0, 10),
    )  # fmt: skip
    # own step 2, sum 1, optimizer 1; LAN 1; WAN 5; from 2 to 10 it waits for b
    assert split(tmp_path)["a/worker0"] == pytest.approx([4, 0, 1, 5, 8])
    assert split(tmp_path)["b/worker0"] == pytest.approx([10, 0, 0, 0, 0])
    found = waited(tmp_path, plan_of("allreduce", algorithm="ring"))
    assert found == pytest.approx({("a/worker0", "b/worker0"): 8, ("a/worker1", "b/worker0"): 7})


def test_who_sums_inside_data_centres_waits_for_none_of_another(tmp_path: Path) -> None:
    """HFA: in round 0 a and b sum alone, and b falls behind; in round 1 all wait for it."""
    later = [(*each[:4], {**each[4], "round": 1}) for each in (
        step("a/worker0", 3, 4), step("a/worker1", 3, 5), step("b/worker0", 9, 18),
        message("b/worker0", "a/worker1", 18, 20),
    )]  # fmt: skip
    write(
        tmp_path / "events",
        step("a/worker0", 0, 1), step("a/worker1", 0, 2), step("b/worker0", 0, 9),
        message("a/worker1", "a/worker0", 2, 3), *later, round_of("a/worker0", 0, 3),
    )  # fmt: skip
    rows = waits.pairs(tables.read(tmp_path), plan_of("allreduce", algorithm="ring")).sort_values(["round", "waiter"])
    found = rows[["round", "waiter", "awaited", "waited_s"]].to_numpy().tolist()
    assert found == [[0, "a/worker0", "a/worker1", 1.0], [1, "a/worker0", "b/worker0", 14.0],
                     [1, "a/worker1", "b/worker0", 13.0]]  # fmt: skip


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
        step("a/worker0", 0, 1), step("a/worker1", 0, 1), step("b/worker0", 0, 4),
        message("a/worker1", "a/worker0", 1, 9, library),  # its own neighbour is near, the ring's others are not
        message("b/worker0", "a/worker1", 1, 9, library),
        message("a/worker0", "b/worker0", 4, 9, library),
        round_of("a/worker0", 0, 9),
    )  # fmt: skip
    assert split(tmp_path)["a/worker0"] == pytest.approx([1, 0, 0, 5, 3])
    assert waited(tmp_path, plan_of(library))["a/worker0", "b/worker0"] == pytest.approx(3)
