"""Two jobs on one network in every world: the same bits, a directory each, and rounds as the kernel makes them."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from emulation.exact import kernel
from tests.end_to_end.runs import Finished, run_jobs
from tests.end_to_end.test_three_worlds import skip_unless_possible

TWO = "shared/two-jobs"
SHORT = (
    "jobs.star.training.rounds=4",
    "jobs.star.training.evaluate_every=4",
    "jobs.ring.training.rounds=4",
    "jobs.ring.training.evaluate_every=4",
    "jobs.ring.start=1 s",
)
TOLERANCE = 0.05  # of a round, simulated against exact
# two parameter servers whose models keep the links busy: they meet in every round, whenever one begins
BUSY = """\
version: 1
name: busy
seed: 1
topology:
  data_centers:
    - {name: virginia, central: true, workers: 1}
    - {name: frankfurt, workers: 1}
    - {name: tokyo, workers: 1}
  links:
    - {between: [virginia, frankfurt], rate: 20 Mbit/s, delay: 20 ms, queue: 200 KB}
    - {between: [virginia, tokyo], rate: 20 Mbit/s, delay: 40 ms, queue: 200 KB}
jobs:
  large:
    training: {model: {kind: mlp, hidden: 4096}, data: digits, split: iid, batch: 8, rounds: 12, evaluate_every: 12}
    device: {pace: paced, step_time: 20 ms}
  small:
    training: {model: {kind: mlp, hidden: 2048}, data: digits, split: iid, batch: 8, rounds: 20, evaluate_every: 20}
    device: {pace: paced, step_time: 20 ms}
"""


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Finished]:
    return run_jobs(tmp_path_factory.mktemp("simulated") / "run", "simulate", *SHORT, scenario=TWO)


# emulated: 20 s
@pytest.mark.parametrize(
    "back_end", ["local", pytest.param("emulate", marks=[pytest.mark.emulation, pytest.mark.slow])]
)
def test_the_jobs_have_the_same_bits_in_real_processes(
    back_end: str, simulated: dict[str, Finished], tmp_path: Path
) -> None:
    skip_unless_possible(back_end)
    real = run_jobs(tmp_path / "run", back_end, *SHORT, scenario=TWO)
    for name, run in real.items():
        assert run.outcome.status == "done", f"{name}: {run.outcome.message}"
        assert run.hashes("worker") == simulated[name].hashes("worker")
        assert run.hashes("worker")
        assert len(run.of_kind("round")) == len(simulated[name].of_kind("round"))
    if back_end == "emulate":
        links = {event["link"] for event in real["ring"].of_kind("link")}
        assert links == {link.name for link in real["ring"].plan.network.links}  # each has the network's samples
        last_s = max(event["t"] for kind in ("round", "final") for event in real["ring"].of_kind(kind))
        assert max(event["t"] for event in real["ring"].of_kind("link")) <= last_s + 2, "no longer than it has trained"


def rounds_s(run: Finished) -> list[float]:
    """How long each round took, from the end of one to that of the next, of the job's last worker."""
    ends: dict[int, float] = {}
    for event in run.of_kind("round"):
        ends[event["round"]] = max(event["t"], ends.get(event["round"], 0.0))
    times_s = [ends[number] for number in sorted(ends)]
    return [after - before for before, after in pairwise(times_s)]


@pytest.mark.slow  # 120 s
@pytest.mark.skipif(kernel.find() is None, reason="the kernel is not built: testbed exact build")
def test_rounds_of_two_jobs_are_simulated_as_the_kernel_makes_them(tmp_path: Path) -> None:
    file = tmp_path / "busy.yaml"
    file.write_text(BUSY, encoding="utf-8")
    both = {on: run_jobs(tmp_path / on, on, scenario=file) for on in ("simulate", "exact")}
    far = {}
    for name in ("large", "small"):
        one, other = both["simulate"][name], both["exact"][name]
        assert other.outcome.status == "done", other.outcome.message
        assert other.hashes("worker") == one.hashes("worker")
        means = [sum(each) / len(each) for each in (rounds_s(one), rounds_s(other))]
        assert means[0] == pytest.approx(means[1], rel=0.3), (name, means)
        if means[0] != pytest.approx(means[1], rel=TOLERANCE):
            far[name] = means
    if far:  # docs/how-to/several-jobs.md
        pytest.xfail(
            f"exact rounds change by a fifth with when processes start, where jobs never come into step: {far}"
        )
