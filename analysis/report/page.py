"""The page of a report: what ran on which machine, how reliable the results are, and where time and bytes went."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from html import escape
from pathlib import Path
from typing import Any

from analysis import identity
from analysis.compare import comparison
from analysis.figures import panels
from analysis.figures.compare import round_split
from analysis.identity import Identity
from analysis.load import NOT_LOGGED, StoredRun
from analysis.metrics import throughput
from analysis.report import charts, conclusion
from analysis.waits import matrix
from testbed.errors import ScenarioError
from testbed.numbers import MISSING, counted, factor, per_worker, rounds_of_workers, seconds, share, short, size
from testbed.results.job_index import neighbours
from testbed.results.summary import wan_bytes_of
from testbed.target import LOSS, learning_of, score_text, target_in, target_of_row

STYLE = Path(__file__).parent / "style.css"
LINES_SHOWN = 12
_ABSOLUTE = re.compile(r"(?<![\w./>~-])/(?:[\w.@+-]+/)+(?=[\w.@+-])")


def page(runs: Sequence[StoredRun]) -> str:
    """Return the HTML document about these runs. Raise ``ScenarioError`` for a run that has completed no round."""
    empty = [run for run in runs if run.result is None or (run.tables["rounds"].empty and run.program is None)]
    if empty:
        raise ScenarioError([f"{run.path}: has no result with a completed round" for run in empty])
    looks = identity.of_runs([run.plan for run in runs])
    several = len(runs) > 1
    title = f"{len(runs)} runs" if several else runs[0].plan["name"]
    labels = [look.label for look in looks] if several else [""]
    parts = "".join(
        f"<section id='run{number}'>{''.join(_of_run(run, label))}</section>"
        for number, (run, label) in enumerate(zip(runs, labels, strict=True), 1)
    )
    body = "".join(
        [*_top(runs, looks, title), parts, *provenance([*zip((look.label for look in looks), runs, strict=True)])]
    )
    return document(title, body)


def document(title: str, body: str) -> str:
    """Return an HTML document that loads nothing. ``body``: markup."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)} · testbed report</title><style>{STYLE.read_text()}</style></head>"
        f"<body><main>{body}</main></body></html>\n"
    )


def _top(runs: Sequence[StoredRun], looks: list[Identity], title: str) -> Iterator[str]:
    yield f"<header><h1>{escape(title)}</h1><p class='muted'>{escape(_about(runs))}</p></header>"
    rows = comparison(list(runs)) if len(runs) > 1 else []
    labelled = [{**row, "label": look.label} for row, look in zip(rows, looks, strict=False)]
    told = conclusion.of_several(runs, labelled) if labelled else conclusion.of_one(runs[0])
    yield f"<p class='conclusion'>{escape(told)}</p>"
    yield _contents(looks)
    yield _comparison(labelled, looks) if labelled else _headline(runs[0])
    yield "<h2 id='learning'>Learning</h2><div class='grid'>"
    if any(run.tables["accuracy"]["accuracy"].notna().any() for run in runs):
        target = target_of_row(labelled[0]) if labelled else target_in(runs[0].plan["training"])
        measure = learning_of(target).capitalize()
        for over, name, note in (
            ("time_s", f"{measure} over time", "Training time; evaluation is left out of it."),
            ("wan_bytes", f"{measure} over WAN traffic", "Tensors that crossed between data centres."),
        ):
            draw = partial(charts.learning, runs=list(runs), looks=looks, over=over, target=target)
            yield card(name, note, charts.svg(draw, charts.NARROW_IN, 3.0, name))
    else:
        yield card("Accuracy", "", "<p class='muted'>No evaluation in these runs.</p>", wide=True)
    yield "</div>"
    if len(runs) > 1 and not any(run.program for run in runs):
        known = [(run, look) for run, look in zip(runs, looks, strict=True) if run.logs_work]
        yield _splits(known) if known else ""


def _contents(looks: list[Identity]) -> str:
    """Return links to the parts of the page."""
    parts = [("learning", "Learning")]
    parts += (
        [(f"run{number}", look.label) for number, look in enumerate(looks, 1)]
        if len(looks) > 1
        else [("run1", "Network and time")]
    )
    parts.append(("provenance", "What ran on what"))
    shown = "".join(f"<a href='#{place}'>{escape(name)}</a>" for place, name in parts)
    return f"<nav aria-label='Contents'>{shown}</nav>"


