"""A user's script as a worker: the same bits in both worlds, paced steps, errors that name the script's line."""

from __future__ import annotations

import asyncio
import importlib
import random
import re
import sys
import threading
import time
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import Mock

import pytest
import torch

from testbed import api
from testbed.costs import USER_CODE
from testbed.engine.roles import make_role
from testbed.engine.script.exchange import ScriptExchange
from testbed.engine.script.modules import ScriptModules
from testbed.errors import RunFailed, ScenarioError
from testbed.kvstore import GeoOptimizer, KVStore, connect
from testbed.kvstore.optimizer import server_options
from testbed.kvstore.session import Alone
from testbed.plan.build import build_plan
from testbed.policy.sync import SYNC
from testbed.realtime.world import RealWorld
from testbed.scenario.load import load, loads
from testbed.training.learner import values_sha256
from testbed.world import Work
from tests.contract.tiny import WORKER
from tests.engine.runs import errors, run
from tests.faults.runs import execute
from tests.for_each import for_each
from tests.kvstore import scripts
from tests.realtime.in_process import InProcess

LOOP = """
import random, torch
from testbed.kvstore import GeoOptimizer, connect
store = connect()
model = torch.nn.Linear(4, 3)
optimizer = GeoOptimizer(torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.5), store)
for step in range(6):
    inputs = torch.randn(5, 4) + random.random()
    loss = (model(inputs) ** 2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def scenario(folder: Path, script: str) -> Path:
    return scripts.scenario(folder, script, rounds=6, evaluate_every=3)


def sockets(path: Path, *overrides: str, nodes: InProcess | None = None) -> dict[str, Any]:
    plan = build_plan(load(path, overrides), "local")
    return (nodes or InProcess())({node.name: make_role(plan, node) for node in plan.nodes}, plan)


# each with the rounds that the six steps of the loop make
SYNCS = [
    ("fsa", 6),
    ("{kind: hfa, k1: 2, k2: 1}", 3),
    ("{kind: diloco, h: 3}", 2),
    ("{kind: esync, fixed_steps: 2}", 3),
]


@pytest.mark.sample(2)  # of 8, which take 3 s
@pytest.mark.parametrize("paradigm", ["hips", "ps"])
@pytest.mark.parametrize(("sync", "rounds"), SYNCS)
def test_two_lines_make_a_loop_geo_distributed(sync: str, rounds: int, paradigm: str, tmp_path: Path) -> None:
    path = scenario(tmp_path / "a", LOOP)
    virtual = run(tmp_path / "run", f"sync={sync}", f"paradigm={paradigm}", scenario=path)
    workers = {name: values_sha256(values) for name, values in virtual.results.items() if "worker" in name}
    assert len(set(workers.values())) == 1
    assert {len(virtual.of_kind("round", name)) for name in workers} == {rounds}
    if paradigm == "hips":
        real = sockets(path, f"sync={sync}")
        assert {name: values_sha256(real[name]) for name in workers} == workers


@for_each(("weights", "mean"), [("party", (1 + (2 + 3) / 2) / 2), ("worker", (1 + 2 + 3) / 3)])
@for_each("sync", ["hfa, k1: 1, k2: 1", "diloco, h: 1, outer_learning_rate: 1, outer_momentum: 0"])
def test_models_are_averaged_by_weight(sync: str, weights: str, mean: float, tmp_path: Path) -> None:
    """Worker r moves from 0 to r + 1."""
    script = """
