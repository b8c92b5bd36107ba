"""The claim: one scenario, one seed, three worlds, the same bits; and the bytes that FSA must move, no more."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from testbed.engine.roles import make_role
from testbed.plan.build import build_plan
from testbed.scenario.load import load
from testbed.simulation.run import simulate
from tests.end_to_end.reference import train_single_process
from tests.end_to_end.runs import QUICKSTART, Finished, run_scenario
from tests.for_each import for_each

ROUNDS = 2
ONE_EACH = "topology.data_centers[*].workers=1"
OVERRIDES = (f"training.rounds={ROUNDS}", "training.evaluate_every=2", ONE_EACH)
NODES = 3 + 3  # workers and their servers
MODEL_BYTES = 4 * 80_458
BACK_ENDS = ["simulate", "local", pytest.param("emulate", marks=pytest.mark.emulation)]


def skip_unless_possible(back_end: str) -> None:
    if back_end == "emulate":
        from emulation.probe import probe
        from testbed.errors import CapabilityError

        try:
            probe().require_emulation()
        except CapabilityError as error:
            pytest.skip(f"this machine cannot emulate: {error}")


_finished: dict[str, Finished] = {}


@pytest.fixture
def finished(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """The quickstart, ``ROUNDS`` rounds, once per back end and session."""
    back_end = request.param
    if back_end not in _finished:
        skip_unless_possible(back_end)
        directory = tmp_path_factory.mktemp(back_end) / "run"
        _finished[back_end] = run_scenario(directory, back_end, *OVERRIDES)
    run = _finished[back_end]
    assert run.outcome.status == "done", run.outcome.message
    return run


@pytest.fixture(scope="session")
def simulated_hash(tmp_path_factory: pytest.TempPathFactory) -> str:
    run = run_scenario(tmp_path_factory.mktemp("again") / "run", "simulate", *OVERRIDES)
    (value,) = run.hashes("worker")
    return value


@pytest.mark.parametrize("finished", BACK_ENDS, indirect=True)
def test_every_node_ends_with_the_same_bits_in_every_world(finished: Finished, simulated_hash: str) -> None:
    for role in ("worker", "server", "global_server"):
        assert finished.hashes(role) == {simulated_hash}
    assert {event["rounds"] for event in finished.of_kind("final") if event["role"] == "worker"} == {ROUNDS}


@pytest.mark.parametrize("finished", BACK_ENDS, indirect=True)
def test_wan_payload_is_one_model_up_and_one_down_per_party_and_round(finished: Finished) -> None:
    moved: dict[tuple[str, int, str], int] = {}
    headers = 0
    for event in finished.of_kind("transfer"):
        if event["tier"] == "wan" and event["round"] >= 0 and event["message"] in ("push", "value"):
            party = event["source"] if event["message"] == "push" else event["target"]
            where = (party, event["round"], event["message"])
            moved[where] = moved.get(where, 0) + event["payload_bytes"]
            headers += event["header_bytes"]
    parties = ("frankfurt/server0", "tokyo/server0")
    expected = {(p, r, m): MODEL_BYTES for p in parties for r in range(ROUNDS) for m in ("push", "value")}
    assert moved == expected
    assert headers > 0


@pytest.mark.parametrize("finished", BACK_ENDS, indirect=True)
def test_headers_are_the_same_bytes_in_every_world(finished: Finished) -> None:
    """The virtual world counts what the real one sends: the same number for the same message."""
    sizes = {
        (event["source"], event["target"], event["message"], event["key"], event["round"]): event["header_bytes"]
        for event in finished.of_kind("transfer")
        if event["message"] in ("push", "value")
    }
    simulated = _finished.get("simulate")
    assert len(sizes) == ROUNDS * 10 * 2 * NODES + 10 * NODES
    if simulated is not None and simulated is not finished:
        other = {
            (event["source"], event["target"], event["message"], event["key"], event["round"]): event["header_bytes"]
            for event in simulated.of_kind("transfer")
            if event["message"] in ("push", "value")
        }
        assert sizes == other


# Measured: after twelve rounds, SGD differs by at most 4e-7. Adam divides by the root of a tiny second moment, so where
# a gradient is all rounding, the rounding decides the direction of a step; the mean shows how rare that is.
@for_each(("optimizer", "worst", "mean"), [("sgd", 5e-6, 1e-7), ("adam", 5e-3, 1e-5)])
def test_equals_training_in_a_single_process_up_to_rounding(
    tmp_path: Path, optimizer: str, worst: float, mean: float
) -> None:
    """FSA computes what plain PyTorch computes on the concatenated batches; only the order of sums differs."""
    overrides = (f"training.rounds={ROUNDS}", "training.evaluate_every=2", f"optimizer.kind={optimizer}")
    plan = build_plan(load(QUICKSTART, overrides), "simulate")
    exits = simulate(plan, make_role, tmp_path, lambda event: None)
    ours = torch.cat(exits["tokyo/worker1"].result)
    difference = (ours - torch.cat(train_single_process(plan, ROUNDS))).abs()
    assert 0 < difference.max() <= worst
    assert difference.mean() <= mean


GEOMX = Path(__file__).parents[2] / "scenarios" / "geomx"


@pytest.mark.slow  # 6 s
@pytest.mark.parametrize("name", ["bi-sparse", "mpq"])
@pytest.mark.parametrize("seed", [1, 2])
def test_they_reach_their_target_and_stay_there(tmp_path: Path, name: str, seed: int) -> None:
    finished = run_scenario(tmp_path / "run", "simulate", f"seed={seed}", scenario=GEOMX / f"{name}.yaml")
    accuracies = [event["accuracy"] for event in finished.of_kind("evaluate")]
    assert max(accuracies) >= 0.95
    assert accuracies[-1] >= 0.95