def _about(runs: Sequence[StoredRun]) -> str:
    plan = runs[0].plan
    training = plan["training"]
    sites = len(plan["network"]["sites"])
    workers = sum(node["role"] == "worker" for node in plan["nodes"])
    size_of = f"{counted(sites, 'data centre')}, {counted(workers, 'worker')}"
    job = f"{training['model']['kind']} on {training['data']['kind']}, {size_of}"
    if program := runs[0].program:
        job = f"{' '.join(program['command'] or program['first'])}, {sites} data centres, {workers} processes"
    if len(runs) > 1:
        names = ", ".join(dict.fromkeys(run.plan["name"] for run in runs))
        return f"{names}: {job}" + ("" if names == plan["name"] else " (first run)")
    where = identity.of_world(plan).label
    return f"{identity.technique(identity.technique_of(plan)).label}, {where}: {job}, seed {plan['seed']}"


def _headline(run: StoredRun) -> str:
    result = run.result
    assert result is not None
    target = target_in(run.plan["training"])
    measure = learning_of(target)
    moved = wan_bytes_of(result)
    rate = throughput(run)
    reached = result.get(f"{measure}_at_target")
    maker = "worker" if "stages" not in result else "replica"
    rows = [
        (badge(result["status"]), "run"),
        (badge(result["fidelity"]["status"]), "fidelity"),
        (share(result["accuracy"]), "test accuracy, at the end"),
        *([(score_text(LOSS, result.get(LOSS)), "test loss, at the end")] if measure == LOSS else []),
        *([] if reached is None else [(score_text(measure, reached), "at the target")]),
        (rounds_of_workers(result), "rounds per worker" if "rounds_per_worker" in result else "rounds"),
        (per_worker(result, "steps"), f"steps per {maker}"),
        (per_worker(result, "samples"), f"samples per {maker}"),
        (seconds(result["round_time_s"]), "per round"),
        (seconds(result.get("step_time_s")), "per step"),
        *([(seconds(result["training_s"]), "run time")] if run.program else []),
        (seconds(result["time_to_target_s"]), f"to {target.name}" if target else "no target"),
        (size(moved), "over the WAN"),
        (short(rate), "training samples per second"),
    ]
    rows = [row for row in rows if row[0] != MISSING or row[1].startswith("to ")]
    cause = f"<p class='note'>{escape(without_folders(result['message']))}</p>" if result["message"] else ""
    resumed = result.get("resumed_round")
    return facts(rows) + cause + ("" if resumed is None else f"<p class='note'>This run {_since(resumed)}.</p>")


def _comparison(compared: Sequence[Mapping[str, Any]], looks: list[Identity]) -> str:
    wanted = target_of_row(compared[0])
    measure = learning_of(wanted)
    to_target = f">to {wanted.name}" if wanted else ">to target"
    head = (
        "run",
        f">{measure}",
        ">per round",
        ">per step",
        ">samples/s",
        to_target,
        ">speed-up",
        ">WAN",
        ">waiting",
        "fidelity",
    )
    rows = []
    for row, look in zip(compared, looks, strict=True):
        name = f"<span class='swatch' style='background:{look.color}'></span>{escape(row['label'])}"
        name += "" if row["resumed_round"] is None else "<br>" + _since(row["resumed_round"])
        reached = row[f"{measure}_at_target"]
        at_target = "" if reached is None else f"<br>{score_text(measure, reached)} at target"
        rows.append(
            (
                name,
                score_text(measure, row[measure]) + at_target,
                seconds(row["round_time_s"]),
                seconds(row["step_time_s"]),
                short(row["samples_per_s"]),
                seconds(row["time_to_target_s"]),
                factor(row["speed_up"]),
                size(row["wan_bytes"]),
                share(row["waiting_share"]),
                _states(row),
            )
        )
    note = (
        "Speed-up against the first run; a run that missed the target has none. WAN is that of the whole run, with the "
        "rounds after the target."
    )
    return f"<section class='card'>{table(head, rows)}<p class='note'>{note}</p></section>"


def _since(resumed_round: int) -> str:
    return f"goes on after {counted(resumed_round + 1, 'round')}: bytes and rounds count from there"


def _states(row: Mapping[str, Any]) -> str:
    """Return badges for the status of the run, unless it is ``done``, and for its fidelity."""
    wrong = "" if row["status"] == "done" else badge(row["status"]) + " "
    return wrong + badge(row["fidelity"])