import torch
from testbed.kvstore import GeoOptimizer, connect
store = connect()
parameter = torch.nn.Parameter(torch.zeros(2))
optimizer = GeoOptimizer(torch.optim.SGD([parameter], lr=1.0), store)
parameter.grad = torch.full((2,), -1.0 - store.rank)
optimizer.step()
"""
    path = scenario(tmp_path / "a", script)
    chosen = (f"sync={{kind: {sync}, weights: {weights}}}", "training.rounds=1", "training.evaluate_every=1")
    results = run(tmp_path / "run", *chosen, scenario=path).results
    assert results["east/worker1"][0].tolist() == pytest.approx([mean, mean])


def test_synchronous_steps_are_those_of_one_process_with_the_mean_of_the_gradients(tmp_path: Path) -> None:
    script = LOOP.replace("torch.randn(5, 4) + random.random()", "torch.full((5, 4), 1.0 + store.rank)")
    path = scenario(tmp_path / "a", script + "\nassert store.num_workers == 3\n")
    values = run(tmp_path / "run", scenario=path).results["east/worker1"]
    first = run(tmp_path / "first", scenario=scenario(tmp_path / "b", script.replace("range(6)", "range(0)")))
    model = torch.nn.Linear(4, 3)
    for parameter, value in zip(model.parameters(), first.results["hub/worker0"], strict=True):
        parameter.data.copy_(value.view_as(parameter))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.5)
    for _ in range(6):
        optimizer.zero_grad()
        (sum((model(torch.full((5, 4), 1.0 + rank)) ** 2).mean() for rank in range(3)) / 3).backward()
        optimizer.step()
    expected = torch.cat([parameter.detach().reshape(-1) for parameter in model.parameters()])
    assert torch.allclose(torch.cat(values), expected, atol=1e-6)


# Of the workers 0, 1 and 2, of which the last two share a data centre, only worker 2 has a gradient: a step of all
# three is along a third of it, and a step of its data centre along a half.
SHARES = {
    "fsa": ("", 1 / 3),
    "bsp": ("", 1 / 3),
    "mixedsync": ("", 1 / 2),
    "tap": ("", 1),
    "ssp": (", staleness: 1", 1),
    "hfa": (", k1: 1, k2: 1, weights: worker", 1 / 3),
    "esync": (", fixed_steps: 1, weights: worker", 1 / 3),
    "diloco": (", h: 1, weights: worker, outer_learning_rate: 1, outer_momentum: 0", 1 / 3),
    "async_local_sgd": (", h: 1, dynamic: false, outer_learning_rate: 1, outer_momentum: 0, outer_buffer: 1", 1),
    "halos": (", h: 1, dynamic: false, local_learning_rate: 1, local_momentum: 0, local_buffer: 1", 1),
    "quorum": (", h: 1, outer_learning_rate: 1, outer_momentum: 0, quorum: 1", 1 / 2),
    "decoupled": (", h: 1, outer_learning_rate: 1, outer_momentum: 0, quorum: 1", 1 / 2),
}


@for_each(
    ("optimizes", "kind"),
    [*(("GeoOptimizer", kind) for kind in SHARES), ("set_optimizer", "fsa"), ("set_optimizer", "mixedsync")],
)
def test_a_step_is_along_the_mean_gradient_of_those_who_push_together(
    optimizes: str, kind: str, tmp_path: Path
) -> None:
    assert {each for each in SYNC if not SYNC[each].lags} == set(SHARES)
    options, share = SHARES[kind]
    script = """
import torch
from testbed.kvstore import GeoOptimizer, connect
store = connect()
gradient = torch.full((2,), -6.0 if store.rank == 2 else 0.0)
"""
    geo = """
parameter = torch.nn.Parameter(torch.zeros(2))
optimizer = GeoOptimizer(torch.optim.SGD([parameter], lr=1.0), store)
parameter.grad = gradient
optimizer.step()
"""
    by_hand = """
store.set_optimizer("sgd", learning_rate=1.0)
store.init("w", torch.zeros(2))
store.pushpull("w", gradient)
"""
    path = scenario(tmp_path / "a", script + (geo if optimizes == "GeoOptimizer" else by_hand))
    chosen = (f"sync={{kind: {kind}{options}}}", "training.rounds=1", "training.evaluate_every=1")
    results = run(tmp_path / "run", *chosen, scenario=path).results
    assert results["east/worker1"][0].tolist() == pytest.approx([6.0 * share] * 2)


@for_each("sync", ["mixedsync", "tap"])
def test_where_nobody_waits_for_all_the_optimizer_moves_to_the_servers(sync: str, tmp_path: Path) -> None:
    path, expected = scenario(tmp_path / "a", LOOP), 12 if sync == "mixedsync" else 18
    done = run(tmp_path / "run", f"sync={sync}", scenario=path)
    assert max(event["version"] for event in done.of_kind("update")) == expected
    nodes = InProcess()
    sockets(path, f"sync={sync}", nodes=nodes)
    assert max(event["version"] for event in nodes.events("hub/global0") if event["kind"] == "update") == expected


ADAPTED = """
import torch
from testbed.kvstore import GeoOptimizer, connect
store = connect()
torch.manual_seed(store.rank)
base = torch.nn.Linear(100, 100)
base.requires_grad_(False)
net = torch.nn.ModuleList([base, torch.nn.Linear(100, 4, bias=False), torch.nn.Linear(4, 100, bias=False)])
net.register_parameter("count", torch.nn.Parameter(torch.tensor([123456789 + store.rank]), requires_grad=False))
net.register_parameter("wide", torch.nn.Parameter(torch.tensor([1e39, 0.1], dtype=torch.float64), requires_grad=False))
trained = [parameter for parameter in net.parameters() if parameter.is_floating_point()]
optimizer = GeoOptimizer(torch.optim.AdamW(trained, lr=1e-3), store, model=net)
first = base.weight.clone()
for step in range(store.job.rounds):
    if step == UNFREEZE:
        base.bias.requires_grad_(True)
    optimizer.zero_grad()
    inputs = torch.randn(8, 100)
    (base(inputs) + net[2](net[1](inputs)) - inputs).square().mean().backward()
    optimizer.step()
