"""GeoMX's names: the table of docs/coming_from_geomx.md, row by row."""

from __future__ import annotations

import re
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest
import torch

from testbed.errors import ScenarioError
from testbed.kvstore import KVStore, ScriptJob, create
from testbed.kvstore.geomx import GeoMXStore
from testbed.kvstore.session import Alone
from tests.engine.runs import Simulated, errors, run
from tests.for_each import for_each
from tests.kvstore import scripts


def scenario(folder: Path, script: str) -> Path:
    return scripts.scenario(folder, "import torch\nfrom testbed.kvstore import create\n" + script)


def done(tmp_path: Path, script: str, *overrides: str) -> Simulated:
    return run(tmp_path / "run", *overrides, scenario=scenario(tmp_path / "a", script))


def refusal(tmp_path: Path, script: str, *overrides: str) -> str:
    return errors(tmp_path / "run", *overrides, scenario=scenario(tmp_path / "a", script))["hub/worker0"]


def alone(name: str = "dist_sync", **job: Any) -> GeoMXStore:
    session = Alone()
    session.job = ScriptJob(**job)
    return GeoMXStore(KVStore(session), name)


def test_ranks_and_numbers_are_of_the_data_centre_and_of_all(tmp_path: Path) -> None:
    script = """
kv = create("dist_sync")
assert kv.type == "dist_sync"
place = (kv.rank, kv.num_workers, kv.rank_of_all, kv.num_all_workers, kv.is_master_worker)
expected = {0: (0, 1, 0, 3, True), 1: (0, 2, 1, 3, False), 2: (1, 2, 2, 3, False)}
assert place == expected[kv.store.rank], place
kv.init("x", torch.full((1,), float(kv.rank_of_all)))
assert kv.pull("x").item() == 0, "the master worker's"
"""
    done(tmp_path, script)


RANKS: list[tuple[str, str]] = [
    ("rank num_all_workers", "used twice, and others never; .*kv.rank_of_all"),
    ("rank num_workers", "divides or seeds is the same in every data centre"),
    ("rank", "counts the 2 of its data centre, .* counts all 4"),
    ("rank_of_all num_workers", "parts of data that are divided by these overlap"),
    ("store.rank num_workers", "parts of data that are divided by these overlap"),
    ("rank_of_all num_all_workers rank num_workers", ""),
    ("store.rank store.num_workers", ""),
    ("is_master_worker num_all_workers", ""),
]


@for_each(("asked", "note"), RANKS)
def test_ranks_that_do_not_go_with_a_number_of_workers_are_noted(asked: str, note: str) -> None:
    kv = alone(workers=4, site_workers=2, rank=2)
    for each in asked.split():
        attrgetter(each)(kv)
    assert re.search(note or "^$", kv.store.mixed_up_ranks())


@for_each("name", ["dist_sync", "dist_sync_device", "dist_device_sync", "dist_sync_tree", "dist"])
def test_synchronous_names(name: str, tmp_path: Path) -> None:
    assert create(name).type == name
    script = f'kv = create("{name}"); kv.init(0, torch.zeros(1)); kv.push(0, torch.ones(1)); assert kv.pull(0) == 3'
    done(tmp_path, script, "training.rounds=1", "training.evaluate_every=1")
    assert "do not wait for each other; write create('dist_async')" in refusal(tmp_path, script, "sync=mixedsync")


def test_asynchronous_names(tmp_path: Path) -> None:
    script = """
kv = create("dist_async")
kv.set_optimizer("sgd", learning_rate=1.0)
kv.init(0, torch.zeros(1))
for step in range(4):
    kv.push(0, -torch.ones(1))
    kv.pull(0)
"""
    finished = done(tmp_path, script, "sync=mixedsync")
    assert max(event["version"] for event in finished.of_kind("update")) == 8, "each data centre's sums by themselves"
    (tmp_path / "two").mkdir()
    assert "wait for each other; write create('dist_sync')" in refusal(tmp_path / "two", script)


