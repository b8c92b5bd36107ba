"""result.json: every field against the known course of the fake run; the hash; fidelity; what counts as diverged."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from testbed.errors import TestbedError
from testbed.plan.model import FaultPlan, Plan, to_json
from testbed.results import fidelity, manifest, summary, tables
from testbed.results.columns import TABLES
from testbed.results.divergence import divergence, of_tellers
from testbed.results.events import HAS_LEFT, EventLog
from testbed.target import ACCURACY, LOSS, Target
from tests.for_each import for_each
from tests.results.fake_run import HEADER, PAYLOAD, make_plan, make_run, result_of, write_events

FINE = {"status": "ok", "reasons": [], "notes": []}
MODEL_BYTES = sum(PAYLOAD.values())


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("runs") / "run")


def test_the_answer(run: Path) -> None:
    result = result_of(run)
    assert result["status"] == "done"
    assert result["back_end"] == "emulate"
    assert result["rounds"] == 8
    assert result["accuracy"] == pytest.approx(0.9305)
    assert result["parameters_sha256"] == "ab" * 32
    assert result["parameters_agree"] is True
    assert result["duration_s"] == 12.5


def test_time_to_target_counts_from_the_start_of_training(run: Path) -> None:
    # 0.8 is reached after round 5: six rounds of 290 ms and two evaluation gaps of 300 ms
    assert result_of(run)["time_to_target_s"] == pytest.approx(6 * 0.290 + 2 * 0.3, abs=1e-5)
    assert result_of(run)["accuracy_at_target"] == pytest.approx(0.8647)
    assert result_of(run)["evaluations_to_target"] >= 1


def test_what_links_carry_before_training_counts_nowhere(run: Path, tmp_path: Path) -> None:
    """It is there for who looks on: results, fidelity, summary and all other tables are those of a run without it."""
    probed = make_run(tmp_path / "run", probes=True)
    assert len(tables.read(probed, ["probes"])["probes"]) == 16 and tables.read(run, ["probes"])["probes"].empty
    assert {**result_of(probed), "volatile": {}} == {**result_of(run), "volatile": {}}
    files = ["fidelity.json", "summary.txt", *(f"tables/{name}.parquet" for name in TABLES if name != "probes")]
    assert [name for name in files if (probed / name).read_bytes() != (run / name).read_bytes()] == []


def test_a_target_is_reached_by_two_evaluations_in_a_row() -> None:
    def reached(*scores: tuple[int, float]) -> summary.Reached | None:
        rows = [(10.0 * place, round_, accuracy, 1 - accuracy) for place, (round_, accuracy) in enumerate(scores)]
        frame = pd.DataFrame(rows, columns=["snapshot_t_s", "round", "accuracy", "loss"])
        of_loss = summary.at_target(frame, Target(LOSS, 0.1))
        assert summary.at_target(frame, Target(ACCURACY, 0.9)) == of_loss  # here the one is the other
        return of_loss

    found = reached((9, 0.75), (19, 0.95), (29, 0.85), (39, 0.91), (49, 0.95))
    assert found is not None and (found.snapshot_s, found.accuracy, found.loss) == (30.0, 0.91, pytest.approx(0.09))
    assert found.evaluations == 4
    assert reached((9, 0.8), (19, 0.97)) is None  # one alone, at the end of the run
    assert reached((9, 0.8), (19, 0.97), (19, 0.97), (29, 0.8)) is None  # a restart scored round 19 again


def test_faults_that_the_run_had_ended_before_are_told_by_their_targets(tmp_path: Path) -> None:
    """One of two nodes of a fault was hit; a fault that came twice was planned three times."""
    kinds = [("nan", ("tokyo/worker0", "tokyo/worker1")), *[("down", ("virginia>tokyo", "tokyo>virginia"))] * 3]
    plan = replace(make_plan(), faults=tuple(FaultPlan(kind=kind, targets=targets) for kind, targets in kinds))
    write_events(plan, tmp_path / "events")
    log = EventLog(tmp_path / "events", "back end")
    log.write("fault", 1.2, fault="nan", targets="tokyo/worker1", begins=True)
    for at_s in (1.5, 2.5):
        log.write("fault", at_s, fault="down", targets="virginia>tokyo, tokyo>virginia", begins=True)
        log.write("fault", at_s + 0.5, fault="down", targets="virginia>tokyo, tokyo>virginia", begins=False)
    log.close()
    frames = {name: tables.frame(table) for name, table in tables.build(tmp_path / "events").items()}
    told = summary._faults(frames, json.loads(to_json(plan)))
    assert told["missed"] == [
        {"fault": "nan", "targets": "tokyo/worker0"},
        {"fault": "down", "targets": "virginia>tokyo, tokyo>virginia"},
    ]


def test_wan_bytes_are_one_model_up_and_down_per_round_and_party(run: Path) -> None:
    result = result_of(run)
    party, hub = {"up": 8 * MODEL_BYTES, "down": 8 * MODEL_BYTES}, {"up": 16 * MODEL_BYTES, "down": 16 * MODEL_BYTES}
    assert result["wan_payload_bytes"] == {"virginia": hub, "tokyo": party, "frankfurt": party}
    assert result["wan_header_bytes"]["tokyo"] == {"up": 8 * 2 * HEADER, "down": 8 * 2 * HEADER}


def test_start_up_traffic_is_counted_apart(tmp_path: Path) -> None:
    plan = make_plan()
    write_events(plan, tmp_path / "events")
    log = EventLog(tmp_path / "events", "tokyo/server0")
    log.write(
        "transfer",
        0.5,
        t0=0.4,
        source="virginia/global0",
        target="tokyo/server0",
        message="value",
        key=0,
        round=-1,
        payload_bytes=4000,
        header_bytes=100,
        tier="wan",
    )
    log.write(
        "transfer",
        0.6,
        t0=0.5,
        source="virginia/scheduler",
        target="tokyo/server0",
        message="ready",
        key=-1,
        round=0,
        payload_bytes=0,
        header_bytes=70,
        tier="wan",
    )
    log.close()
    frames = tables.read(tmp_path)
    ending = summary.Ending("done", "", "", "", 1.0)
    result = summary.summarise(frames, as_dict(plan), FINE, ending)
    assert result["wan_payload_bytes"]["tokyo"]["down"] == 8 * MODEL_BYTES
    assert result["wan_setup_bytes"]["tokyo"] == {"up": 0, "down": 4170}
    assert result["wan_header_bytes"]["tokyo"]["down"] == 8 * 2 * HEADER


def test_a_restart_makes_no_second_worker(tmp_path: Path) -> None:
    """One that began twice does not stand for another without a log, and has the parameters of its last end."""
    plan = make_plan()
    write_events(plan, tmp_path / "events")
    log = EventLog(tmp_path / "events", "tokyo/worker0")
    log.write("final", 0.05, role="worker", rounds=8, parameters_sha256="cd" * 32)
    log.write("start", 0.2, role="worker", data_center="tokyo", pid=1)
    log.close()
    ending = summary.Ending("done", "", "", "", 1)
    result = summary.summarise(tables.read(tmp_path), as_dict(plan), FINE, ending)
    assert (result["rounds"], result["parameters_sha256"]) == (8, "ab" * 32)
    (tmp_path / "events" / "tokyo.worker1.0000.jsonl.gz").unlink()
    assert rounds_of(plan, tmp_path) == 0


def rounds_of(plan: Plan, directory: Path) -> int:
    ending = summary.Ending("done", "", "", "", 1)
    return int(summary.summarise(tables.read(directory), as_dict(plan), FINE, ending)["rounds"])


@for_each("why", ["frankfurt/worker1 is lost", HAS_LEFT])
def test_rounds_are_those_of_the_workers_that_are_there_at_the_end(why: str, tmp_path: Path) -> None:
    """One that was lost, or had left, after two rounds; and one that is back has them to do."""
    plan = make_plan()
    gone = "frankfurt/worker1"
    write_events(plan, tmp_path / "events")
    (tmp_path / "events" / "frankfurt.worker1.0000.jsonl.gz").unlink()
    logs = {name: EventLog(tmp_path / "events", name) for name in (gone, "virginia/scheduler")}
    logs[gone].write("start", 0.1, role="worker", data_center="frankfurt", pid=1)
    for number in range(2):
        logs[gone].write("round", 1.3 + number, t0=1.0 + number, round=number, loss=1.0, samples=32)
    logs["virginia/scheduler"].write("epoch", 3.0, number=1, targets=gone, begins=False, message=why)
    for log in logs.values():
        log.close()
    assert rounds_of(plan, tmp_path) == 8
    logs["virginia/scheduler"].write("epoch", 4.0, number=2, targets=gone, begins=True, message="it is back")
    logs["virginia/scheduler"].close()
    assert rounds_of(plan, tmp_path) == 2


def test_a_worker_that_was_lost_or_joined_counts_as_long_as_it_trained() -> None:
    """Of one that is quick, has done its rounds and was not lost, the whole rate counts."""
    spans = {"a/worker0": (0.0, 10.0), "a/worker1": (0.0, 2.5), "b/worker0": (5.0, 10.0), "b/worker1": (0.0, 5.0)}
    rows = [(node, begin_s, end_s, 100 * (end_s - begin_s)) for node, (begin_s, end_s) in spans.items()]
    made = pd.DataFrame(rows, columns=["node", "t0_s", "t_s", "samples"])

    def rate(*changes: tuple[float, str, bool]) -> float | None:
        events = [("epoch", *change, "why") for change in changes]
        columns = ["kind", "t_s", "targets", "begins", "message"]
        return summary.samples_per_s(made, pd.DataFrame(events, columns=columns))

    assert rate() == pytest.approx(400)
    assert rate((2.5, "a/worker1", False)) == pytest.approx(325)
    assert rate((5.0, "b/worker0", True)) == pytest.approx(350)
    assert rate((1.0, "a/worker0, a/server0", False), (2.0, "a/worker0, a/server0", True)) == pytest.approx(390)
    assert rate((5.0, "b/worker0", True), (9.0, "b/worker0", False)) == pytest.approx(340)


def test_holders_that_differ_have_no_common_digest(tmp_path: Path) -> None:
    plan = make_plan()
    write_events(plan, tmp_path / "events")
    log = EventLog(tmp_path / "events", "frankfurt/worker9")
    log.write("final", 9.0, role="worker", rounds=8, parameters_sha256="cd" * 32)
    log.close()
    frames = tables.read(tmp_path)
    result = summary.summarise(frames, as_dict(plan), FINE, summary.Ending("done", "", "", "", 1))
    assert (result["parameters_sha256"], result["parameters_agree"]) == (None, False)


def test_the_hash_covers_the_answer_and_not_the_clock(run: Path, tmp_path: Path) -> None:
    result = result_of(run)
    path = tmp_path / "result.json"
    for change, accepted in (
        ({"duration_s": 99.0, "volatile": {}}, True),
        ({"accuracy": 0.99}, False),
        ({"schema_version": 99}, False),
    ):
        path.write_text(json.dumps({**result, **change}))
        if accepted:
            assert summary.read_result(path)["duration_s"] == 99.0
        else:
            with pytest.raises(TestbedError, match=r"was changed|is later"):
                summary.read_result(path)


# ---- fidelity ---------------------------------------------------------------------------------------------------


@for_each(("ending", "status"), [("diverged", "ok"), ("failed", "degraded"), ("interrupted", "degraded")])
def test_a_run_that_did_not_complete_is_no_measurement(tmp_path: Path, ending: str, status: str) -> None:
    (tmp_path / "events").mkdir()
    plan = as_dict(make_plan(back_end="simulate"))
    report = fidelity.assess(tables.read(tmp_path), plan, {}, ending)
    assert report["status"] == status and all(reason.startswith(f"run: {ending}") for reason in report["reasons"])


def assess(tmp_path: Path, back_end: str = "emulate", **events: Any) -> dict[str, Any]:
    """The report for a few events; ``kind=[{fields}, …]``."""
    log = EventLog(tmp_path / "events", "monitor")
    for kind, rows in events.items():
        for row in rows:
            log.write(kind, **{"t": 1.0, **row})
    log.close()
    return fidelity.assess(tables.read(tmp_path), as_dict(make_plan(back_end=back_end)), {"delay_method": "netem"})


def test_a_good_run_is_ok_and_its_notes_are_listed(run: Path) -> None:
    report = json.loads((run / "fidelity.json").read_text())
    assert (report["status"], report["reasons"]) == ("ok", [])
    assert report["notes"] == ["network.jitter has no effect here"]
    assert len(report["links_while_running"]) == 4
    assert report["links_while_running"][0]["achieved_share_when_busy"] == pytest.approx(0.96, abs=0.01)


def test_a_link_off_its_plan_degrades(tmp_path: Path) -> None:
    row = {"link": "a>b", "what": "rate", "planned": 20e6, "measured": 15e6, "tolerance": 4e5, "ok": False}
    told = {"message": "a>b: rate planned 20.00 Mbit/s, measured 15.00 Mbit/s"}
    report = assess(tmp_path, measured=[row, {**row, "measured": None}], warning=[told])
    assert report["status"] == "degraded"
    assert (len(report["reasons"]), len(report["notes"])) == (2, 1), "the same news once, and the Plan's warning"
    assert report["reasons"] == [
        "a>b: rate planned 20 ± 0.4 Mbit/s, measured 15 Mbit/s",
        "a>b: rate planned 20 ± 0.4 Mbit/s, nothing arrived",
    ]


@for_each(
    ("rate", "busy", "word"),
    [
        (19e6, 1.0, None),
        (12e6, 1.0, "reached 60% of its configured rate"),
        (12e6, 0.0, None),
        (23e6, 0.0, "carried 115%"),
        (6e6, 0.3, None),  # a third of the time at full speed: a burst, not a slow link
    ],
)
def test_achieved_against_configured(tmp_path: Path, rate: float, busy: float, word: str | None) -> None:
    samples = [
        {
            "t": 0.5 * i,
            "link": "a>b",
            "configured_bps": 20e6,
            "bytes": int(rate / 8 * 0.5 * i),
            "dropped_packets": 3,
            "backlog_bytes": 1000,
            "busy_s": 0.5 * i * busy,
            "busy_bytes": int(rate / 8 * 0.5 * i),
            "busy_possible_bytes": int(20e6 / 8 * 0.5 * i * busy),
        }
        for i in range(8)
    ]
    report = assess(tmp_path, link=samples)
    assert report["links_while_running"][0]["dropped_packets"] == 3
    assert bool(report["reasons"]) == (word is not None)
    assert word is None or word in report["reasons"][0]


def test_every_link_is_judged_by_its_own_rates_and_counters(tmp_path: Path) -> None:
    slow = {"link": "a>b", "configured_bps": 8e6, "dropped_packets": None, "backlog_bytes": 0}
    fast = {**slow, "link": "b>a", "configured_bps": 80e6, "dropped_packets": 7}
    samples = [
        row
        for i in range(4)
        for row in (
            {**slow, "t": 0.5 * i, "bytes": 1000 + 700_000 * i},
            {**fast, "t": 0.5 * i + 0.1, "bytes": 5_000_000 * i},
        )
    ]
    first, second = assess(tmp_path, link=samples)["links_while_running"]
    assert (first["link"], first["bytes"], first["dropped_packets"]) == ("a>b", 2_100_000, None)
    assert (first["highest_share"], first["achieved_share_when_busy"]) == (1.4, None)
    assert first["problem"] == "a>b: carried 140% of its configured rate in one sample"
    assert (second["link"], second["bytes"], second["dropped_packets"]) == ("b>a", 15_000_000, 7)
    assert (second["highest_share"], second["problem"]) == (1.0, "")


@for_each(("size_bytes", "ok"), [(4000 + 3570, True), (2 * 7570, False)])
def test_what_a_slow_links_shaper_passes_at_once_is_no_excess(tmp_path: Path, size_bytes: int, ok: bool) -> None:
    """64 kbit/s are 4000 bytes in half a second; after a pause some frames go at once."""
    link = {"link": "a>b", "configured_bps": 64e3, "dropped_packets": 0, "backlog_bytes": 0}
    samples = [{**link, "t": 0.5 * i, "bytes": size_bytes * (i == 1)} for i in range(2)]
    report = assess(tmp_path, link=samples)
    assert report["links_while_running"][0]["highest_share"] == pytest.approx(size_bytes / 4000, abs=1e-4)
    assert bool(report["reasons"]) is not ok


def test_counters_that_fell_have_begun_anew(tmp_path: Path) -> None:
    """As those of a simulated link do when the run begins again."""
    link = {"link": "a>b", "configured_bps": 8e6, "backlog_bytes": 0}
    counters = ((100, 1), (400, 3), (50, 1), (250, 2))
    samples = [
        {**link, "t": 0.5 * i, "bytes": sent, "dropped_packets": lost} for i, (sent, lost) in enumerate(counters)
    ]
    (report,) = assess(tmp_path, link=samples)["links_while_running"]
    assert (report["bytes"], report["dropped_packets"]) == (300 + 50 + 200, 3 + 1 + 1)


@for_each(("highest_bps", "ok"), [(30e6, True), (20e6, False), (None, False)])
def test_a_rate_that_changes_and_returns_within_a_sample_is_no_excess(
    tmp_path: Path, highest_bps: float | None, ok: bool
) -> None:
    """As with a trace whose steps are shorter than a sample; simulated links, and older runs, have no highest rate."""
    rates = {"configured_bps": 8e6, **({} if highest_bps is None else {"highest_bps": highest_bps})}
    samples = [
        {"t": 0.5 * i, "link": "a>b", **rates, "bytes": 1_687_500 * i, "dropped_packets": 0, "backlog_bytes": 1000}
        for i in range(4)
    ]  # 27 Mbit/s
    report = assess(tmp_path, link=samples)
    assert bool(report["reasons"]) is not ok
    assert report["links_while_running"][0]["highest_share"] == pytest.approx(27e6 / (highest_bps or 8e6))


@for_each(("over", "status"), [(1, "ok"), (5, "ok"), (6, "degraded")])
def test_overrun_steps(tmp_path: Path, over: int, status: str) -> None:
    steps = [
        {
            "t0": 0.0,
            "t": 0.08 if i < over else 0.05,
            "work": "step",
            "round": i,
            "modelled_s": 0.05,
            "real_s": 0.02,
            "overrun": i < over,
        }
        for i in range(100)
    ]  # a step may wait for a core
    report = assess(tmp_path, compute=steps)
    assert (report["status"], report["compute"]["overrun_steps"]) == (status, over)
    assert report["compute"]["worst_overrun_s"] == pytest.approx(0.03)


def test_late_trace_and_busy_machine(tmp_path: Path) -> None:
    late = [{"link": "a>b", "planned_t": 1.0, "late_s": 0.2, "what": "rate_bps", "value": 1e6}] * 3
    busy = [{"busy_share": 0.99, "steal_share": 0.1}] * 4
    report = assess(tmp_path / "real", replay=late, machine=busy)
    assert len(report["reasons"]) == 3
    virtual = assess(tmp_path / "virtual", back_end="simulate", replay=late, machine=busy)
    assert virtual["status"] == "ok", "the virtual clock does not care for this machine"


@for_each(
    ("longer", "reason"),
    [
        (1.02, None),
        (0.98, None),
        (1.10, "took 220 ms, but 200 ms when simulated packet by packet (+10.0%): processes took the rest"),
        (0.90, "took 180 ms, but 200 ms when simulated packet by packet (-10.0%)"),
    ],
)
def test_first_rounds_against_the_simulated_ones(tmp_path: Path, longer: float, reason: str | None) -> None:
    """Later rounds, and when a round began, do not matter."""
    names = ("tokyo/worker0", "tokyo/worker1")
    ends = {0: 3.2, 1: 3.4}
    predicted = [{"worker": name, "t0": ends[i] - 0.2, "end": ends[i], "round": i} for name in names for i in ends]
    for name in names:
        log = EventLog(tmp_path / "events", name)
        for i, duration_s in enumerate((0.2 * longer, 0.2 * longer, 9.0)):
            log.write("round", 5 + duration_s + i, t0=5 + i, round=i)
        log.close()
    report = assess(tmp_path, predicted=predicted)
    assert report["first_rounds"]["rounds"] == 2 and report["first_rounds"]["predicted_s"] == pytest.approx(0.2)
    assert report["first_rounds"]["deviation"] == pytest.approx(longer - 1)
    assert bool(report["reasons"]) == (reason is not None)
    assert reason is None or reason in report["reasons"][0]


# ---- manifest ---------------------------------------------------------------------------------------------------


def test_only_harmless_variables_are_recorded() -> None:
    taken = manifest.environment({"OMP_NUM_THREADS": "1", "AWS_SECRET_ACCESS_KEY": "x", "HOME": "/root"})
    assert taken == {"OMP_NUM_THREADS": "1"}


def as_dict(plan: Any) -> dict[str, Any]:
    from testbed.plan.model import to_json

    content: dict[str, Any] = json.loads(to_json(plan))
    return content


NOTHING = pd.DataFrame({"round": [], "accuracy": [], "chance": []})


def rounds(losses: Sequence[float | None], workers: int = 2) -> pd.DataFrame:
    """Every worker has the same loss in a round."""
    rows = [(round_, loss) for round_, loss in enumerate(losses) for _ in range(workers)]
    return pd.DataFrame(rows, columns=["round", "loss"]).astype({"loss": float})


def accuracy(*values: float, chance: float | None = 0.1) -> pd.DataFrame:
    """Evaluations every ten rounds."""
    return pd.DataFrame({"round": [10 * at + 9 for at in range(len(values))], "accuracy": values, "chance": chance})


FALLING = [2.3 * 0.95**round_ for round_ in range(60)]


@for_each(
    ("losses", "evaluations"),
    [
        (FALLING, accuracy(0.5, 0.7, 0.9)),
        (FALLING, accuracy(0.1, 0.1, 0.1)),  # slow to leave chance, but the loss falls
        (FALLING, accuracy(0.5, 0.7, 0.9, chance=None)),
        ([2.3] * 9, accuracy(0.1)),  # too few rounds to tell
        ([2.3 + 0.3 * (-1) ** round_ for round_ in range(60)], accuracy(0.3, 0.35, 0.3)),  # noise
        ([0.2, 0.3, 0.1, 0.25] * 15, accuracy(0.95, 0.96)),  # begins trained
        ([0.69] * 60, accuracy(0.5, 0.6, 0.66, 0.7, 0.72, 0.73, chance=0.5)),  # two classes: 0.75 is no chance
        ([2.3, None, *FALLING], accuracy(0.5, 0.8)),  # one bad round that was left out
        ([None] * 60, NOTHING),  # sizes only
        ([], NOTHING),
    ],
)
def test_trainings_that_work(losses: list[float | None], evaluations: pd.DataFrame) -> None:
    assert divergence(rounds(losses), evaluations, 60) == ""


@for_each(
    ("losses", "evaluations", "why"),
    [
        ([2.3, 2.2, *[None] * 8], NOTHING, "not finite from round 2"),
        ([2.3, None], NOTHING, "not finite from round 1 on"),
        (
            [1.5, 1.4, *[13.6] * 20],
            accuracy(0.1),
            "the training diverged: the loss rose from 1.5 to 13.6; lower the learning rate, or clip gradients",
        ),
        (
            [0.69] * 60,
            accuracy(0.5, 0.52, 0.55, 0.54, 0.5, 0.5, chance=0.52),
            "nothing: the accuracy stayed at 0.55, where guessing reaches 0.52; try another learning rate",
        ),
        (
            [2.3] * 60,
            accuracy(0.1, 0.11, 0.12, 0.1, 0.1, 0.1),
            "stayed at 0.12, where guessing reaches 0.1; try another learning rate, or more rounds",
        ),
    ],
)
def test_trainings_that_diverge(losses: list[float | None], evaluations: pd.DataFrame, why: str) -> None:
    assert why in divergence(rounds(losses), evaluations, 60)


def test_one_worker_that_is_lost_is_enough() -> None:
    frame = rounds(FALLING)
    frame.loc[frame.index[1::2][30:], "loss"] = None
    assert "not finite from round 30 on" in divergence(frame, accuracy(0.5, 0.7), 60)


def test_of_a_program_those_count_that_tell_a_loss() -> None:
    """Often its first process alone does; the others report samples."""
    told = rounds(FALLING, workers=1).assign(node="a/worker0")
    both = pd.concat([told, told.assign(node="b/worker0", loss=float("nan"))])
    assert "not finite" in divergence(both, NOTHING, 60)
    assert divergence(of_tellers(both), NOTHING, 60) == ""
    assert divergence(of_tellers(both.assign(loss=float("nan"))), NOTHING, 60) == ""