assert net.count.item() == 123456789 and net.wide.tolist() == [1e39, 0.1]
assert torch.equal(base.weight, first) and base.bias.count_nonzero() == 100
"""


@pytest.mark.parametrize(
    "sync", ["fsa", "{kind: hfa, k1: 1, k2: 1}", "{kind: diloco, h: 1}", "mixedsync", "{kind: ssp, staleness: 1}"]
)
def test_frozen_parameters_do_not_travel_until_they_are_unfrozen(sync: str, tmp_path: Path) -> None:
    """Of 10 900 trained and frozen numbers 800 travel, and 100 more from the fourth step on."""
    path = scripts.scenario(tmp_path / "a", ADAPTED.replace("UNFREEZE", "3"), rounds=6)
    done = run(tmp_path / "run", f"sync={sync}", scenario=path)
    pushed = [each for each in done.of_kind("transfer") if each["message"] == "push" and "worker" in each["source"]]
    assert sum(each["payload_bytes"] for each in pushed) == 3 * 4 * (3 * 800 + 3 * 900)
    if sync in ("fsa", "{kind: hfa, k1: 1, k2: 1}"):
        workers = {name: values_sha256(values) for name, values in done.results.items() if "worker" in name}
        real = sockets(path, f"sync={sync}")
        assert {name: values_sha256(real[name]) for name in workers} == workers
        assert len(set(workers.values())) == 1


@for_each(
    "settings",
    [
        ("sync=fsa",),
        ("sync=tap",),
        ("sync=mixedsync", "overlay={tier1: tree, tier2: star}", "data_centers[east].workers=4"),
        ("sync={kind: hfa, k1: 1, k2: 1}", "overlay={tier1: tree, tier2: tree}"),
    ],
)
def test_frozen_parameters_stay_as_they_are_wherever_the_optimizer_runs(
    settings: tuple[str, ...], tmp_path: Path
) -> None:
    run(tmp_path / "run", *settings, scenario=scenario(tmp_path / "a", ADAPTED.replace("UNFREEZE", "3")))


COMPRESSED = LOOP.replace("optimizer = Geo", "store.set_compression('fp16')\noptimizer = Geo")


def test_a_script_may_choose_the_compression_as_the_scenario_does(tmp_path: Path) -> None:
    own, theirs = scenario(tmp_path / "own", COMPRESSED), scenario(tmp_path / "theirs", LOOP)
    says = run(tmp_path / "1", scenario=own)
    said = run(tmp_path / "2", "codec={tier1: none, tier2: fp16}", scenario=theirs)
    plain = run(tmp_path / "3", scenario=theirs)
    assert says.hashes() == said.hashes() != plain.hashes()
    moved = [
        sum(
            event["payload_bytes"]
            for event in each.of_kind("transfer")
            if event["tier"] == "wan" and event["round"] >= 0 and event["message"] in ("push", "value")
        )
        for each in (says, plain)
    ]
    assert 2 * moved[0] == moved[1] > 0
    assert values_sha256(sockets(own)["east/worker0"]) in says.hashes()


def test_compression_that_cannot_be_is_refused_with_the_reason(tmp_path: Path) -> None:
    def error(script: str, *overrides: str) -> str:
        folder = tmp_path / str(random.random())
        return errors(folder / "run", *overrides, scenario=scenario(folder, script)).get("hub/worker0", "")

    assert "the scenario says 'codec: twobit' already" in error(COMPRESSED, "codec={tier1: none, tier2: twobit}")
    assert "models travel, not gradients" in error(COMPRESSED, "sync={kind: hfa, k1: 1, k2: 1}")
    assert "'fq16' is not one of" in error(COMPRESSED.replace("fp16", "fq16"))
    sums = "write pull: sparse-sum"
    assert sums in error(COMPRESSED.replace("'fp16'", "'bisparse', ratio=0.5"))
    assert sums in error(LOOP, "codec={tier1: none, tier2: bisparse}")
    assert not error(LOOP, "codec={tier1: none, tier2: bisparse}", "sync=mixedsync")
    assert not error(COMPRESSED.replace("'fp16'", "'bisparse', ratio=0.5, pull='sparse-sum'"))


SLICES = "order={kind: p3, slice: 16 bytes, overlap: none}"  # the weight is of 48 bytes


@pytest.mark.sample(1)  # of 4, which take 3 s
@pytest.mark.parametrize("paradigm", ["hips", "ps"])
@pytest.mark.parametrize("order", ["order={kind: p3, overlap: none}", SLICES])
def test_slices_and_priorities_leave_the_bits_alone(order: str, paradigm: str, tmp_path: Path) -> None:
    path, overrides = scenario(tmp_path / "a", LOOP), (f"paradigm={paradigm}", order)
    plain, p3 = run(tmp_path / "1", overrides[0], scenario=path), run(tmp_path / "2", *overrides, scenario=path)
    pushes = [sum(event["message"] == "push" for event in each.of_kind("transfer")) for each in (plain, p3)]
    assert pushes[1] == (2 * pushes[0] if order == SLICES else pushes[0])  # two keys in four pieces
    expected = values_sha256(plain.results["east/worker1"])
    assert {values_sha256(p3.results[name]) for name in ("hub/worker0", "east/worker0")} == {expected}
    assert values_sha256(sockets(path, *overrides)["east/worker0"]) == expected


LARGE = """
import torch
from testbed.kvstore import connect
store = connect()
for key in ("early", "urgent"):
    store.init(key, torch.zeros(20_000))
