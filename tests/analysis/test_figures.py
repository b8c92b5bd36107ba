"""What the figures show: axes with units, the series with their values, legible text; not only that a file exists."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from analysis import identity
from analysis.figures import compare as compare_figure
from analysis.figures import panels
from analysis.figures import run as run_figure
from analysis.load import StoredRun, load_run
from analysis.metrics import accuracy_curve
from testbed.results.columns import TABLES
from tests.for_each import for_each
from tests.results.fake_run import make_run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> StoredRun:
    return load_run(make_run(tmp_path_factory.mktemp("runs") / "run"))


@pytest.fixture(scope="module")
def figure(run: StoredRun) -> Figure:
    return run_figure.draw(run)


def titled(figure: Figure, title: str) -> Axes:
    (axes,) = [axes for axes in figure.axes if axes.get_title(loc="left") == title or axes.get_title() == title]
    return axes


def test_accuracy_over_time(figure: Figure, run: StoredRun) -> None:
    axes = titled(figure, "Accuracy over time")
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("training time (s)", "test accuracy (%)")
    lines = {line.get_label(): line for line in axes.lines}
    scores = accuracy_curve(run)
    assert np.allclose(lines["test accuracy"].get_ydata(), scores["accuracy"])
    assert np.allclose(lines["test accuracy"].get_xdata(), scores["time_s"])
    assert "target 80 %" in lines
    assert [text.get_text() for text in axes.texts] == ["2.34 s"]


def test_time_split_has_every_node_and_part(figure: Figure) -> None:
    axes = titled(figure, "Time of a round")
    assert axes.get_xlabel() == "mean time per round (ms)"
    names = [label.get_text() for label in axes.get_yticklabels()]
    assert names[:3] == ["virginia/global0", "virginia/server0", "virginia/worker0"]
    assert len(names) == 10
    widths = {bars.get_label(): [bar.get_width() for bar in bars] for bars in axes.containers}
    assert list(widths) == ["compute", "LAN", "WAN", "waiting"]
    assert widths["WAN"][names.index("tokyo/worker0")] == pytest.approx(200, abs=0.01)
    assert to_hex(axes.containers[2][0].get_facecolor()).upper() == identity.PARTS["wan"].color


def test_every_link_shows_configured_and_achieved(figure: Figure) -> None:
    axes = titled(figure, "virginia → tokyo")
    (configured,) = axes.lines
    assert set(np.unique(configured.get_ydata())) == {10.0, 20.0}  # Mbit/s
    (achieved,) = axes.collections
    top = achieved.get_paths()[0].vertices[:, 1].max()
    assert top == pytest.approx(20 * 0.96, rel=0.01)
    words = [part._supylabel.get_text() for part in figure.subfigs if part._supylabel]
    assert "rate (Mbit/s)" in words
    assert len([axes for axes in figure.axes if "→" in axes.get_title(loc="left")]) == 4


def test_the_head_says_what_ran_and_whether_to_believe_it(figure: Figure) -> None:
    words = " | ".join(text.get_text() for text in figure.subfigs[0].texts)
    assert "quickstart" in words
    assert "FSA, emulated: 3 data centres, 6 workers, seed 1" in words
    assert "run done, fidelity ok" in words
    assert "8 rounds of 257 ms" in words


def test_no_text_leaves_the_picture_or_covers_another(figure: Figure) -> None:
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    frame = figure.bbox
    boxes = []
    for axes in figure.axes:
        texts = [axes.title, axes._left_title, axes.xaxis.label, axes.yaxis.label, *axes.get_yticklabels()]
        boxes += [
            (text.get_text(), text.get_window_extent()) for text in texts if text.get_text() and text.get_visible()
        ]
    for word, box in boxes:
        assert frame.x0 - 1 <= box.x0 and box.x1 <= frame.x1 + 1, word
        assert frame.y0 - 1 <= box.y0 and box.y1 <= frame.y1 + 1, word
    titles = [(word, box) for word, box in boxes if "→" in word or word.startswith(("Accuracy", "Time"))]
    for i, (word, box) in enumerate(titles):
        assert not any(box.overlaps(other) for _, other in titles[i + 1 :]), word


def test_a_run_without_links_says_so(tmp_path: Path) -> None:
    path = make_run(tmp_path / "run", back_end="local")
    log = path / "events" / "monitor.0000.jsonl.gz"
    log.unlink()
    for table in (path / "tables").iterdir():
        table.unlink()
    figure = run_figure.draw(load_run(path))
    words = [text.get_text() for axes in figure.axes for text in axes.texts]
    assert "Local run: nodes talk over loopback, without WAN links." in words


def test_both_directions_of_a_pair_stand_below_each_other(run: StoredRun) -> None:
    assert run_figure._busiest(run) == [
        "frankfurt>virginia", "tokyo>virginia", "virginia>frankfurt", "virginia>tokyo",
    ]  # fmt: skip


def test_comparison_has_a_series_and_a_bar_per_run(run: StoredRun, tmp_path: Path) -> None:
    other = load_run(make_run(tmp_path / "simulated", back_end="simulate"))
    figure = compare_figure.draw([run, other], 0.9)
    over_time, over_bytes, time = figure.axes
    assert [line.get_label() for line in over_time.lines] == ["FSA, emulated", "FSA, simulated", "target 90 %"]
    assert [line.get_linestyle() for line in over_time.lines[:2]] == ["-", "--"]
    assert over_bytes.get_xlabel() == "tensors sent over the WAN (MB)"
    assert over_bytes.lines[0].get_xdata()[-1] == pytest.approx(8 * 4 * 0.104)
    assert [label.get_text() for label in time.get_yticklabels()] == ["FSA, emulated", "FSA, simulated"]
    assert [bars.get_label() for bars in time.containers] == ["compute", "LAN", "WAN", "waiting"]


def test_a_run_without_an_evaluation_has_no_line_but_its_bar(run: StoredRun) -> None:
    tables: Any = {**{name: run.tables[name] for name in TABLES}, "accuracy": run.tables["accuracy"].head(0)}
    over_time, _, time = compare_figure.draw([run, replace(run, tables=tables)], 0.9).axes
    assert [len(line.get_xdata()) for line in over_time.lines[:2]] == [4, 0]
    assert len(time.get_yticklabels()) == 2


def test_long_rounds_and_runs_are_told_in_units_that_read(run: StoredRun) -> None:
    assert run.result is not None
    slow = replace(run, result={**run.result, "round_time_s": 1.48})
    words = " | ".join(text.get_text() for text in run_figure.draw(slow).subfigs[0].texts)
    assert "8 rounds of 1.48 s" in words


def test_training_ends_with_what_was_recorded_last(run: StoredRun) -> None:
    """The host of a program was killed: no process has a final event."""
    tables = {name: run.tables[name] for name in ("training", "rounds", "links")}
    program = replace(run, plan={**run.plan, "program": {"command": ["true"]}})
    last_s = max(float(tables[name]["t_s"].max()) for name in ("rounds", "links")) - run.start_s

    def end_s(**changed: pd.DataFrame) -> float:
        shown: Any = {**tables, "finals": pd.DataFrame({"t_s": []}), **changed}
        return panels.end_of_training_s(replace(program, tables=shown))

    assert end_s() == pytest.approx(last_s)
    assert end_s(finals=pd.DataFrame({"t_s": [run.start_s + 1.0]})) == pytest.approx(1.0)
    assert end_s(rounds=tables["rounds"].head(0), links=tables["links"].head(0)) == 1e-3


@for_each("end_s", [601.0, 1300.0, 5000.0, 36_000.0])
def test_minutes_stand_where_their_labels_say(end_s: float) -> None:
    figure = Figure()
    axes = figure.subplots()
    panels.time_axis(axes, end_s)
    FigureCanvasAgg(figure).draw()
    assert axes.get_xlabel() == "training time (min)"
    labels = [float(label.get_text()) for label in axes.get_xticklabels()]
    assert len(labels) > 3
    assert labels == pytest.approx([place / 60 for place in axes.get_xticks()])


def test_a_target_is_told_as_it_was_written() -> None:
    axes = Figure().subplots()
    panels.accuracy_axis(axes, 0.975)
    assert [line.get_label() for line in axes.lines] == ["target 97.5 %"]


def test_what_there_is_no_room_for_is_counted(run: StoredRun, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_figure, "NODES_SHOWN", 4)
    monkeypatch.setattr(run_figure, "LINKS_SHOWN", 2)
    figure = run_figure.draw(run)
    axes = titled(figure, "Time of a round")
    assert len(axes.get_yticklabels()) == 4 and axes.get_xlabel() == "mean time per round (ms), 4 of 10 nodes"
    words = [part._suptitle.get_text() for part in figure.subfigs if part._suptitle]
    assert words == ["WAN links: configured and achieved rate, 2 of 4 links"]


def test_parts_of_the_time_that_do_not_occur_are_not_in_the_legend() -> None:
    axes = Figure().subplots()
    split = pd.DataFrame({"compute_s": [0.1, 0.2], "codec_s": 0.0, "lan_s": [0.0, 0.1], "wan_s": 1.0, "waiting_s": 0.0})
    panels.stacked_time(axes, ["a", "b"], split)
    assert axes.get_legend_handles_labels()[1] == ["compute", "LAN", "WAN"]


def test_curves_that_coincide_can_all_be_seen(run: StoredRun) -> None:
    axes = Figure().subplots()
    looks = [identity.series(number) for number in range(3)]
    panels.accuracy_of(axes, [run, run, run], looks, "time_s", None)
    widths = [line.get_linewidth() for line in axes.lines]
    assert len(widths) == 3 and widths == sorted(widths, reverse=True) and len(set(widths)) == 3
