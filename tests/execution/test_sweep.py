"""A sweep survives what happens to long jobs: kill -9, a second process, failures; and the table is always the same."""

import io
import json
import os
import random
import signal
import sys
import threading
import time
from pathlib import Path

import pytest

from testbed.execution.record import prepare
from testbed.execution.sweep_run import PointRun, execute_point, fork_point
from tests.cli.forked import Ended, Forked, command, simulate_here

SMALL = (
    "version: 1\nname: small\nseed: 1\nrun: {on: simulate}\n"
    "topology:\n  data_centers: [{name: a, central: true, workers: 1}, {name: b, workers: 1}]\n"
    "  links: [{between: [a, b], rate: 10 Mbit/s, delay: 5 ms}]\n"
    "training: {model: {kind: mlp, hidden: 8}, data: digits, rounds: 4, evaluate_every: 2}\n"
)
SETTINGS = ("--set", "codec=none,fp16", "--seeds", "2", "--jobs", "2")


def arguments(scenario: Path, out: Path, *more: str) -> list[str]:
    return ["sweep", str(scenario), "--out", str(out), *SETTINGS, *more]


def sweep(scenario: Path, out: Path, *more: str) -> Ended:
    return command(arguments(scenario, out, *more))


def begin(scenario: Path, out: Path) -> Forked:
    return Forked(arguments(scenario, out))


