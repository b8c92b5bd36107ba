"""What compare, report, figure, export and the library make of a sweep's directory."""

import csv
import json
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from analysis.figures.sweep import draw, mean_curve
from analysis.report.sweep import page
from analysis.sweeps.conclusion import conclusion
from analysis.sweeps.points import cases_of, points_of
from analysis.sweeps.stored import SweepComparison, compare_sweep, load_sweep
from testbed import api
from testbed.cli import main as command
from testbed.display.summary import sweep_table
from testbed.errors import ScenarioError
from testbed.target import ACCURACY, Target
from tests.results import fake_run
from tests.results.fake_run import make_run

WAN_S = {"fsa": 0.100, "hfa": 0.040, "diloco": 0.060}
HASHES = {(kind, seed): f"{place}{seed}" * 8 for place, kind in zip("abc", WAN_S, strict=True) for seed in (1, 2, 3)}


def write_index(path: Path, points: list[tuple[str, int]], **common: str) -> None:
    rows = [
        {"id": HASHES[kind, seed], "settings": {**common, "sync": kind, "optimizer.at": "worker"}, "seed": seed}
        for kind, seed in points
    ]
    index = {"schema_version": 1, "scenario": "quickstart.yaml", "varied": ["sync"], "points": rows}
    (path / "sweep.json").write_text(json.dumps(index))


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three techniques, of which DiLoCo's third run is not there, with two seeds or three."""
    path = tmp_path_factory.mktemp("sweeps") / "mine"
    with pytest.MonkeyPatch.context() as patch:
        for (kind, seed), name in HASHES.items():
            patch.setattr(fake_run, "WAN_S", WAN_S[kind] * (1 + seed / 10))
            if (kind, seed) != ("diloco", 3):
                make_run(path / "runs" / name, sync=kind, seed=seed)
            if kind != "fsa":  # as if a sweep of an earlier release had been continued
                (path / "runs" / f"{kind}-seed{seed}").symlink_to(name)
    write_index(path, list(HASHES), **{"training.batch": "32"})
    return path


@pytest.fixture(scope="module")
def compared(sweep: Path) -> SweepComparison:
    return compare_sweep(load_sweep(sweep))


def test_runs_are_found_by_their_links_or_by_their_hashes(sweep: Path, compared: SweepComparison) -> None:
    assert [run.name for run in compared.runs.values()][:4] == [
        *(HASHES["fsa", seed] for seed in (1, 2, 3)),
        "hfa-seed1",
    ]
    assert [row["run"] for row in compared.rows][-1] == "diloco-seed3" and compared.rows[-1]["status"] == "pending"
    assert compared.common == {"training.batch": "32", "optimizer.at": "worker"}


def test_points_seeds_and_intervals_are_those_of_the_runs(compared: SweepComparison) -> None:
    (case,) = compared.cases
    fsa, hfa, diloco = case.points
    assert (fsa.label, hfa.label, diloco.label, case.base.label) == ("FSA", "HFA", "DiLoCo", "FSA")
    ratio = hfa.ratio(fsa, "time_to_target_s")
    assert ratio is not None and ratio.count == 3 and 0.5 < ratio.value < 0.8
    assert len(diloco.completed) == 2 and len(diloco.rows) == 3
    first, *others = compared.conclusion
    assert first.startswith("HFA reached 80 % accuracy soonest") and "3 seeds decide" not in first
    assert any(each.startswith("1 of 9 runs are not done (1 pending) and are left out;") for each in others)


