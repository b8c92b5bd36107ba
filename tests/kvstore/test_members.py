"""Scripts in runs that go on without lost nodes: the others train on, and one that starts again joins them."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.errors import TestbedError
from testbed.plan.build import build_plan
from testbed.results.events import read
from testbed.scenario.load import load
from tests.engine.checkpoint.killed import Event, resumed_at, run_until, story
from tests.faults.runs import CONTINUE, execute, faults
from tests.for_each import for_each
from tests.kvstore import scripts

ROUNDS = 12
KILLED = "kind: kill, node: east/worker1, round: 3"
RETURNS = f"{KILLED}, for: 100 ms"
LOOP = """
import sys, torch
from testbed.kvstore import GeoOptimizer, connect
store = connect()
torch.manual_seed(store.rank)
model = torch.nn.Linear(4, 3)
optimizer = GeoOptimizer(torch.optim.Adam(model.parameters(), lr=0.1), store)
scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
with open(f"{__file__}.{store.rank}", "a") as file:
    for step in store.steps(12, model=model, optimizer=optimizer, scheduler=scheduler):
        print(store.first_round, step, optimizer.param_groups[0]["lr"], file=file, flush=True)
        optimizer.zero_grad()
        model(torch.randn(5, 4)).square().mean().backward()
        optimizer.step()
        scheduler.step()
"""
BARE = """
import torch
from testbed.kvstore import GeoOptimizer, connect
store = connect()
torch.manual_seed(store.rank)
model = torch.nn.Linear(4, 3)
optimizer = GeoOptimizer(torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), store)
for step in range(store.first_round, 12):
    optimizer.zero_grad()
    model(torch.randn(5, 4)).square().mean().backward()
    optimizer.step()
"""
KEYS = """
import torch
from testbed.kvstore import connect
store = connect()
store.init(0, torch.ones(300))
store.set_optimizer("adam", learning_rate=0.1)
for step in store.steps(12):
    store.pushpull(0, torch.randn(300))
    if step % 4 == 3:
        store.barrier()
"""
GEOMX = """
import torch
from testbed.kvstore import create
store = create("dist_sync")
torch.manual_seed(store.rank)
store.init(0, torch.ones(30))
store.init(1, torch.ones(4))
store.set_optimizer("adam", learning_rate=0.1)
for step in range(store.first_round, 12):
    for key, size in ((0, 30), (1, 4)):
        store.push(key, torch.randn(size))
    values = [store.pull(key) for key in (0, 1)]
"""
SCRIPTS: dict[str, tuple[str, tuple[str, ...]]] = {
    "optimizer at workers": (LOOP, ()),
    "without the loop": (BARE, ()),
    "optimizer at servers": (KEYS, ()),
    "as in GeoMX": (GEOMX, ()),
    "asynchronous": (KEYS, ("sync=mixedsync",)),
    "bounded": (KEYS, ("paradigm=ps", "sync={kind: ssp, staleness: 1}")),
    "local steps": (LOOP, ("sync={kind: hfa, k1: 2, k2: 1}",)),
    "relays": (LOOP, ("overlay={kind: tsengine, ports: 1}",)),
}


def ended(folder: Path, script: str, *texts: str, on: str = "simulate") -> list[Event]:
    """The events of a run, which must end well. By flows: what happens while a node is away follows from times."""
    path = scripts.scenario(folder / "script", script, rounds=ROUNDS)
    network = ["simulation.network=flows"] if on == "simulate" else []
    plan = build_plan(load(path, (CONTINUE, *network, *texts)), on)
    (folder / "run").mkdir()
    execute(on, plan, folder / "run")
    return list(read(folder / "run" / "events"))


COMPRESSED = """
import torch
from testbed.kvstore import connect
store = connect()
store.init(0, torch.ones(300))
store.set_optimizer("adam", learning_rate=0.1)
store.set_compression("fp16")
for step in range(12):
    store.pushpull(0, torch.randn(300))
