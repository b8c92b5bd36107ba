"""The page of a sweep: conclusion, comparison of its points, their settings, and how reliable its runs are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from functools import partial
from html import escape
from statistics import median
from typing import Any

from matplotlib.figure import Figure

from analysis.figures import sweep as drawing
from analysis.load import StoredRun
from analysis.report import charts
from analysis.report.page import badge, card, document, provenance, table, without_folders
from analysis.sweeps.conclusion import measure_of
from analysis.sweeps.points import Case, Point
from analysis.sweeps.stored import SweepComparison
from testbed.numbers import MISSING, between, counted, factor, seconds, share, short, size
from testbed.results import COMPLETED
from testbed.target import learning_of, score_text

REASONS_SHOWN = 12


def page(compared: SweepComparison) -> str:
    """Return the HTML document about a sweep."""
    body = "".join(_body(compared))
    return document(compared.name, body)


def _body(compared: SweepComparison) -> Iterator[str]:
    yield f"<header><h1>{escape(compared.name)}</h1><p class='muted'>{escape(_about(compared))}</p></header>"
    first, *others = compared.conclusion
    yield f"<p class='conclusion'>{escape(first)}</p>"
    yield from (f"<p>{escape(sentence)}</p>" for sentence in others)
    parts = {
        "points": "Points",
        "learning": "Learning",
        "ratios": "Beside the base",
        "settings": "Settings",
        "trust": "Fidelity",
        "provenance": "What ran on what",
    }
    links = "".join(f"<a href='#{place}'>{escape(name)}</a>" for place, name in parts.items())
    yield f"<nav aria-label='Contents'>{links}</nav>"
    for case in compared.cases:
        yield _table(compared, case)
    yield "<h2 id='learning'>Learning</h2>"
    for case in compared.cases:
        yield from _learning(compared, case)
    yield "<h2 id='ratios'>Beside the base</h2>"
    for case in compared.cases:
        yield from _ratios(compared, case)
    yield from _settings(compared)
    yield from _trust(compared)
    yield from provenance(_first_runs(compared))


def _about(compared: SweepComparison) -> str:
    runs = list(compared.runs.values())
    plan = runs[0].plan
    sites = len(plan["network"]["sites"])
    workers = sum(node["role"] == "worker" for node in plan["nodes"])
    points = sum(len(case.points) for case in compared.cases)
    seeds = len({row["seed"] for row in compared.rows})
    job = f"{plan['training']['model']['kind']} on {plan['training']['data']['kind']}"
    if runs[0].program:
        job = " ".join(runs[0].program["command"] or runs[0].program["first"])
    size_of = f"{counted(sites, 'data centre')}, {counted(workers, 'worker')}"
    return f"{plan['name']}: {job}, {size_of}; {counted(points, 'point')}, {counted(seeds, 'seed')}"


def _table(compared: SweepComparison, case: Case) -> str:
    timed = measure_of(compared.cases, compared.target)
    measure = learning_of(compared.target)
    looks = drawing.looks_of(compared, case)
    head = (
        "point",
        ">seeds",
        f">{measure}",
        f">{drawing.title_of(timed, compared.target).lower()}",
        ">× base",
        ">round",
        ">samples/s",
        ">WAN",
        ">× base",
        ">waiting",
    )
    rows = []
    for point in case.points:
        color = looks[point.label].color if point.label in looks else "transparent"
        rows.append(
            (
                f"<span class='swatch' style='background:{color}'></span>{escape(point.label)}",
                _seeds(point),
                _middle(point, measure, partial(score_text, measure)),
                _middle(point, timed, seconds) + _partly(point, timed),
                _ratio(case, point, timed),
                _middle(point, "round_time_s", seconds),
                _middle(point, "samples_per_s", short),
                _middle(point, "wan_bytes", size),
                _ratio(case, point, "wan_bytes"),
                _middle(point, "waiting_share", share),
            )
        )
    title = f"<h3>{escape(case.told)}</h3>" if case.told else ""
    note = (
        f"Medians over seeds, below them the least and the most. × {escape(case.base.label)} of the same seed, with "
        f"the 95 % interval of the mean of the ratios. {measure.capitalize()} is that at the end, and WAN that of the "
        "whole run, with the rounds after the target."
    )
    identity = " id='points'" if case is compared.cases[0] else ""
    return f"<section class='card'{identity}>{title}{table(head, rows)}<p class='note'>{note}</p></section>"


def _seeds(point: Point) -> str:
    done = len(point.completed)
    return str(done) if done == len(point.rows) else f"{done} of {len(point.rows)}"


def _middle(point: Point, measure: str, form: Any) -> str:
    values = sorted(point.values(measure))
    if not values:
        return MISSING
    ends = (form(values[0]), form(values[-1]))
    spread = f"<br><span class='muted'>{between(*ends, '–')}</span>" if ends[0] != ends[1] else ""
    return f"{form(median(values))}{spread}"


def _partly(point: Point, measure: str) -> str:
    known = len(point.values(measure))
    if measure != "time_to_target_s" or known == len(point.completed):
        return ""
    return f"<br>by {known} of {len(point.completed)} seeds" if known else "<br>by no seed"


def _ratio(case: Case, point: Point, measure: str) -> str:
    if point is case.base:
        return "base"
    ratio = point.ratio(case.base, measure)
    if ratio is None:
        return MISSING
    interval = "" if ratio.count == 1 else f"<br><span class='muted'>{short(ratio.low)}–{short(ratio.high)}</span>"
    return f"{factor(ratio.value)}{interval}"


def _learning(compared: SweepComparison, case: Case) -> Iterator[str]:
    before = f"{case.told}: " if case.told else ""
    runs = [run for point in case.points for run in compared.runs_of(point)]
    yield "<div class='grid'>"
    if any(run.tables["accuracy"]["accuracy"].notna().any() for run in runs):
        measure = learning_of(compared.target).capitalize()
        spread = "Mean over the seeds, in a band from the least to the most of them."
        for over, name, note in (
            ("time_s", f"{measure} over time", f"{spread} Evaluation is left out of the time."),
            ("wan_bytes", f"{measure} over WAN traffic", f"{spread} Tensors that crossed between data centres."),
        ):
            title = f"{before}{name}"
            yield card(title, note, charts.svg(partial(_curves, compared, case, over), charts.NARROW_IN, 3.2, title))
    else:
        yield card(f"{before}Accuracy", "", "<p class='muted'>No evaluation in these runs.</p>", wide=True)
    yield "</div>"


def _curves(compared: SweepComparison, case: Case, over: str, figure: Figure) -> None:
    axes = figure.subplots()
    drawing.curves(axes, compared, case, drawing.looks_of(compared, case), over)
    figure.legend(*axes.get_legend_handles_labels(), loc="outside upper left", ncols=3)


def _ratios(compared: SweepComparison, case: Case) -> Iterator[str]:
    before = f"{case.told}: " if case.told else ""
    height = 0.8 + 0.3 * len(case.points)
    yield "<div class='grid'>"
    for measure in (measure_of(compared.cases, compared.target), "wan_bytes"):
        title = f"{before}{drawing.title_of(measure, compared.target)}"
        draw = partial(_bars, compared, case, measure)
        yield card(
            title, "Bars: mean ratio; lines: its 95 % interval.", charts.svg(draw, charts.NARROW_IN, height, title)
        )
    if any(run.logs_work and run.program is None for point in case.points for run in compared.runs_of(point)):
        title = f"{before}Where a round’s time goes"
        picture = charts.svg(partial(_split, compared, case), charts.WIDE_IN, height, title)
        note = "Mean over workers and seeds: every instant of a round counts once."
        yield card(title, note, f"<div class='scroll'>{picture}</div>", wide=True)
    yield "</div>"


def _bars(compared: SweepComparison, case: Case, measure: str, figure: Figure) -> None:
    drawing.ratios(figure.subplots(), case, drawing.looks_of(compared, case), measure)


def _split(compared: SweepComparison, case: Case, figure: Figure) -> None:
    axes = figure.subplots()
    drawing.split(axes, compared, case)
    figure.legend(*axes.get_legend_handles_labels(), loc="outside upper left", ncols=4, handlelength=1)


def _settings(compared: SweepComparison) -> Iterator[str]:
    """Yield the section with all settings of each point and the names of its runs."""
    rows = []
    for case in compared.cases:
        for point in case.points:
            label = f"{case.told}: {point.label}" if case.told else point.label
            settings = "<br>".join(
                f"<code>{escape(path)}={escape(value)}</code>" for path, value in point.settings.items()
            )
            runs = " ".join(f"<code>{escape(row['run'])}</code>" for row in point.rows)
            rows.append((escape(label), settings or MISSING, runs))
    yield "<h2 id='settings'>Settings</h2>"
    note = "<p class='note'><code>testbed report SWEEP/runs/RUN</code> makes the page of one run.</p>"
    common = f"<p>All points: {_code(compared.common)}</p>" if compared.common else ""
    yield f"<section class='card'>{common}{table(('point', 'settings', 'runs'), rows)}{note}</section>"


def _code(settings: Mapping[str, str]) -> str:
    return ", ".join(f"<code>{escape(path)}={escape(value)}</code>" for path, value in settings.items())


def _trust(compared: SweepComparison) -> Iterator[str]:
    """Yield the section about fidelity: how many runs are degraded, and each reason with the number of its runs."""
    results = [(name, run.result) for name, run in compared.runs.items() if run.result]
    doubtful = [(name, result) for name, result in results if result["fidelity"]["status"] != "ok"]
    state = "degraded" if doubtful else "ok"
    yield f"<h2 id='trust'>Fidelity {badge(state)}</h2><section class='card'>"
    reasons = Counter(without_folders(text) for _, result in doubtful for text in result["fidelity"]["reasons"])
    if doubtful:
        yield f"<p>{len(doubtful)} of {len(results)} runs are degraded.</p><ul class='warnings'>"
        for text, count in reasons.most_common(REASONS_SHOWN):
            yield f"<li>{escape(text)}{f' ({count} runs)' if count > 1 else ''}</li>"
        left = len(reasons) - REASONS_SHOWN
        yield "</ul>" + (f"<p class='note'>and {left} more, in fidelity.json of the runs</p>" if left > 0 else "")
    else:
        yield "<p class='note'>Links and computation of all runs were as planned.</p>"
    if not all(run.facilities.has_processes for run in compared.runs.values()):
        yield "<p class='note'>Simulated: times are predictions, exact for the model of network and compute.</p>"
    missing = [row for row in compared.rows if row["status"] not in COMPLETED]
    yield from (f"<p>{badge(row['status'])} <code>{escape(row['run'])}</code></p>" for row in missing[:REASONS_SHOWN])
    yield "</section>"


def _first_runs(compared: SweepComparison) -> list[tuple[str, StoredRun]]:
    """Return the label and first run of every point that has one."""
    points = [(case.told, point) for case in compared.cases for point in case.points]
    known = [(told, point, compared.runs_of(point)) for told, point in points]
    return [(f"{told}: {point.label}" if told else point.label, runs[0]) for told, point, runs in known if runs]