def test_one_command_writes_all_forms(sweep: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["compare", str(sweep), "--out", str(tmp_path), "--base", "sync=hfa", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert sorted(Path(each).name for each in told["files"]) == [
        "comparison-runs.csv",
        *(f"comparison.{form}" for form in ("csv", "html", "pdf", "png", "tex")),
    ]
    with (tmp_path / "comparison.csv").open(newline="") as file:
        points = {row["point"]: row for row in csv.DictReader(file)}
    assert [*points] == ["FSA", "HFA", "DiLoCo"] and points["HFA"]["base"] == "HFA"
    low, value, high = (float(points["FSA"][f"time_to_target_s_ratio{end}"]) for end in ("_low", "", "_high"))
    assert 1 < low <= value <= high
    with (tmp_path / "comparison-runs.csv").open(newline="") as file:
        runs = list(csv.DictReader(file))
    assert len(runs) == 9 and runs[3]["run"] == "hfa-seed1" and runs[3]["directory"] == HASHES["hfa", 1]
    table = (tmp_path / "comparison.tex").read_text()
    rows = [line for line in table.splitlines() if line.endswith(r"\\")]
    assert len({row.count("&") for row in rows}) == 1 and rows[1].count(r"$\times$ HFA") == 2 and "[" in rows[3]
    assert (tmp_path / "comparison.png").read_bytes()[:4] == b"\x89PNG"
    assert (tmp_path / "comparison.pdf").read_bytes()[:4] == b"%PDF"


def test_the_table_on_a_terminal_is_of_points(
    sweep: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Figure, "savefig", lambda figure, stream, **options: Path(stream).write_text(""))
    monkeypatch.setattr("analysis.sweeps.output.page", lambda compared: "")
    assert command.main(["compare", str(sweep), "--out", str(tmp_path)]) == 0
    text = capsys.readouterr().out
    assert "HFA reached 80 % accuracy soonest" in text and "× FSA's of the same seed" in text
    assert not any(name in text for name in HASHES.values())


class Words(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.words: list[str] = []

    def handle_data(self, data: str) -> None:
        self.words += data.split()


def test_the_page_begins_with_the_conclusion_and_names_points(compared: SweepComparison) -> None:
    text = page(compared)
    reader = Words()
    reader.feed(text)
    words = " ".join(reader.words)
    conclusion = " ".join(compared.conclusion)
    assert conclusion in words and words.index(conclusion) < words.index("Learning")
    assert "HFA sync=hfa hfa-seed1 hfa-seed2 hfa-seed3" in words
    assert "All points: training.batch=32 , optimizer.at=worker" in words
    assert "pending diloco-seed3" in words
    ratio = compared.cases[0].points[1].ratio(compared.cases[0].base, "time_to_target_s")
    assert ratio is not None and f"{ratio.value:.3g}×" in text[text.index("<svg") :], "as in the table, to the digit"


def test_a_curve_is_the_mean_of_seeds_within_their_band(compared: SweepComparison) -> None:
    runs = compared.runs_of(compared.cases[0].points[0])
    found = mean_curve(runs, "time_s")
    assert found is not None
    places, accuracies = found
    assert accuracies.shape == (3, len(places))
    assert (accuracies[0] >= accuracies[2]).all(), "the seed with a shorter WAN is ahead everywhere"
    assert accuracies[0][-1] == accuracies[2][-1], "it has ended before, and counts on with its last accuracy"


def test_the_figure_has_curves_ratios_and_times(compared: SweepComparison) -> None:
    titles = [axes.get_title(loc="left") for axes in draw(compared).axes]
    assert titles == [
        "Accuracy over time",
        "Accuracy over WAN traffic",
        "Time to 80 %",
        "WAN bytes",
        "Where a round’s time goes",
    ]


def test_a_figure_of_a_sweep_and_its_export(sweep: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["figure", str(sweep), "--out", str(tmp_path / "figure")]) == 0
    assert sorted(path.name for path in (tmp_path / "figure").iterdir()) == ["mine.pdf", "mine.png", "mine.svg"]
    assert command.main(["export", str(sweep), "--format", "csv", "--out", str(tmp_path / "csv")]) == 0
    folders = {path.name for path in (tmp_path / "csv").iterdir() if path.is_dir()}
    assert len(folders) == 8 and {"hfa-seed1", "diloco-seed2"} < folders


def test_a_run_that_is_given_by_its_link_as_well_counts_once(sweep: Path, tmp_path: Path) -> None:
    both = [str(sweep / "runs" / name) for name in ("hfa-seed1", HASHES["hfa", 1], "hfa-seed2")]
    assert command.main(["export", *both, "--format", "csv", "--out", str(tmp_path)]) == 0
    assert {path.name for path in tmp_path.iterdir() if path.is_dir()} == {"hfa-seed1", "hfa-seed2"}


def test_from_python(sweep: Path) -> None:
    comparison = api.compare(sweep, base={"sync": "hfa"}, target=0.7)
    assert str(comparison).startswith("HFA reached 70 % accuracy soonest")
    assert comparison.frame()["point"].tolist() == ["FSA", "HFA", "DiLoCo"]
    assert "HFA" in comparison._repr_html_() and len(comparison.rows) == 9
    assert comparison.latex().startswith(r"\begin{tabular}")


def test_a_sweep_of_seeds_alone_has_no_ratios(sweep: Path, tmp_path: Path) -> None:
    (tmp_path / "runs").symlink_to(sweep / "runs")
    write_index(tmp_path, [("hfa", 1), ("hfa", 2)])
    compared = compare_sweep(load_sweep(tmp_path))
    assert len(draw(compared).axes) == 3 and "in the median of 2 seeds" in compared.conclusion[0]


def test_with_one_seed_it_says_what_cannot_be_said(sweep: Path, tmp_path: Path) -> None:
    (tmp_path / "runs").symlink_to(sweep / "runs")
    write_index(tmp_path, [("fsa", 1), ("hfa", 1)])
    compared = compare_sweep(load_sweep(tmp_path))
    assert "one seed cannot say" in compared.conclusion[0]
    assert "interval" not in " ".join(compared.conclusion)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["compare", "{sweep}", "{sweep}/runs/hfa-seed1"], "a sweep cannot be compared with others"),
        (["compare", "{sweep}/nosuchsweep"], "nosuchsweep: there is no such folder"),
        (["report", "{sweep}/nosuchsweep"], "nosuchsweep: there is no such folder"),
        (["compare", "{sweep}/runs/hfa-seed1", "--base", "sync=fsa"], "--base: is only for a sweep"),
        (["report", "{sweep}", "--base", "codec=none"], "the sweep does not vary codec"),
        (["figure", "{sweep}", "--quick"], "--quick: is for a study"),
        (["figure", "{sweep}", "--set", "codec=none"], "--set: is for a study"),
    ],
)
def test_what_does_not_go_with_a_sweep_is_refused(
    words: list[str], says: str, sweep: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main([word.format(sweep=sweep) for word in words]) == 2
    assert says in capsys.readouterr().err


def test_a_sweep_without_a_finished_run_says_so(sweep: Path, tmp_path: Path) -> None:
    write_index(tmp_path, [("fsa", 1)])
    with pytest.raises(ScenarioError, match="no run of this sweep has a result yet"):
        compare_sweep(load_sweep(tmp_path))
    with pytest.raises(ScenarioError, match="is not the directory of a sweep"):
        load_sweep(sweep / "runs")


def test_report_and_figure_of_a_sweep_take_a_base_and_a_target(
    sweep: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[SweepComparison] = []
    monkeypatch.setattr("analysis.report.sweep.page", lambda compared: asked.append(compared) or "")
    monkeypatch.setattr("analysis.sweeps.output.pictures", lambda compared, out, name: asked.append(compared) or [])
    options = [str(sweep), "--base", "sync=hfa", "--target", "70 %"]
    assert command.main(["report", *options, "--out", str(tmp_path / "page.html")]) == 0
    assert command.main(["figure", *options]) == 0
    assert [(each.target, each.cases[0].base.label) for each in asked] == [(Target(ACCURACY, 0.7), "HFA")] * 2
    run = next(each for each in (sweep / "runs").iterdir() if not each.is_symlink())
    assert command.main(["report", str(run), "--target", "0.7"]) == 2
    assert command.main(["figure", str(sweep), "--target", "2"]) == 2
    assert command.main(["figure", "six-way", "--base", "sync=hfa"]) == 2
    told = capsys.readouterr().err
    assert (
        "--target: is only for a sweep" in told
        and "is not an accuracy between" in told
        and "--base: is only for a sweep" in told
    )


def test_who_reached_the_target_and_ended_below_it_is_told(compared: SweepComparison) -> None:
    rows = [
        {**row, "target": 0.8, "target_measure": ACCURACY, **({"accuracy": 0.646} if row["run"] == "hfa-seed1" else {})}
        for row in compared.rows
    ]
    (case,) = cases_of(points_of(rows, ["sync"]))
    told = "Below the target at the end, after having reached it: HFA (with 1 of 3 seeds, down to 64.6 %)."
    assert told in " ".join(conclusion([case], Target(ACCURACY, 0.8))) and "Below" not in " ".join(compared.conclusion)
    assert "WAN that of the whole run" in page(compared)
    shown = sweep_table([case])
    assert shown.title is not None and "WAN bytes of the whole run" in str(shown.title)


def test_techniques_that_were_left_out_are_told(sweep: Path) -> None:
    compared = compare_sweep(replace(load_sweep(sweep), left_out={"hitopk": "data centres differ in size"}))
    assert compared.conclusion[-1] == "hitopk was left out: data centres differ in size"
    assert "hitopk was left out: data centres differ in size" in page(compared)