LISTS = """
kv = create("dist_sync")
kv.init(["a", "b"], [torch.zeros(2, 2), torch.zeros(3)])
out = [torch.empty(2, 2), torch.empty(3)]
for step in range(4):
    kv.push(["a", "b"], [torch.ones(2, 2), 2 * torch.ones(3)], priority=-step)
    kv.pull(["a", "b"], out=out)
    assert [each.unique().tolist() for each in out] == [[3.0], [6.0]]
kv.push("a", [torch.ones(2, 2), torch.ones(2, 2)])  # of two devices
assert kv.pull("a").unique().item() == 6
assert kv.pushpull("b", torch.ones(3)).unique().item() == 3
kv.barrier()
"""


def test_keys_and_values_may_be_lists(tmp_path: Path) -> None:
    done(tmp_path, LISTS)


OPTIMIZER = """
kv = create("dist_sync")
kv.set_optimizer(torch.optim.Adam([torch.zeros(1, requires_grad=True)], lr=0.1))
kv.init("w", torch.tensor([1.0, 2.0]))
w = torch.empty(2)
kv.pull("w", out=w)
assert w.tolist() == [1, 2]
for step in range(4):
    kv.push("w", torch.ones(2) * (kv.rank_of_all + step))
    kv.pull("w", out=w)
"""


def test_the_optimizer_sees_the_sum_over_all_workers(tmp_path: Path) -> None:
    values = done(tmp_path, OPTIMIZER).results
    expected = torch.tensor([1.0, 2.0], requires_grad=True)
    optimizer = torch.optim.Adam([expected], lr=0.1)
    for step in range(4):
        expected.grad = torch.ones(2) * (0 + 1 + 2 + 3 * step)
        optimizer.step()
    for node in ("hub/worker0", "east/worker0", "east/worker1"):
        assert torch.equal(values[node][0], expected.detach())


def test_the_optimizers_state_is_saved_and_loaded(tmp_path: Path) -> None:
    script = (
        OPTIMIZER
        + f"""
kv.save_optimizer_states(f"{tmp_path}/{{kv.rank_of_all}}")
for step in range(2):
    w = kv.pushpull("w", torch.ones(2))
torch.save(w, f"{tmp_path}/whole")
"""
    )
    again = f"""
kv = create("dist_sync")
kv.set_optimizer("adam", learning_rate=0.1)
kv.init("w", torch.zeros(2))
kv.load_optimizer_states(f"{tmp_path}/{{kv.rank_of_all}}")
for step in range(2):
    w = kv.pushpull("w", torch.ones(2))
assert torch.equal(w, torch.load("{tmp_path}/whole")), w
"""
    done(tmp_path, script)
    (tmp_path / "again").mkdir()
    done(tmp_path / "again", again)


@for_each(("kind", "codec"), [("2bit", "twobit"), ("bsc", "{kind: bisparse, pull: sparse-sum}")])
def test_compression_is_that_of_the_scenario(kind: str, codec: str, tmp_path: Path) -> None:
    script = """
kv = create("dist_sync")
COMPRESSION
kv.init(0, torch.zeros(4000))
for step in range(4):
    kv.push(0, torch.linspace(-1, 1, 4000) * (1 + kv.rank_of_all))
    total = kv.pull(0)
"""
    threshold = 0.5 if kind == "2bit" else 0.01
    call = f'kv.set_gradient_compression({{"type": "{kind}", "threshold": {threshold}}})'
    for name in ("own", "theirs"):
        (tmp_path / name).mkdir()
    own = done(tmp_path / "own", script.replace("COMPRESSION", call))
    theirs = done(tmp_path / "theirs", script.replace("COMPRESSION", ""), f"codec={{tier1: none, tier2: {codec}}}")
    assert own.hashes() == theirs.hashes()
    assert torch.equal(own.results["east/worker1"][0], theirs.results["east/worker1"][0])
    sizes = [
        sum(
            event["payload_bytes"]
            for event in each.of_kind("transfer")
            if event["message"] == "push" and event["tier"] == "wan"
        )
        for each in (own, theirs)
    ]
    assert sizes[0] == sizes[1] < 4 * 4000 * 4


