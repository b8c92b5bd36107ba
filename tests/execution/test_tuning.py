"""``--tune``: the grid of values, when a run is stopped, and a search from its first run to the sweep's conclusion."""

from __future__ import annotations

import json
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from analysis.sweeps.stored import compare_sweep, load_sweep
from testbed.cli.main import main
from testbed.errors import CapabilityError, ScenarioError
from testbed.execution import tuning
from testbed.execution.tuning import Grid, _Limits, _Stopper, import_optuna
from testbed.plan.build import build_plan
from testbed.results.sweep_index import read_index
from testbed.scenario import loads
from testbed.scenario.sweep import tuning_range
from testbed.target import ACCURACY, LOSS, Target
from tests.for_each import for_each
from tests.scenario.test_presets import FLAT

pytest.importorskip("optuna")


def test_the_grid_has_both_ends_and_the_point_s_own_value() -> None:
    grid = Grid(tuning_range("learning_rate=3e-4..1e-1", 8), own=0.0021)
    values = [grid.value(place) for place in range(grid.last + 1)]
    assert (values[0], values[-1]) == ("0.0003", "0.1") and "0.0021" in values
    numbers = [*map(float, values)]
    ratios = [after / before for before, after in pairwise(numbers)]
    assert all(1.1 < ratio < 1.35 for ratio in ratios)
    assert float(values[grid.steps_of(0.5)]) == pytest.approx(3e-4 * 10**0.5, rel=0.05)
    assert [Grid(tuning_range("learning_rate=0.01..1", 8), own).own_place for own in (1e-4, 0.1, 7.0)] == [0, 12, 24]


@for_each(
    ("text", "told"),
    [
        ("learning_rate", "not a range (write e.g. learning_rate=0.0003..0.1"),
        ("learning_rate=0..1", "not a range"),
        ("learning_rate=1..0.1", "not a range"),
        ("learning_rate=a..b", "not a range"),
        ("training.rounds=1..9", "'training.rounds' is not an optimizer's option"),
    ],
)
def test_a_range_that_is_none_is_refused(text: str, told: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        tuning_range(text, 8)
    assert told in str(caught.value)


def test_without_optuna_the_cure_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(CapabilityError, match=r"--tune needs Optuna.*pip install 'testbed\[tune\]'"):
        import_optuna()


EARLIER = ({1: 0.9, 5: 0.6, 9: 0.2}, {1: 0.8, 5: 0.5, 9: 0.3}, {1: 0.8, 5: 0.55, 9: 0.3})


@for_each(
    ("limits", "evaluations", "stopped_at"),
    [
        # past the best time without the target; at the target it goes on, as the time to it is that of the first
        (_Limits(Target(ACCURACY, 0.8), 10.0, ()), [(1, 15.0, 0.5), (5, 15.5, 0.5)], 5),
        (_Limits(Target(ACCURACY, 0.8), 10.0, ()), [(1, 5.0, 0.5), (5, 16.0, 0.9), (9, 17.0, 0.7)], 9),
        # worse than the median of the earlier runs, which is not asked before a third of the shortest of them
        (_Limits(None, None, EARLIER), [(1, 6.0, 0.01), (5, 7.0, 0.3)], 5),
        (_Limits(None, None, EARLIER), [(1, 6.0, 0.01), (5, 7.0, 0.6), (9, 8.0, 0.9)], None),
        (_Limits(None, None, EARLIER[:2]), [(1, 6.0, 0.01), (5, 7.0, 0.01)], None),  # two have no median to speak of
        (_Limits(None, None, ()), [(1, 6.0, 0.01), (5, 7.0, 0.01)], None),
        (_Limits(Target(LOSS, 1.0), 10.0, ()), [(1, 15.0, 0.5), (5, 15.5, 0.5)], None),  # it has reached the loss
        (_Limits(Target(LOSS, 0.9), 10.0, ()), [(1, 15.0, 0.5), (5, 15.5, 0.5)], 5),
    ],
)
def test_a_run_is_stopped_when_it_cannot_win(
    limits: _Limits, evaluations: list[tuple[int, float, float]], stopped_at: int | None
) -> None:
    stopper = _Stopper({"abc": limits})
    stopper.start(build_plan(loads(FLAT)), Path("runs/abc"))
    stopper.take({"kind": "train", "t": 5.0})
    stopped = None
    for number, at_s, accuracy in evaluations:
        try:
            stopper.take({"kind": "evaluate", "round": number, "snapshot_t": at_s, "accuracy": accuracy, "loss": 1.0})
        except KeyboardInterrupt:
            stopped = number
            break
    assert stopped == stopped_at


def test_a_search_from_its_first_run_to_the_conclusion(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = FLAT.replace("0.02", "0.002").replace("evaluate_every: 12", "evaluate_every: 2, target_accuracy: 30 %")
    (tmp_path / "s.yaml").write_text(text, encoding="utf-8")
    out = tmp_path / "tuned"
    command = [
        "sweep",
        str(tmp_path / "s.yaml"),
        "--techniques",
        "fsa",
        "--tune",
        "learning_rate=0.002..0.2",
        "--trials",
        "3",
        "--seeds",
        "2",
        "--out",
        str(out),
    ]
    assert main(command) == 0
    trials = json.loads((out / tuning.FILE).read_text())["trials"]
    assert [trial["value"] for trial in trials.values()] == ["0.002", "0.0063", trials[[*trials][2]]["value"]]
    index = read_index(out)
    assert index.tuning is not None
    [point] = index.tuning.points
    assert [each.settings for each in index.points] == [
        {"technique": "fsa", "optimizer.learning_rate": point.value}
    ] * 2
    times = {trial["value"]: trial["score"] for trial in trials.values() if trial["reached"]}
    assert point.value == min(times, key=lambda value: times[value]) != "0.002"
    told = compare_sweep(load_sweep(out)).conclusion
    start = "optimizer.learning_rate was tuned for each point between 0.002 and 0.2, by 3 runs each, with seed 1"
    assert any(sentence.startswith(start) and f"fsa {point.value}." in sentence for sentence in told)
    ends = any(sentence.startswith("The best value of fsa is the end of that range") for sentence in told)
    assert ends == (point.value == "0.2")
    capsys.readouterr()
    # the same command again runs nothing
    monkeypatch.setattr(tuning, "run_points", lambda *arguments: pytest.fail("a run was repeated"))
    assert main(command) == 0
    assert json.loads((out / tuning.FILE).read_text())["trials"] == trials
    assert "tuning" not in capsys.readouterr().out.partition("median")[0]