def _splits(shown: Sequence[tuple[StoredRun, Identity]]) -> str:
    split = round_split([run for run, _ in shown])
    draw = partial(charts.time_split, split=split, names=[look.label for _, look in shown])
    picture = charts.svg(draw, charts.WIDE_IN, 0.95 + 0.3 * len(shown), "Time of a round, all runs")
    note = "Mean over the workers: every instant of a round counts once."
    figure = card("Where a round’s time goes", note, f"<div class='scroll'>{picture}</div>", wide=True)
    return f"<div class='grid'>{figure}</div>"


def _of_run(run: StoredRun, label: str) -> Iterator[str]:
    """Yield the parts about one run; ``label`` is empty if it is the only one."""
    before = f"{label}: " if label else ""
    yield f"<h2>{escape(before)}{'n' if label else 'N'}etwork and time</h2><div class='grid'>"
    yield from _topology(run, before)
    if run.program is None:
        yield from _time_of_rounds(run, before)
    yield from _links(run, before)
    yield "</div>"
    if run.program is None and run.logs_work:
        yield f"<div class='grid'>{_timeline(run, before)}</div>"
    yield _trust(run, before)


def _time_of_rounds(run: StoredRun, label: str) -> Iterator[str]:
    if not run.logs_work:
        yield card("Time of a round", "", f"<p class='muted'>{NOT_LOGGED.capitalize()}.</p>")
        return
    yield from _waited(run, label)
    every = run.time_split
    nodes = every.head(charts.NODES_SHOWN)
    few = f" The first {len(nodes)} of {len(every)} nodes." if len(nodes) < len(every) else ""
    draw = partial(charts.time_split, split=nodes, names=nodes["node"].tolist())
    yield card(
        "Time of a round, by node",
        f"Every instant of a worker’s round counts once.{few}",
        charts.svg(draw, charts.NARROW_IN, 0.95 + 0.2 * len(nodes), f"{label}Time of a round"),
    )


def _timeline(run: StoredRun, label: str) -> str:
    height = 0.85 + 0.27 * min(len(run.time_split), charts.NODES_SHOWN)
    picture = charts.svg(partial(charts.timeline, run=run), charts.WIDE_IN, height, f"{label}Timeline")
    note = (
        f"{charts.ROUNDS_SHOWN} rounds of the quickest worker, from the middle of training, as far as can be seen. "
        "<code>testbed export</code> gives all of it."
    )
    return card("Timeline", note, f"<div class='scroll'>{picture}</div>", wide=True)


def _links(run: StoredRun, label: str) -> Iterator[str]:
    used, unused = panels.used_links(run)
    if not used and not unused:
        return
    shown = used[: charts.LINKS_SHOWN]
    note = "Configured rate (the trace) and what training used of it; the busiest first, each on its own scale."
    note += _of_neighbours(run)
    if len(shown) < len(used):
        note += f" {len(used) - len(shown)} more carried less."
    if unused:
        few = ", ".join(escape(name.replace(">", " → ")) for name in unused[: charts.LINKS_SHOWN])
        more = f" and {len(unused) - charts.LINKS_SHOWN} more" if len(unused) > charts.LINKS_SHOWN else ""
        note += f" Below {share(panels.QUIET_SHARE)} of their rate, or without traffic: {few}{more}."
    picture = (
        ""
        if not shown
        else charts.svg(
            partial(charts.links, run=run, names=shown), charts.NARROW_IN, 0.75 + 0.72 * len(shown), f"{label}Links"
        )
    )
    yield card("Links over time", note, picture)


def _topology(run: StoredRun, label: str) -> Iterator[str]:
    network = run.plan["network"]
    vertices = len(network["sites"]) + len(network["routers"])
    if not len(run.tables["links"]):
        return
    if vertices > charts.VERTICES_DRAWN:
        told = f"<p class='muted'>{vertices} data centres and routers are too many for a picture.</p>"
        yield card("Topology and link load", "", told)
        return
    note = "Blue: the central data centre. Numbers: workers; and how much of each link’s rate training used on average."
    note += _of_neighbours(run)
    yield card(
        "Topology and link load",
        note,
        charts.svg(partial(charts.topology, run=run), charts.NARROW_IN, 3.7, f"{label}Topology"),
    )


def _of_neighbours(run: StoredRun) -> str:
    """Return a note that names other jobs on the same network: the load of links includes their bytes."""
    others = neighbours(run.path)
    return f" Bytes of {escape(', '.join(others))} on the same network are included." if others else ""