for round_ in range(3):
    later = [store.push("early", torch.ones(20_000), priority=0), store.push("urgent", torch.ones(20_000), priority=9)]
    for handle in later:
        assert handle.wait().unique().tolist() == [3.0]
"""


@for_each("order", ["p3, slice: 4 KB, overlap: none", "fifo, slice: 4 KB"])
def test_a_scripts_own_priorities_hold_on_the_wan(order: str, tmp_path: Path) -> None:
    path = scenario(tmp_path / "a", LARGE)
    waits_at_the_sender = ("transport.unsent_limit=4 KiB", "topology.links[*].queue=16 KiB")
    order, rate = f"order={{kind: {order}}}", "topology.links[*].rate=2 Mbit/s"
    done = run(tmp_path / "run", order, rate, *waits_at_the_sender, scenario=path)
    keys = [
        event["key"]
        for event in done.of_kind("transfer", "hub/global0")
        if event["message"] == "push" and event["tier"] == "wan" and event["round"] == 1
    ]
    urgent, early = ([place for place, key in enumerate(keys) if (key >= 20) == is_urgent] for is_urgent in (1, 0))
    assert len(urgent) == len(early) == 20
    assert sum(urgent) < sum(early)


def test_p3_says_what_it_cannot_do_with_a_script(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match=r"a script computes its own steps.*overlap: none"):
        load(scenario(tmp_path, LOOP), ["order=p3"])


UNEQUAL = LOOP.replace("range(6)", "range(3 + 4 * store.rank)")  # 3, 7 and 11 steps


@pytest.mark.sample(1)  # of 6, which take 3 s
@pytest.mark.parametrize("paradigm", ["hips", "ps"])
@pytest.mark.parametrize("sync", ["tap", "{kind: ssp, staleness: 1}", "{kind: ssp, staleness: 0}"])
def test_where_nobody_waits_for_all_scripts_may_end_when_they_like(sync: str, paradigm: str, tmp_path: Path) -> None:
    """Who has ended is waited for no more; at staleness 0 below the WAN that cannot be, and is refused."""
    path, overrides = scenario(tmp_path / "a", UNEQUAL), (f"sync={sync}", f"paradigm={paradigm}")
    if sync == "{kind: ssp, staleness: 0}" and paradigm == "hips":
        with pytest.raises(ScenarioError, match="waiting in mid-round"):
            load(path, overrides)
        return
    done = run(tmp_path / "run", *overrides, scenario=path)
    assert max(event["version"] for event in done.of_kind("update")) == 3 + 7 + 11
    sockets(path, *overrides)


@for_each("world", ["virtual", "sockets"])
@for_each("sync", ["fsa", "mixedsync", "{kind: hfa, k1: 1, k2: 2}"])
def test_where_all_wait_for_all_a_script_that_ends_early_is_named(sync: str, world: str, tmp_path: Path) -> None:
    path = scenario(tmp_path / "a", UNEQUAL)
    waits_for = r"waits for (hub/server0|east/worker0), whose script has ended.*all workers must make the same number"
    if world == "sockets":
        with pytest.raises(RunFailed, match=waits_for):
            sockets(path, f"sync={sync}")
        return
    assert re.search(waits_for, " ".join(errors(tmp_path / "run", f"sync={sync}", scenario=path).values()))


MEETING = """
import torch
from testbed.kvstore import connect
store = connect()
store.init(0, torch.zeros(3))
for step in store.steps(50):
    store.pushpull(0, torch.ones(3))
store.barrier()
if store.rank == 0 and EARLY: store.barrier()
"""


def test_a_barrier_waits_for_slow_scripts_and_for_none_that_has_ended(tmp_path: Path) -> None:
    """Longer than nodes take to meet: where none waits for another, one may be minutes ahead."""
    slow = ("sync=tap", "device.step_time=1 s", "data_centers[east].device.speed=0.2")
    done = run(tmp_path / "slow", *slow, scenario=scenario(tmp_path / "a", MEETING.replace("EARLY", "False")))
    assert done.of_kind("final", "hub/worker0")[0]["t"] > 50 + done.plan.timeouts.rendezvous_s
    path = scenario(tmp_path / "b", MEETING.replace("EARLY", "True"))
    says = r"hub/worker0 waits in store\.barrier\(\) for east/worker\d, whose script has ended"
    assert re.search(says, errors(tmp_path / "run", scenario=path)["hub/scheduler"])


ONE_STORE = """
import torch
from testbed.kvstore import GeoOptimizer, connect
store, model = connect(), torch.nn.Linear(2, 2)
optimizer = GeoOptimizer(torch.optim.SGD(model.parameters(), lr=0.1))
SECOND
for step in store.steps(3, optimizer=optimizer):
    optimizer.zero_grad()
    (model(torch.randn(4, 2)) ** 2).mean().backward()
    optimizer.step()
    store.report(accuracy=0.5)