@pytest.fixture(scope="module")
def scenario(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sweep") / "small.yaml"
    path.write_text(SMALL)
    return path


@pytest.fixture(scope="module")
def whole(scenario: Path) -> Path:
    """An uninterrupted sweep of four runs, on a machine with a GPU of the scenario's name."""
    out = scenario.parent / "whole"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("testbed.execution.devices.about", lambda plan: {"gpus": [plan.name]})
        done = sweep(scenario, out)
    assert done.returncode == 0, done.stdout + done.stderr
    return out


def stamps(out: Path) -> dict[str, int]:
    results = [path for path in out.glob("runs/*/result.json") if not path.parent.is_symlink()]
    return {path.parent.name: path.stat().st_mtime_ns for path in results}


def test_every_point_has_a_row_and_a_run(whole: Path) -> None:
    lines = (whole / "sweep.csv").read_text().splitlines()
    assert len(lines) == 5
    assert lines[0].startswith("run,codec,seed,back_end,status,rounds,accuracy")
    assert {"evaluations_to_target", "missed_faults"} <= {*lines[0].split(",")}, "doubts that the last lines tell"
    assert all(",simulate,done,4," in line for line in lines[1:])
    assert len(stamps(whole)) == 4


def test_links_name_runs_by_what_varies_and_follow_the_sweep(scenario: Path, whole: Path, tmp_path: Path) -> None:
    links = {path.name: path for path in whole.glob("runs/*") if path.is_symlink()}
    assert sorted(links) == ["codec-none-seed1", "codec-none-seed2", "fp16-seed1", "fp16-seed2"]
    plan = json.loads((links["fp16-seed2"] / "plan.json").read_text())
    assert (plan["technique"]["codec_tier2"]["kind"], plan["seed"]) == ("fp16", 2)
    out = tmp_path / "other"
    (out / "runs").mkdir(parents=True)
    (out / "runs" / "codec-none-seed1").symlink_to("elsewhere")
    (out / "runs" / "twobit-seed1").symlink_to("elsewhere")
    assert command(["sweep", str(scenario), "--out", str(out)]).returncode == 0
    (link,) = (path for path in (out / "runs").iterdir() if path.is_symlink())
    assert link.name == "seed1" and (link / "result.json").is_file()


def test_a_second_time_nothing_is_run(scenario: Path, whole: Path) -> None:
    before = stamps(whole)
    table = (whole / "sweep.csv").read_bytes()
    assert sweep(scenario, whole).returncode == 0
    assert stamps(whole) == before
    assert (whole / "sweep.csv").read_bytes() == table


@pytest.mark.slow  # 20 s
def test_killed_at_random_moments_and_resumed_it_is_the_same(scenario: Path, whole: Path, tmp_path: Path) -> None:
    moments, out = random.Random(7), tmp_path / "killed"
    deaths = 0
    for _ in range(3):
        process = begin(scenario, out)
        _until_runs_begin(out, process, len(stamps(out)))
        time.sleep(moments.uniform(0.0, 0.6))
        deaths += process.poll() is None
        process.kill()
        process.wait(timeout=240)
    assert deaths >= 1, "the sweep was too quick to be killed; make it longer"
    assert sweep(scenario, out).returncode == 0
    assert (out / "sweep.csv").read_bytes() == (whole / "sweep.csv").read_bytes()
    assert not list(out.rglob("*.tmp"))


def _until_runs_begin(out: Path, process: Forked, finished: int) -> None:
    """The blows should fall while runs are under way."""
    deadline_s = time.monotonic() + 240
    while process.poll() is None and time.monotonic() < deadline_s:
        if len(list(out.glob("runs/*/status.json"))) > finished:
            return
        time.sleep(0.01)


def test_children_die_with_the_sweep(scenario: Path, tmp_path: Path) -> None:
    out = tmp_path / "orphans"
    process = begin(scenario, out)
    _until_runs_begin(out, process, 0)
    children = [json.loads(path.read_text())["owner"]["pid"] for path in out.glob("runs/*/status.json")]
    process.kill()
    ended = process.wait(timeout=240)
    deadline_s = time.monotonic() + 240
    while any(Path(f"/proc/{child}").exists() for child in children) and time.monotonic() < deadline_s:
        time.sleep(0.05)
    assert children, ended
    assert not [child for child in children if Path(f"/proc/{child}").exists()]


def _one_fails_and_cannot_say_why() -> None:
    """The point of seed 2 raises, with standard error on a full disk, while that of seed 1 runs."""

    def execute(path: Path, point: PointRun) -> None:
        if point.plan.seed == 2:
            sys.stderr = open("/dev/full", "w", buffering=1)
            raise RuntimeError
        time.sleep(0.5)
        execute_point(path, point)

    pytest.MonkeyPatch().setattr("testbed.execution.sweep_pool.execute_point", execute)


def _the_second_run_lasts() -> None:
    def execute(path: Path, point: PointRun) -> None:
        if point.plan.seed == 2:
            run = prepare(path, point.plan, scenario=point.scenario, resolved=point.resolved, capabilities={})
            run.path.joinpath("begun").touch()
            time.sleep(240)
        execute_point(path, point)

    pytest.MonkeyPatch().setattr("testbed.execution.sweep_pool.execute_point", execute)


def test_interrupted_it_tells_what_is_done_and_what_was_interrupted(scenario: Path, tmp_path: Path) -> None:
    out = tmp_path / "sweep"
    process = Forked(["sweep", str(scenario), "--out", str(out), "--seeds", "2", "--jobs", "1"], _the_second_run_lasts)
    deadline_s = time.monotonic() + 240
    while not list(out.glob("runs/*/begun")) and time.monotonic() < deadline_s:
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGINT)
    ended = process.wait(timeout=240)
    assert ended.returncode == 130
    told = f"1 of 2 runs done in {out}; the same command goes on with the others\ntestbed: interrupted\n"
    assert ended.stderr == told
    states = {path.parent.name: json.loads(path.read_text())["state"] for path in out.glob("runs/*/status.json")}
    assert sorted(states.values()) == ["done", "done", "interrupted", "interrupted"]  # each by two names


def test_a_child_that_fails_in_any_way_leaves_the_others_alone(scenario: Path, tmp_path: Path) -> None:
    words = ["sweep", str(scenario), "--out", str(tmp_path / "sweep"), "--seeds", "2", "--jobs", "2"]
    done = command(words, prepare=_one_fails_and_cannot_say_why)
    assert done.returncode == 4, done.stdout + done.stderr
    assert "1 of 2 runs done" in done.stdout


