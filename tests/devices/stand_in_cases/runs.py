"""Runs on a GPU, for which the processor stands in.

No process inherits a context, only payloads are copied, streams are in order, and bits are those of the processor.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from testbed.plan.build import build_plan
from testbed.plan.model import to_json
from testbed.scenario.load import load
from tests.devices import stand_in
from tests.end_to_end.runs import QUICKSTART, Finished, read_events, run_scenario

ROOT = Path(__file__).parents[3]
FEW = ("training.model=mlp", "training.rounds=4", "training.evaluate_every=2", "training.target_accuracy=null")
DENSE = 16_384  # bytes of the model's one large tensor: 64 inputs, 64 units
AT_WORKERS = "optimizer={kind: adam, at: worker}"
SPARSE = "codec={kind: topk, bound: 100, ratio: 0.01}"
ONE_EACH = "data_centers[*].workers=1"
RING = "paradigm={kind: hips, inside: ring}"
SPARSE_ABOVE = "codec={tier1: none, tier2: {kind: topk, bound: 100, ratio: 0.01}}"


def simulated(folder: Path, *overrides: str) -> Finished:
    run = run_scenario(folder, "simulate", *FEW, *overrides)
    assert run.outcome.status == "done", run.outcome.message
    return run


@pytest.fixture(scope="module")
def on_host(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., set[str]]:
    """Return what gives the hashes of a run on the processor, each of which is made once."""

    @cache
    def hashes(*technique: str) -> set[str]:
        return simulated(tmp_path_factory.mktemp("cpu") / "run", *technique).hashes("worker")

    return hashes


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize(
    "technique",
    [
        (SPARSE, "device.server_device=cuda"),
        pytest.param(("device.server_device=cuda",), marks=pytest.mark.slow),
        ("sync={kind: hfa, k1: 2}", AT_WORKERS),
        pytest.param(("sync={kind: diloco, h: 2}", AT_WORKERS), marks=pytest.mark.slow),
        pytest.param(("order={kind: p3, overlap: layers}",), marks=pytest.mark.slow),
        pytest.param(("overlay=tsengine",), marks=pytest.mark.slow),
        pytest.param(("order=dgt",), marks=pytest.mark.slow),
        (RING, SPARSE_ABOVE),
        pytest.param(("paradigm={kind: allreduce, algorithm: hitopk}",), marks=pytest.mark.slow),
        pytest.param(
            ("paradigm={kind: hips, inside: ring}", "sync={kind: hfa, k1: 2}", AT_WORKERS), marks=pytest.mark.slow
        ),
        pytest.param(("paradigm={kind: allreduce, optimizer_work: update}",), marks=pytest.mark.slow),
        pytest.param(("paradigm={kind: allreduce, overlap: buckets, bucket: 4 KB}",), marks=pytest.mark.slow),
        pytest.param(("paradigm=gossip",), marks=pytest.mark.slow),
    ],
    ids=" ".join,
)
def test_a_gpu_changes_no_bits(technique: tuple[str, ...], tmp_path: Path, on_host: Callable[..., set[str]]) -> None:
    expected = on_host(*(each for each in technique if not each.startswith("device.")))
    assert simulated(tmp_path / "gpu", *technique, "device.kind=cuda").hashes("worker") == expected


def dense_copies(folder: Path, rounds: int, *technique: str) -> tuple[int, int]:
    """Return how many copies of a large tensor, or of more, a run makes to the host and to the device."""
    stand_in.forget()
    never = f"training.evaluate_every={rounds}"
    simulated(folder, *technique, "device.kind=cuda", f"training.rounds={rounds}", never, "training.batch=8")
    return len(stand_in.copies("to host", DENSE)), len(stand_in.copies("to device", DENSE))


@pytest.mark.usefixtures("gpu")
def test_under_a_sparse_codec_no_round_copies_a_dense_tensor(tmp_path: Path) -> None:
    """Before the first round first values are, and after the last one those that the run ends with."""
    two, four = (dense_copies(tmp_path / str(rounds), rounds, SPARSE, ONE_EACH) for rounds in (2, 4))
    assert two == four


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize(
    ("technique", "simulated_as"),
    [
        ((SPARSE, ONE_EACH), (SPARSE, ONE_EACH)),
        pytest.param(("paradigm={kind: hips, inside: gloo}",), (RING,), marks=pytest.mark.slow),  # 10 s each
    ],
)
def test_nodes_inherit_no_context(
    technique: tuple[str, ...], simulated_as: tuple[str, ...], tmp_path: Path, on_host: Callable[..., set[str]]
) -> None:
    """Real processes, on a GPU that they share. This process has computed on it; so a fresh one forks them."""
    settings = (*FEW, "run.on=local", "device.kind=cuda", *technique)
    out, plan = tmp_path / "local", build_plan(load(QUICKSTART, settings), "local")
    out.mkdir()
    (out / "plan.json").write_bytes(to_json(plan))
    call = [sys.executable, "-m", "tests.devices.host", str(out)]
    with (tmp_path / "log").open("w+") as log:
        process = subprocess.Popen(
            call, cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)}, stdin=subprocess.PIPE, stdout=log, stderr=log
        )
        code = process.wait(250)  # its launcher has ended when standard input does
    assert code == 0, (tmp_path / "log").read_text()[-3000:]
    finals = [event for event in read_events(out) if event["kind"] == "final" and event["role"] == "worker"]
    hashes = {event["parameters_sha256"] for event in finals}
    assert len(hashes) == 1
    assert hashes == on_host(*simulated_as)