"""


def test_whoever_connects_has_the_scripts_one_store(tmp_path: Path) -> None:
    done = run(tmp_path / "run", scenario=scenario(tmp_path / "a", ONE_STORE.replace("SECOND", "")))
    assert [event["accuracy"] for event in done.of_kind("evaluate")] == [0.5] * 3
    second = "GeoOptimizer(torch.optim.SGD(torch.nn.Linear(3, 3).parameters(), lr=0.1))"
    path = scenario(tmp_path / "b", ONE_STORE.replace("SECOND", second))
    error = errors(tmp_path / "two", scenario=path)["hub/worker0"]
    assert "mine.py:6: ScenarioError: GeoOptimizer: the store already has keys" in error


def test_every_script_has_random_numbers_of_its_own_and_leaves_ours_alone(tmp_path: Path) -> None:
    torch.manual_seed(9)
    random.seed(9)
    before = (torch.rand(1).item(), random.random())
    torch.manual_seed(9)
    random.seed(9)
    threads = threading.active_count()
    run(tmp_path / "run", scenario=scenario(tmp_path / "a", LOOP))
    assert (torch.rand(1).item(), random.random()) == before
    assert threading.active_count() == threads


BESIDE = """
import pickle, torch, shelf.book, lies_beside
from testbed.kvstore import GeoOptimizer, connect
store = connect()
optimizer = GeoOptimizer(torch.optim.SGD(lies_beside.net.parameters(), lr=0.1), store)
for step in store.steps(3, optimizer=optimizer):
    lies_beside.seen.append(store.rank)
    shelf.book.pages += 1
    optimizer.zero_grad()
    (lies_beside.net(torch.randn(4, 2)) ** 2).mean().backward()
    optimizer.step()