def test_a_child_prints_though_its_parents_display_is_being_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread draws it, and holds a lock meanwhile; in the child there is no such thread, and the lock stays held."""

    class Drawn(io.StringIO):
        def write(self, text: str) -> int:
            with drawing:
                return len(text)

    drawing = threading.Lock()
    for name in ("stdout", "stderr"):
        monkeypatch.setattr(sys, name, Drawn())
    with drawing:
        child = fork_point(lambda: sum(stream.write("a line\n") for stream in (sys.stdout, sys.stderr)))
        child.wait(10)
    assert child.close() == len("a line\na line\n")


@pytest.mark.slow  # 8 s
def test_two_processes_share_the_work(scenario: Path, whole: Path, tmp_path: Path) -> None:
    out = tmp_path / "two"
    for process in [begin(scenario, out), begin(scenario, out)]:
        ended = process.wait(timeout=240)
        assert ended.returncode == 0, ended.stderr
    assert (out / "sweep.csv").read_bytes() == (whole / "sweep.csv").read_bytes()


def test_failures_are_listed_kept_and_run_again_on_request(scenario: Path, tmp_path: Path) -> None:
    out = tmp_path / "failing"
    words = ["sweep", str(scenario), "--out", str(out), "--set", "timeouts.rendezvous=60 s,1 ms"]
    first = command(words)
    assert first.returncode == 4, first.stdout
    failed = [line for line in first.stdout.splitlines() if line.startswith("failed: ")]
    assert len(failed) == 1
    assert "waited 0.001 s for all nodes to register" in failed[0]
    before = {path: path.stat().st_mtime_ns for path in out.glob("runs/*/status.json")}
    assert command(words).returncode == 4
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert command([*words, "--retry-failed"]).returncode == 4
    changed = {path for path, stamp in before.items() if path.stat().st_mtime_ns != stamp}
    states = {path: json.loads(path.read_text())["state"] for path in before}
    assert changed == {path for path, state in states.items() if state == "failed"}


def test_a_run_of_a_sweep_ends_with_the_bits_of_a_single_run(scenario: Path, whole: Path, tmp_path: Path) -> None:
    out = tmp_path / "single"
    chosen = ["--set", "codec=none"]
    assert command(["run", str(scenario), *chosen, "--out", str(out), "--quiet"], prepare=simulate_here).returncode == 0
    single = json.loads((out / "result.json").read_text())
    row = (whole / "sweep.csv").read_text().splitlines()[1]
    assert single["parameters_sha256"] in row
    assert str(single["round_time_s"]) in row


def test_runs_of_a_sweep_tell_of_their_machine_as_single_ones_do(whole: Path) -> None:
    """GPUs, and what the kernel of exact runs was made of."""
    for manifest in whole.glob("runs/*/manifest.json"):
        assert json.loads(manifest.read_text())["capabilities"]["gpus"] == ["small"]


def test_a_directory_that_cannot_be_claimed_does_not_hold_the_sweep_up(
    scenario: Path, whole: Path, tmp_path: Path
) -> None:
    """Somebody's files stand where a run should: that run fails, the others are made, and the sweep ends."""
    out = tmp_path / "taken"
    plans = sorted(whole.glob("runs/*/plan.json"))
    point = next(path.parent.resolve().name for path in plans if json.loads(path.read_text())["seed"] == 1)
    (out / "runs" / point).mkdir(parents=True)
    (out / "runs" / point / "notes.txt").write_text("precious")
    done = sweep(scenario, out, "--seeds", "1")
    assert done.returncode == 4, done.stdout + done.stderr
    assert "is not empty and not a run directory" in done.stderr
    assert len(stamps(out)) == 1
    assert (out / "runs" / point / "notes.txt").read_text() == "precious"
