"""A paradigm from a file of the user's own has what shipped ones have: all worlds, checkpoints, losses and joins."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.engine.own import averaging
from tests.faults.runs import CONTINUE, Ended, faults, run
from tests.for_each import for_each

PARADIGM = f"paradigm={{kind: {averaging.__file__}:Averaging, every: 3}}"
SGD = "optimizer={kind: sgd, learning_rate: 0.05}"


def _ended(directory: Path, *overrides: str, on: str = "simulate") -> Ended:
    ended = run(directory, PARADIGM, SGD, *overrides, on=on)
    assert ended.error is None
    assert len(ended.hashes()) == 1, "all workers end with the mean of their models"
    return ended


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Ended:
    return _ended(tmp_path_factory.mktemp("simulated"), "checkpoint.every=4")


def test_it_ends_with_the_same_bits_in_both_worlds(simulated: Ended, tmp_path: Path) -> None:
    assert _ended(tmp_path, on="local").hashes() == simulated.hashes()


def test_models_travel_only_in_rounds_that_mix(simulated: Ended) -> None:
    mixed = {event["round"] for event in simulated.events("transfer") if event.get("message") == "collective"}
    assert mixed - {-1} == {2, 5, 8, 9}, "every third one, and the last"


def test_it_goes_on_from_a_checkpoint(simulated: Ended, tmp_path: Path) -> None:
    shutil.copytree(simulated.directory / "checkpoints" / "ckpt-000004", tmp_path / "checkpoints" / "ckpt-000004")
    resumed = _ended(tmp_path, "checkpoint.every=4")
    assert resumed.hashes() == simulated.hashes()
    assert min(event["round"] for event in resumed.events("round")) == 4


@for_each("fault", ["round: 3", "round: 5", "round: 4, for: 100 ms"])
def test_the_others_go_on_and_who_joins_takes_part(fault: str, tmp_path: Path) -> None:
    ended = _ended(tmp_path, CONTINUE, faults(f"kind: kill, node: east/worker0, {fault}"))
    finals = ended.events("final")
    assert ("for" in fault) == ("east/worker0" in {event["node"] for event in finals})
