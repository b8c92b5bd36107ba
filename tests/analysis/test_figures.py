"""What the figures show: axes with units, the series with their values, legible text; not only that a file exists."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.legend import Legend

from analysis import identity
from analysis.figures import compare as compare_figure
from analysis.figures import panels
from analysis.figures import run as run_figure
from analysis.load import StoredRun, load_run
from analysis.metrics import accuracy_curve
from testbed.target import ACCURACY, Target
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
    assert len([axes for axes in figure.axes if "→" in axes.get_title(loc="left")]) == 4


def test_little_traffic_on_a_fast_link_is_not_called_none(run: StoredRun) -> None:
    """A hundred kilobytes over 100 Gbit/s are too little to be drawn, and yet traffic."""
    links = run.tables["links"]
    link = links["link"].iloc[0]
    little = links.assign(configured_bps=1e12)
    axes = Figure().subplots(1, 2)
    for place, samples in zip(axes, (little, little.assign(achieved_bps=0.0)), strict=True):
        seen = SimpleNamespace(tables={**run.tables, "links": samples}, program=None, start_s=run.start_s)
        panels.rates_of_links(place.figure, [place], seen, [link])  # type: ignore[arg-type]
    assert [[text.get_text() for text in place.texts] for place in axes] == [
        ["below 0.1 % of its rate"],
        ["no traffic"],
    ]


def test_a_legend_hides_no_curve_of_low_accuracies() -> None:
    for scores, place in (([0.1, 0.15], "upper right"), ([0.1, 0.95], "lower right")):
        axes = Figure().subplots()
        axes.plot([0, 1], scores, label="test accuracy")
        panels.learning_axis(axes, Target(ACCURACY, 0.9))
        panels.learning_legend(axes, Target(ACCURACY, 0.9), opacity=1.0)
        legend = axes.get_legend()
        assert legend is not None and legend._loc_real == Legend.codes[place]  # type: ignore[attr-defined]


def test_a_run_without_links_says_so(tmp_path: Path) -> None:
    path = make_run(tmp_path / "run", back_end="local")
    log = path / "events" / "monitor.0000.jsonl.gz"
    log.unlink()
    for table in (path / "tables").iterdir():
        table.unlink()
    figure = run_figure.draw(load_run(path))
    words = [text.get_text() for axes in figure.axes for text in axes.texts]
    assert "Local run: nodes talk over loopback, without WAN links." in words


def test_comparison_has_a_series_and_a_bar_per_run(run: StoredRun, tmp_path: Path) -> None:
    other = load_run(make_run(tmp_path / "simulated", back_end="simulate"))
    figure = compare_figure.draw([run, other], Target(ACCURACY, 0.9))
    over_time, over_bytes, time = figure.axes
    assert [line.get_label() for line in over_time.lines] == ["FSA, emulated", "FSA, simulated", "target 90 %"]
    assert [line.get_linestyle() for line in over_time.lines[:2]] == ["-", "--"]
    assert over_bytes.get_xlabel() == "tensors sent over the WAN (MB)"
    assert over_bytes.lines[0].get_xdata()[-1] == pytest.approx(8 * 4 * 0.104)
    assert [label.get_text() for label in time.get_yticklabels()] == ["FSA, emulated", "FSA, simulated"]
    assert [bars.get_label() for bars in time.containers] == ["compute", "LAN", "WAN", "waiting"]