import lies_beside as again
assert again.seen == [store.rank] * 3 and shelf.book.pages == 3
assert isinstance(pickle.loads(pickle.dumps(lies_beside.Thing())), again.Thing)
"""


def test_each_script_has_its_own_modules(tmp_path: Path) -> None:
    """What a module beside it keeps is not shared with the scripts of other workers, in whichever world."""
    path = scenario(tmp_path / "a", BESIDE)
    text = "import torch\nnet, seen = torch.nn.Linear(2, 2), []\nclass Thing: pass\n"
    path.with_name("lies_beside.py").write_text(text)
    path.with_name("shelf").mkdir()
    (path.parent / "shelf" / "book.py").write_text("pages = 0\n")
    before = set(sys.modules)
    done = run(tmp_path / "run", scenario=path)
    assert {"lies_beside", "shelf", "shelf.book"}.isdisjoint(sys.modules)
    assert len({event["parameters_sha256"] for event in done.of_kind("final") if event["role"] == "worker"}) == 1
    assert not {name for name in before if name not in sys.modules}


class Lazy(ModuleType):
    def __getattr__(self, name: str) -> object:
        raise ImportError(name)


def test_what_is_installed_below_a_scripts_folder_is_not_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the standard library is in a user's home. A module that makes its attributes when read is asked none."""
    mine = tmp_path / "of_the_script.py"
    mine.write_text("import colorsys\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "colorsys", raising=False)
    modules = ScriptModules(Path("/"))
    modules.put()
    importlib.import_module(mine.stem)
    monkeypatch.setitem(sys.modules, "lazy", Lazy("lazy"))
    modules.note()
    modules.take()
    assert mine.stem not in sys.modules and {"colorsys", "lazy"} <= set(sys.modules)


UNKNOWN = """
import torch
from testbed.kvstore import connect
from things import Thing
store = connect()
store.init(0, torch.zeros(3))
class Kept:
    def state_dict(self): return {"a": KIND()}
class Mine: pass
for step in store.steps(3, kept=Kept()):
    store.pushpull(0, torch.ones(3))
"""


@for_each("kind", ["Thing", "Mine"])
def test_a_state_that_cannot_be_kept_is_named_in_a_run(kind: str, tmp_path: Path) -> None:
    """The node asks for it between the turns of the script, when another's modules may be in place."""
    path = scenario(tmp_path / "a", UNKNOWN.replace("KIND", kind))
    path.with_name("things.py").write_text("class Thing: pass\n")
    plan = build_plan(load(path, ["checkpoint.every=1"]), "simulate")
    with pytest.raises(ScenarioError, match=rf"the state of 'kept' holds \w+\.{kind}, which a checkpoint cannot"):
        execute("simulate", plan, tmp_path)


def test_a_script_has_no_arguments_but_its_own(tmp_path: Path) -> None:
    """As ``python mine.py``: else a script that reads arguments would find those of the process that it runs in."""
    mine = f"import sys\nassert sys.argv == [__file__]\nsys.argv += ['--a']\n{LOOP}\nassert sys.argv[1:] == ['--a']\n"
    before = list(sys.argv)
    run(tmp_path / "run", scenario=scenario(tmp_path / "a", mine))
    assert sys.argv == before


def test_a_step_takes_what_the_device_takes(tmp_path: Path) -> None:
    done = run(tmp_path / "run", "data_centers[east].device.speed=0.1", scenario=scenario(tmp_path / "a", LOOP))
    assert 0.2 < done.round_s("hub/worker0") < 0.3
    steps = [event for event in done.of_kind("compute", "hub/worker0") if event["work"] == "step"]
    assert [event["modelled_s"] for event in steps] == [pytest.approx(0.02)] * 6


OWN_PUSHES = """
import torch
from testbed.kvstore import connect
store = connect()
store.init("a", torch.zeros(2))
store.init("b", torch.zeros(2))
for round_ in range(3):
    STEPS
    later = [store.push(key, torch.full((2,), store.weight)) for key in "ab"]
    [each.wait() for each in later]
"""


@for_each(
    ("sync", "steps", "counted"),
    [
        ("fsa", "pass", 1),
        ("{kind: hfa, k1: 5, k2: 1}", "pass", 5),
        ("{kind: hfa, k1: 5, k2: 2}", "store.step(); store.step()", 2),
        ("{kind: diloco, h: 4}", "pass", 4),
        ("{kind: esync, fixed_steps: 2}", "pass", 2),
    ],
)
def test_a_push_of_models_ends_the_local_steps_of_its_round(
    sync: str, steps: str, counted: int, tmp_path: Path
) -> None:
    """Of 20 ms each, unless the script reports its steps."""
    path = scripts.scenario(tmp_path / "a", OWN_PUSHES.replace("STEPS", steps), rounds=3)
    done = run(tmp_path / "run", f"sync={sync}", scenario=path)
    assert [event["steps"] for event in done.of_kind("round", "hub/worker0")] == [counted] * 3
    works = [event for event in done.of_kind("compute", "hub/worker0") if event["work"] == "step"]
    assert sum(event["modelled_s"] for event in works) == pytest.approx(3 * counted * 0.02)


PUSHES = """
import torch
from testbed.kvstore import connect
store = connect()
store.init("a", torch.full((2, 2), 7.0 + store.rank))
store.init("b", torch.zeros(3))
assert store.pull("a").tolist() == [[7, 7], [7, 7]]
for round_ in range(6):
    late = store.push("b", torch.full((3,), 10.0 ** store.rank), priority=1)
    assert store.pushpull("a", torch.ones(2, 2)).tolist() == [[3, 3], [3, 3]]
    assert late.wait().tolist() == [111.0] * 3
    store.barrier()
assert store.pull("b").tolist() == [111.0] * 3
store.push("b", torch.full((3,), 2 * 10.0 ** store.rank))
assert store.pull("b").tolist() == [222.0] * 3  # waits for the push before it
"""


ROUNDS = """
import torch
from testbed.kvstore import connect
store = connect()
for key in "abc":
    store.init(key, torch.zeros(3))
for step in store.steps(6):
    LOOP
    store.report(loss=0.5)
"""
LOOPS = {
    "a key is never pushed": '[store.push(key, torch.ones(3)) for key in "ab"]; [store.pull(key) for key in "ab"]',
    "a key is never pulled": '[store.push(key, torch.ones(3)) for key in "abc"]; [store.pull(key) for key in "ab"]',
    "the last key first": '[store.push(key, torch.ones(3)) for key in "cba"]; [store.pull(key) for key in "cba"]',
    "one by one": '[store.pushpull(key, torch.ones(3)) for key in "cab"]',
    "a round later": """new = [store.push(key, torch.ones(3)) for key in "abc"]
    [handle.wait() for handle in (old if step else ())]; old = new
    if step == 5: [handle.wait() for handle in new]""",
    "two in one": '[store.push(key, torch.ones(3)) for key in "aabb"]; [store.pull(key) for key in "ab"]',
}


@for_each("loop", LOOPS)
def test_a_scripts_rounds_are_counted_in_whichever_order_it_takes_which_keys(loop: str, tmp_path: Path) -> None:
    done = run(tmp_path / "run", scenario=scenario(tmp_path / "a", ROUNDS.replace("LOOP", LOOPS[loop])))
    rounds = done.of_kind("round", "hub/worker0")
    assert [event["round"] for event in rounds] == list(range(12 if loop == "two in one" else 6))
    assert all(earlier["t"] <= later["t0"] + 1e-6 for earlier, later in pairwise(rounds))
    if "never" in loop:
        assert min(event["t"] - event["t0"] for event in rounds) > 0.02, "a round has its step"
    if "first" in loop or "one by one" in loop:
        last = max(event["t"] for event in done.of_kind("update") if event["round"] == 0)
        assert rounds[0]["t"] > last, "the round ends with the last of its keys"
    scores = done.of_kind("evaluate")
    assert [(event["loss"], event.get("accuracy")) for event in scores] == [(0.5, None)] * 6


def test_without_an_optimizer_a_pull_is_the_sum_of_what_was_pushed(tmp_path: Path) -> None:
    """Row 13 of GeoMX' observable behaviours, with keys by name, handles and barriers; in both worlds."""
    path = scenario(tmp_path / "a", PUSHES)
    run(tmp_path / "run", scenario=path)
    sockets(path)


@for_each("kind", ["virtual", "sockets"])
def test_an_error_names_the_scripts_line(kind: str, tmp_path: Path) -> None:
    path = scenario(tmp_path / "a", LOOP.replace("    loss.backward()", "    raise ValueError('what now')"))
    message = r"worker\d: mine.py:11: ValueError: what now"
    if kind == "sockets":
        with pytest.raises(RunFailed, match=message):
            sockets(path)
        return
    assert "what now" in errors(tmp_path / "run", scenario=path)["hub/worker0"]


def test_alone_a_script_is_one_worker_of_one() -> None:
    model = torch.nn.Linear(2, 1)
    same = torch.nn.Linear(2, 1)
    same.load_state_dict(model.state_dict())
    ours, plain = GeoOptimizer(torch.optim.Adam(model.parameters())), torch.optim.Adam(same.parameters())
    for optimizer, net in ((ours, model), (plain, same)):
        for _ in range(3):
            optimizer.zero_grad()
            net(torch.ones(1, 2)).sum().backward()
            optimizer.step()
    assert torch.equal(model.weight, same.weight)


@for_each(
    ("call", "kind", "options", "problem"),
    [
        ("set_compression", "twobit", {"threshold": -0.5}, "threshold: -0.5 is not above 0 and at most 1e+30"),
        ("set_compression", "twobit", {"threshold": 0}, "threshold: 0 is not above 0"),
        ("set_compression", "bisparse", {"ratio": 5}, "ratio: 5 is not above 0 and at most 0.5"),
        ("set_compression", "bisparse", {"ratio": float("nan")}, "ratio: nan is not above 0"),
        ("set_compression", "topk", {"pull": "sparse_sum"}, "pull: 'sparse_sum' is not one of 'difference', 'spar"),
        ("set_compression", "topk", {"bound": -3}, "bound: -3 is not at least 2"),
        ("set_compression", "topk", {"bound": 3.5}, "bound: 3.5 is not a whole number"),
        ("set_compression", "topk", {"padded": 1}, "padded: 1 is neither True nor False"),
        ("set_optimizer", "sgd", {"learning_rate": "0.1"}, "learning_rate: '0.1' is not a number"),
        ("set_optimizer", "sgd", {"schedule": "cosin"}, "schedule: 'cosin' is not one of 'constant', 'step'"),
        ("set_optimizer", "sgd", {"nesterov": True}, "nesterov: has no effect without momentum; write momentum: 0.9"),
        ("set_optimizer", "sgd", {"beta1": 0.5}, "unexpected keyword argument 'beta1'"),
    ],
)
def test_options_that_no_scenario_could_have_are_refused(
    call: str, kind: str, options: dict[str, Any], problem: str
) -> None:
    with pytest.raises(ScenarioError, match=re.escape(f"{call}('{kind}'): ") + ".*" + re.escape(problem)):
        getattr(connect(), call)(kind, **options)


def test_a_rate_that_is_a_tensor_travels_as_a_number() -> None:
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=torch.tensor(0.5))
    assert server_options(optimizer)[1]["learning_rate"] == 0.5


