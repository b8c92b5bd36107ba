"""Training with DGT: the same bits as plain pushes where all is waited for, and sound where blocks are lost."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from testbed.errors import ScenarioError
from testbed.plan.build import build_plan
from testbed.scenario.load import load
from tests.end_to_end.runs import Finished, run_scenario
from tests.for_each import for_each

SCENARIO = Path(__file__).parents[1] / "dgt.yaml"
WAIT_FOR_ALL = ("order.deadline=60 s",)
ROUNDS = 12
FEW = 4
Simulated = Callable[..., Finished]
LOSSY = "topology.links[*].loss=5 %"


def run(directory: Path, back_end: str, *overrides: str) -> Finished:
    finished = run_scenario(directory, back_end, *overrides, scenario=SCENARIO)
    assert finished.outcome.status == "done", finished.outcome.message
    return finished


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Simulated:
    """Each run is simulated once."""

    @cache
    def once(*overrides: str) -> Finished:
        return run(tmp_path_factory.mktemp("simulated") / "run", "simulate", *overrides)

    return once


def account(finished: Finished, rounds_made: int = ROUNDS) -> dict[str, int]:
    """Sums over all rounds; in each of them the account must be closed."""
    events = finished.of_kind("blocks")
    rounds = {(event["source"], event["key"], event["round"]) for event in events}
    assert len(rounds) == len(events) == rounds_made * 6 * 3, "one account for each key, round and party"
    for event in events:
        assert event["sent"] == event["delivered"] + event["late"] + event["lost"]
        assert min(event["delivered"], event["late"], event["lost"]) >= 0
    return {name: sum(event[name] for event in events) for name in ("sent", "delivered", "late", "lost", "resent")}


@pytest.mark.sample(1)  # of 4, which take 5 s
@pytest.mark.parametrize(
    ("overrides", "back_end"),
    [((), "local"), *((each, "simulate") for each in ((), ("codec.tier2=fp16",), ("paradigm=ps",)))],
    ids=str,
)
def test_waiting_for_all_gives_the_bits_of_plain_pushes(
    tmp_path: Path, back_end: str, overrides: tuple[str, ...], simulated: Simulated
) -> None:
    """Row 47."""
    overrides = (*overrides, f"training.rounds={FEW}")
    plain, settings = simulated("order.kind=fifo", *overrides), (*WAIT_FOR_ALL, *overrides)
    ours = simulated(*settings) if back_end == "simulate" else run(tmp_path / "ours", back_end, *settings)
    assert ours.hashes("worker") == plain.hashes("worker") and len(plain.hashes("worker")) == 1
    if len(overrides) == 1:
        counts = account(ours, FEW)
        assert counts["delivered"] == counts["sent"] >= 150


@pytest.mark.sample(1)  # of 2, which take 2 s
@pytest.mark.parametrize("overrides", [(), ("shard=multigps", "topology.data_centers[0].global_servers=2")], ids=str)
def test_without_loss_no_block_is_late(overrides: tuple[str, ...], simulated: Simulated) -> None:
    """Though a reliable part of 65 KB takes 27 ms here, and the deadline is 10 ms."""
    plain, ours = simulated("order.kind=fifo", *overrides), simulated(*overrides)
    events = ours.of_kind("blocks")
    assert sum(event["sent"] for event in events) > 500
    assert not sum(event["late"] + event["lost"] for event in events)
    assert ours.hashes("worker") == plain.hashes("worker")


@pytest.mark.sample(1)  # of 5, which take 4 s
@pytest.mark.parametrize("late", ["next-round", "zero", "heuristic-drop", "sender-drop", "retransmit"])
def test_training_completes_on_lossy_links(tmp_path: Path, late: str, simulated: Simulated) -> None:
    overrides = (LOSSY, f"order.late={late}", "training.rounds=12", "order.k=0.5")
    finished = run(tmp_path / "run", "simulate", *overrides)
    counts = account(finished)
    losses = {event["round"]: event["loss"] for event in finished.of_kind("round") if event["node"] == "left/worker0"}
    assert losses[11] < 0.9 * losses[0]
    if late == "retransmit":
        plain = simulated("order.kind=fifo")
        assert finished.hashes("worker") == plain.hashes("worker")
        assert counts["resent"] > 0 and counts["delivered"] == counts["sent"]
    elif late == "sender-drop":
        assert counts["sent"] == 0
    else:
        assert counts["lost"] > 0


@pytest.mark.slow  # 2 s
def test_the_same_seed_loses_the_same_blocks(tmp_path: Path) -> None:
    one, two = (run(tmp_path / name, "simulate", LOSSY) for name in ("one", "two"))
    assert one.hashes("worker") == two.hashes("worker")
    assert account(one) == account(two)
    other = run(tmp_path / "other", "simulate", LOSSY, "seed=2")
    assert account(other) != account(one)


def test_k_falls_with_the_loss_and_the_channels_with_it(simulated: Simulated) -> None:
    """Row 49, and the trace of k that the paper draws."""
    finished = simulated()
    mine = [event for event in finished.of_kind("threshold") if event["node"] == "left/server0"]
    first = mine[0]["loss"]
    assert [event["k"] for event in mine] == pytest.approx(
        [min(1.0, max(0.8 * event["loss"] / first, 0.2)) for event in mine]
    )
    assert mine[-1]["k"] < 0.5 * mine[0]["k"]
    sent = {
        event["round"]: event["sent"]
        for event in finished.of_kind("blocks")
        if (event["source"], event["key"]) == ("left/server0", 2)
    }
    assert sent[11] > 1.5 * sent[0]


def test_every_byte_is_in_a_transfer_event(simulated: Simulated) -> None:
    """What goes up is a model and the channels of its blocks, whichever way its parts take."""
    finished = simulated(*WAIT_FOR_ALL)
    blocks = sum(-(-size // 1024) for size in (64 * 256, 256, 256 * 256, 256, 256 * 10, 10))
    model = 4 * (64 * 256 + 256 + 256 * 256 + 256 + 256 * 10 + 10)
    moved: dict[int, int] = {}
    for event in finished.of_kind("transfer"):
        if event["source"] == "left/server0" and event["message"] in ("push", "block"):
            moved[event["round"]] = moved.get(event["round"], 0) + event["payload_bytes"]
    assert moved == dict.fromkeys(range(12), model + blocks)


def test_nothing_is_cut_inside_a_data_centre(simulated: Simulated) -> None:
    finished = simulated()
    assert not sum(event["sent"] for event in finished.of_kind("blocks") if event["source"] == "hub/server0")


def test_shapes_alone_will_do(tmp_path: Path) -> None:
    finished = run(tmp_path / "run", "simulate", "training.compute=modelled", "order.adaptive=false")
    assert sum(event["sent"] for event in finished.of_kind("blocks")) > 100


@for_each(
    ("override", "reason"),
    [
        ("codec.tier2=twobit", "a block of them has no magnitude"),
        ("sync=hfa", "set parameters to zero"),
        ("order.k_min=90 %", "k_min"),
        ("order.block=4098 bytes", "whole float32 elements"),
    ],
)
def test_what_does_not_go_together_is_refused_with_the_reason(override: str, reason: str) -> None:
    with pytest.raises(ScenarioError, match=reason):
        build_plan(load(SCENARIO, [override]))