"""


@for_each(("paradigm", "round_"), [("hips", 3), ("ps", 0)])
def test_a_replica_takes_over_with_the_codec_that_the_script_has_chosen(
    paradigm: str, round_: int, tmp_path: Path
) -> None:
    texts = (f"paradigm={paradigm}", "recovery.replicas=1")
    calm = ended(tmp_path / "calm", COMPRESSED, *texts)
    kill = faults(f"kind: kill, node: hub/global0, round: {round_}")
    assert hashes(ended(tmp_path / "hit", COMPRESSED, *texts, kill)) == hashes(calm)


@for_each("paradigm", ["hips", "ps"])
def test_a_codec_with_memory_is_refused_where_there_is_a_replica(paradigm: str, tmp_path: Path) -> None:
    script = COMPRESSED.replace('"fp16"', '"topk"')
    with pytest.raises(TestbedError, match=r"set_compression\('topk'\): a replica .* choose none or fp16"):
        ended(tmp_path, script, f"paradigm={paradigm}", "recovery.replicas=1")


def rounds(events: list[Event], node: str) -> list[int]:
    return [event["round"] for event in events if event["kind"] == "round" and event["node"] == node]


def hashes(events: list[Event]) -> set[str]:
    """Of what the workers hold at the end."""
    return {event["parameters_sha256"] for event in events if event["kind"] == "final" and "/worker" in event["node"]}


ALONE = ("optimizer at workers", "bounded")  # the others are slow: 1 s each


@pytest.mark.parametrize(
    "name", [each if each in ALONE else pytest.param(each, marks=pytest.mark.slow) for each in SCRIPTS]
)
def test_the_others_go_on(name: str, tmp_path: Path) -> None:
    script, texts = SCRIPTS[name]
    events = ended(tmp_path, script, *texts, faults(KILLED))
    steps = 2 if name == "local steps" else 1
    assert rounds(events, "hub/worker0") == rounds(events, "east/worker0") == list(range(ROUNDS // steps))
    assert len(rounds(events, "east/worker1")) < ROUNDS


@pytest.mark.sample(2, "as in GeoMX")  # of 8, which take 3 s
@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_that_starts_again_joins(name: str, tmp_path: Path) -> None:
    script, texts = SCRIPTS[name]
    returns = RETURNS.replace("round: 3", "round: 1") if name == "local steps" else RETURNS
    events = ended(tmp_path, script, *texts, faults(returns))
    found, last = rounds(events, "east/worker1"), ROUNDS // (2 if name == "local steps" else 1) - 1
    assert found == sorted(set(found)) and found[-1] == last and len(found) > 1
    if name in ("optimizer at workers", "without the loop", "optimizer at servers", "as in GeoMX", "relays"):
        assert len(hashes(events)) == 1


BARRIERS = [  # algorithm, the round in which the worker is lost, and for how long
    (("paradigm=ps", "sync={kind: ssp, staleness: 1}"), 3, "100 ms"),  # the others wait in a barrier while it starts
    (("sync=mixedsync",), 3, "160 ms"),  # they come to the next barrier while it starts
    ((), 4, "230 ms"),  # they have left the last barrier, and not yet ended, when it is back
]


@for_each(("texts", "round_", "away"), BARRIERS)
def test_who_joins_meets_the_others_at_barriers(texts: tuple[str, ...], round_: int, away: str, tmp_path: Path) -> None:
    kill = f"kind: kill, node: east/worker1, round: {round_}, for: {away}"
    events = ended(tmp_path, KEYS + "store.finish()\n", *texts, faults(kill))
    assert [event["begins"] for event in events if event["kind"] == "epoch"] == [False, True]
    assert rounds(events, "hub/worker0") == list(range(ROUNDS))


@pytest.mark.slow  # 30 s
@pytest.mark.parametrize("texts", [(), ("sync=mixedsync",), ("paradigm=ps", "sync={kind: ssp, staleness: 1}")])
def test_who_joins_at_any_time_meets_the_others_at_barriers(texts: tuple[str, ...], tmp_path: Path) -> None:
    for round_ in range(1, 8):
        for away_ms in (10, 45, 100, 160, 230, 320, 450):
            kill = f"kind: kill, node: east/worker1, round: {round_}, for: {away_ms} ms"
            (folder := tmp_path / f"{round_}-{away_ms}").mkdir()
            assert ended(folder, KEYS + "store.finish()\n", *texts, faults(kill))


def test_its_loop_begins_with_the_round_it_joins(tmp_path: Path) -> None:
    """With the objects of the others as they are after the round before."""
    ended(tmp_path, LOOP, faults(RETURNS))
    lines = [line.split() for line in (tmp_path / "script" / "mine.py.2").read_text().splitlines()]
    joined = [(int(first), int(step), float(rate)) for first, step, rate in lines if first != "0"]
    assert joined[0][0] == joined[0][1] > 3, "the first step is that of the round it joins"
    assert [step for _, step, _ in joined] == list(range(joined[0][1], ROUNDS))
    assert joined[0][2] == pytest.approx(0.1 * 0.9 ** joined[0][1]), "the scheduler is as far"


@pytest.mark.sample(1)  # of 3, which take 4 s
@pytest.mark.parametrize("name", ["optimizer at workers", "optimizer at servers", "asynchronous"])
def test_checkpoints_of_scripts_hold_who_took_part(name: str, tmp_path: Path) -> None:
    script, texts = SCRIPTS[name]
    path = scripts.scenario(tmp_path / "script", script, rounds=ROUNDS)
    plan = build_plan(load(path, (CONTINUE, "checkpoint.every=2", *texts, faults(RETURNS))), "simulate")
    whole = run_until(plan, tmp_path / "whole")
    times = [event["t"] for event in whole if event["kind"] == "round"]
    run_until(plan, tmp_path / "killed", times[-4])
    since_s = resumed_at(tmp_path / "killed", plan)
    assert since_s > times[3]
    assert str(story(run_until(plan, tmp_path / "killed"), since_s)) == str(story(whole, since_s)) != "[]"


@pytest.mark.slow  # 12 s
def test_real_processes_join_too(tmp_path: Path) -> None:
    steps = 80  # a new process takes a second
    script = LOOP.replace("steps(12", f"steps({steps}")
    events = ended(tmp_path, script, faults(f"{KILLED}, for: 100 ms"), on="local")
    assert rounds(events, "hub/worker0") == list(range(steps))
    assert rounds(events, "east/worker1")[-1] == steps - 1
    assert len(hashes(events)) == 1