def test_misuse_is_explained() -> None:
    store: KVStore = connect()
    store.init("a", torch.zeros(2))
    with pytest.raises(ScenarioError, match="was called twice"):
        store.init("a", torch.zeros(2))
    with pytest.raises(ScenarioError, match="'b' is not known"):
        store.push("b", torch.zeros(2))
    with pytest.raises(ScenarioError, match="3 elements, declared with 2"):
        store.push("a", torch.zeros(3))
    with pytest.raises(ScenarioError, match="comes after the first push"):
        store.init("c", torch.zeros(1))
    with pytest.raises(ScenarioError, match="is not one of"):
        connect().set_optimizer("sdg")


def test_what_has_no_effect_beside_a_script_is_refused(tmp_path: Path) -> None:
    path = scenario(tmp_path, LOOP)
    with pytest.raises(ScenarioError, match="has no effect beside 'workload'"):
        load(path, ["training.batch=3"])
    with pytest.raises(ScenarioError, match=r"other\.py: no such file"):
        load(path, ["workload.script=other.py"])
    with pytest.raises(ScenarioError, match="lies outside"):
        load(path, ["workload.script=../mine.py"])


@for_each(
    ("torchs", "setting"),
    [
        ("torch.optim.Adam(model.parameters(), amsgrad=True)", "amsgrad"),
        ("torch.optim.SGD(model.parameters(), lr=0.1, maximize=True)", "maximize"),
        ("torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, dampening=0.5)", "dampening"),
    ],
)
def test_what_the_servers_optimizers_do_not_know_is_not_left_out_silently(
    torchs: str, setting: str, tmp_path: Path
) -> None:
    own = "torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.5)"
    path = scenario(tmp_path / "a", LOOP.replace(own, torchs))
    assert f"do not know {setting}" in errors(tmp_path / "run", "sync=tap", scenario=path)["hub/worker0"]
    run(tmp_path / "fsa", scenario=path)