def test_what_contradicts_the_scenario_is_refused(tmp_path: Path) -> None:
    compressed = 'kv = create("dist_sync"); kv.set_gradient_compression({"type": "2bit"})'
    assert "the scenario says 'codec: fp16' already" in refusal(
        tmp_path, compressed, "codec={tier1: none, tier2: fp16}"
    )
    for wrong in ({"type": "4bit"}, {"type": "2bit", "ratio": 1}, {}):
        with pytest.raises(ScenarioError, match="one of 2bit, bsc as the type"):
            alone().set_gradient_compression(wrong)
    with pytest.raises(ScenarioError, match=r"models travel, not gradients.*push weight \* model"):
        alone(contribution="model", sync="hfa").set_optimizer("sgd")
    with pytest.raises(ScenarioError, match=r"^set_optimizer: 'sdg' is not one of"):
        alone().set_optimizer("sdg")
    with pytest.raises(ScenarioError, match=r"^set_optimizer\('sgd'\): .*'rate'"):
        alone().set_optimizer("sgd", rate=1.0)
    with pytest.raises(ScenarioError, match="2 keys take as many tensors"):
        alone().init([0, 1], torch.zeros(2))


MODELS = """
kv = create("dist_sync")
first = torch.tensor([1.0, 2.0])
kv.init("w", first)
w = torch.empty(2)
kv.pull("w", out=w)
for step in range(4):
    before = w.clone()
    TRAIN
    kv.push("w", WHAT)
    kv.pull("w", out=w)
    assert torch.allclose(w, before + GROWTH), (w, before)
"""
DILOCO = "sync={kind: diloco, h: 3, outer_learning_rate: 1, outer_momentum: 0}"
CHANGES = [
    ("sync={kind: hfa, k1: 3, k2: 1}", "kv.weight * w"),
    ("sync={kind: hfa, k1: 3, k2: 1, weights: worker}", "kv.weight * w"),
    ("sync={kind: esync, fixed_steps: 3}", "kv.weight * (before - w)"),
    (DILOCO, "kv.weight * (before - w)"),
]


@for_each(("sync", "what"), CHANGES)
def test_models_are_pushed_by_their_weight_and_changes_before_minus_after(sync: str, what: str, tmp_path: Path) -> None:
    """Every worker adds 2 to its model: so does the mean."""
    script = MODELS.replace("WHAT", what).replace("TRAIN", "w += 2").replace("GROWTH", "2")
    done(tmp_path, script, sync)


@for_each("sync", [sync for sync, _ in CHANGES[1:]])
@for_each(("train", "what"), [("w += 2", "w"), ("w += 2", "w.data"), ("", "w.clone()"), ("", "[w.clone()]")])
def test_a_model_that_is_pushed_as_it_is_is_refused(sync: str, train: str, what: str, tmp_path: Path) -> None:
    script = MODELS.replace("WHAT", what).replace("TRAIN", train).replace("GROWTH", "0")
    error = refusal(tmp_path, script, sync)
    assert "push('w'): this is the model as it is; by 'sync: " in error
    assert ("push weight * model" if "hfa" in sync else "push weight * (before - after)") in error


def test_a_whole_model_may_be_pushed_where_it_counts_once(tmp_path: Path) -> None:
    """The central data centre has one worker, whose weight there is 1."""
    what = "w if kv.num_workers == 1 else kv.weight * w"
    script = MODELS.replace("WHAT", what).replace("TRAIN", "w += 2").replace("GROWTH", "2")
    done(tmp_path, script, CHANGES[0][0])


def test_the_documents_program_trains(tmp_path: Path) -> None:
    text = (Path(__file__).parents[2] / "docs" / "coming_from_geomx.md").read_text()
    program, *_ = re.findall(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    script = (
        program + "\nloss = (model(samples) - samples.sum(1, keepdim=True)).square().mean().item()\nassert loss < 6"
    )
    values = done(tmp_path, script, "training.rounds=60", "training.evaluate_every=60").results
    assert all(torch.equal(values["hub/worker0"][key], values["east/worker1"][key]) for key in (0, 1))