def _waited(run: StoredRun, label: str) -> Iterator[str]:
    sites = [site["name"] for site in run.plan["network"]["sites"]]
    between = matrix(run.tables, run.plan)
    if len(sites) < 2 or not between.to_numpy().any():
        return
    shown = charts.most_waiting(between)
    largest_s = float(shown.to_numpy().max())
    factor, unit = (1e-3, "ms") if largest_s < 2 else (1.0, "s")
    draw = partial(charts.matrix, table=shown, per=factor, unit=unit)
    served = any(node["parents"] for node in run.plan["nodes"])
    note = (
        "At the servers: what had arrived was held until another data centre’s part was there."
        if served
        else "Without servers: from the end of a worker’s own step until the last of the others was ready."
    )
    if len(shown) < len(sites):
        note += f" The {len(shown)} of {len(sites)} data centres that waited or were waited for most."
    height = 1.2 + 0.5 * len(shown)
    yield card("Waiting, by data centre", note, charts.svg(draw, charts.NARROW_IN, height, f"{label}Waits"))


def _trust(run: StoredRun, label: str) -> str:
    result = run.result
    assert result is not None
    verdict = result["fidelity"]
    told = _listed("", verdict["reasons"]) + _listed("<h3>Notes</h3>", verdict["notes"])
    if not run.facilities.has_processes:
        told += "<p class='note'>Simulated: times are predictions, exact for the model of network and compute.</p>"
    told = told or "<p class='note'>Links and computation were as planned.</p>"
    head = f"{escape(label)}fidelity" if label else "Fidelity"
    return f"<h2>{head} {badge(verdict['status'])}</h2><section class='card'>{told}</section>"


def _listed(head: str, texts: Sequence[str]) -> str:
    if not texts:
        return ""
    lines = "".join(f"<li>{escape(without_folders(text))}</li>" for text in texts[:LINES_SHOWN])
    left = len(texts) - LINES_SHOWN
    more = f"<p class='note'>and {left} more in fidelity.json</p>" if left > 0 else ""
    return f"{head}<ul class='warnings'>{lines}</ul>{more}"


def without_folders(text: str) -> str:
    """Return the text with absolute paths shortened to file names: the author's folders mean nothing to others."""
    return _ABSOLUTE.sub("", text)


def provenance(runs: Sequence[tuple[str, StoredRun]]) -> Iterator[str]:
    """Yield the section about the software and machine of each run. ``runs``: labels and runs."""
    rows = [
        (
            f"{escape(label)}<br><code>{escape(run.name)}</code>",
            *(escape(without_folders(cell)) for cell in _ran_on(run)),
        )
        for label, run in runs
    ]
    head = ("run", "technique", "software", "machine", "seed", "code")
    yield f"<h2 id='provenance'>What ran on what</h2><section class='card scroll'>{table(head, rows)}</section>"
    yield "<footer>Made by testbed from the run directories. This page loads nothing from anywhere.</footer>"


def _ran_on(run: StoredRun) -> tuple[str, ...]:
    technique = run.plan["technique"]
    named = ", ".join(f"{axis.replace('_', ' ')} {value['kind']}" for axis, value in technique.items())
    if run.program:
        named = " ".join(run.program["command"] or run.program["first"])
    software, machine, testbed = (run.provenance.get(name, MISSING) for name in ("software", "machine", "testbed"))
    return named, software, machine, str(run.plan["seed"]), testbed


# ---- pieces of HTML: arguments named ``html`` are markup; all others are escaped ------------------------------------


def card(title: str, note: str, html: str, *, wide: bool = False) -> str:
    """Return a figure with its title; ``note`` may contain markup."""
    caption = f"<figcaption>{note}</figcaption>" if note else ""
    return f"<figure class='card{' wide' if wide else ''}'><h3>{escape(title)}</h3>{caption}{html}</figure>"


def facts(rows: Iterable[tuple[str, str]]) -> str:
    """Return large values (markup), each above its meaning."""
    shown = "".join(f"<div class='fact'><b>{value}</b><span>{escape(name)}</span></div>" for value, name in rows)
    return f"<div class='facts'>{shown}</div>"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table. Cells are markup; a column whose name starts with ``>`` is aligned to the right."""
    sides = [" class='n'" if name.startswith(">") else "" for name in head]
    top = "".join(f"<th{side}>{escape(name.lstrip('>'))}</th>" for side, name in zip(sides, head, strict=True))
    lines = ["".join(f"<td{side}>{cell}</td>" for side, cell in zip(sides, row, strict=True)) for row in rows]
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    return f"<div class='scroll'><table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>"


def badge(state: str) -> str:
    return f"<span class='badge {escape(state)}'>{escape(state)}</span>"