def test_a_parameter_without_elements_is_nobodys_business(tmp_path: Path) -> None:
    """Torch has such parameters (``nn.Linear(0, 3)``); with the store's own calls they are refused."""
    odd = LOOP.replace("optimizer = Geo", "model.nothing = torch.nn.Parameter(torch.zeros(0, 3))\noptimizer = Geo")
    virtual = run(tmp_path / "1", scenario=scenario(tmp_path / "a", odd))
    plain = run(tmp_path / "2", scenario=scenario(tmp_path / "b", LOOP))
    assert virtual.hashes() == plain.hashes()
    store = KVStore(Alone())
    with pytest.raises(ScenarioError, match="a tensor without elements"):
        store.init("empty", torch.zeros(0, 3))


@for_each("waits", [False, True])
def test_what_is_untimed_begins_no_step_in_the_future(waits: bool) -> None:
    """A block within a step of 1 s takes 3 s, with another block in it, and with a wait that begins the step anew."""
    worker, world = ScriptExchange.__new__(ScriptExchange), Mock()
    worker._world, worker._began_s, worker._untimed = world, 0.0, 0

    async def block() -> None:
        world.now.return_value = 1.0
        await worker.untimed(True)
        world.now.return_value = 2.0
        await worker.untimed(True)
        if waits:
            worker._began_s = world.now()
        world.now.return_value = 3.0
        await worker.untimed(False)
        world.now.return_value = 4.0
        await worker.untimed(False)

    asyncio.run(block())
    assert worker._began_s == (4.0 if waits else 3.0)


def test_a_node_reads_messages_while_a_script_that_joins_waits_for_the_end_of_a_turn() -> None:
    turn = threading.Lock()  # that a script has while it computes

    def compute() -> None:
        with turn:
            time.sleep(0.6)

    async def program(world: RealWorld) -> float:
        worker = ScriptExchange.__new__(ScriptExchange)
        worker._world, worker.rounds, worker._thread = world, 0, Mock(in_place=lambda: turn)
        worker._get_objects = worker._get_optimizer = worker._get_parameters = None
        world.spawn(world.compute(Work(USER_CODE), compute), "a turn")
        await world.sleep(0.1)
        asked_s, asked = world.now(), world.spawn(worker._provide(), "a state")
        await world.sleep(0.01)
        slept_s = world.now() - asked_s
        assert await world.wait(asked, "the state") == {}
        return slept_s

    assert InProcess()({WORKER: program})[WORKER] < 0.3


def test_a_resolved_scenario_names_its_script_wherever_it_lies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = load(scenario(tmp_path / "a", LOOP), allow_code=True)
    text = read.to_yaml()
    assert loads(text) == read and build_plan(loads(text)) == build_plan(read)
    assert "optimizer" not in text and "batch" not in text
    assert api.load(read, {"seed": 4}).seed == 4
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "again.yaml").write_text(text)
    with pytest.raises(ScenarioError, match=r"workload\.script: .* is an absolute path.*--allow-code"):
        load(tmp_path / "b" / "again.yaml")
    monkeypatch.chdir(tmp_path)
    assert load(tmp_path / "b" / "again.yaml") == read


@for_each("sync", ["{tier1: fsa, tier2: mixedsync}", "tap"])
def test_a_script_reports_the_final_model_where_others_train_on(sync: str, tmp_path: Path) -> None:
    """The first worker is the fastest: when it has made its last step, the others have made a few."""
    told = "\noptimizer.finish()\nstore.report(accuracy=float(torch.sigmoid(model.weight.sum())))\n"
    slow = "data_centers[east].device.speed=0.2"
    ended = run(tmp_path, f"sync={sync}", slow, scenario=scenario(tmp_path, LOOP.replace(", momentum=0.5", "") + told))
    (score,) = ended.of_kind("evaluate")
    assert score["snapshot_t"] > max(update["t"] for update in ended.of_kind("update"))
    weight = ended.results["hub/global0"][0]
    assert score["accuracy"] == pytest.approx(float(torch.sigmoid(weight.sum())), abs=1e-6)
