"""The page: what was run, on what, how far to trust it, and where time and bytes went."""

from __future__ import annotations

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
from analysis.report import charts
from analysis.waits import matrix
from testbed.errors import ScenarioError
from testbed.numbers import MISSING, factor, per_worker, seconds, share, short, size

STYLE = Path(__file__).parent / "style.css"
WARNINGS_SHOWN = 12


def page(runs: Sequence[StoredRun]) -> str:
    """Return the whole document. Raises ``ScenarioError`` for a run that has completed no round."""
    empty = [run for run in runs if run.result is None or (run.tables["rounds"].empty and run.program is None)]
    if empty:
        raise ScenarioError([f"{run.path}: has no result with a completed round" for run in empty])
    looks = identity.of_runs([run.plan for run in runs])
    title = runs[0].plan["name"] if len(runs) == 1 else f"{len(runs)} runs"
    body = "".join([*_top(runs, looks, title), *(part for run in runs for part in _of_run(run, len(runs) > 1)),
                    *_provenance(runs)])  # fmt: skip
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)} · testbed report</title><style>{STYLE.read_text()}</style></head>"
        f"<body><main>{body}</main></body></html>\n"
    )


def _top(runs: Sequence[StoredRun], looks: list[Identity], title: str) -> Iterator[str]:
    yield f"<header><h1>{escape(title)}</h1><p class='muted'>{escape(_about(runs))}</p></header>"
    yield _headline(runs[0]) if len(runs) == 1 else _comparison(runs, looks)
    yield "<h2>Learning</h2><div class='grid'>"
    if any(run.tables["accuracy"]["accuracy"].notna().any() for run in runs):
        for over, name, note in (
            ("time_s", "Accuracy over time", "Training time; evaluation is left out of it."),
            ("wan_bytes", "Accuracy over WAN traffic", "Tensors that crossed between data centres."),
        ):
            draw = partial(charts.accuracy, runs=list(runs), looks=looks, over=over)
            yield card(name, note, charts.svg(draw, charts.NARROW_IN, 3.0, name))
    else:
        yield card("Accuracy", "", "<p class='muted'>No evaluation in these runs.</p>")
    yield "</div>"
    if len(runs) > 1 and not any(run.program for run in runs):
        known = [(run, look) for run, look in zip(runs, looks, strict=True) if run.logs_work]
        yield _splits(known) if known else ""


def _about(runs: Sequence[StoredRun]) -> str:
    plan = runs[0].plan
    training, sites = plan["training"], len(plan["network"]["sites"])
    workers = sum(node["role"] == "worker" for node in plan["nodes"])
    job = f"{training['model']['kind']} on {training['data']['kind']}, {sites} data centres, {workers} workers"
    if program := runs[0].program:
        job = f"{' '.join(program['command'] or program['first'])}, {sites} data centres, {workers} processes"
    if len(runs) > 1:
        return f"{job} (first run); " + ", ".join(dict.fromkeys(run.plan["name"] for run in runs))
    where = identity.BACK_ENDS[plan["back_end"]].label
    return f"{identity.technique(identity.technique_of(plan)).label}, {where}: {job}, seed {plan['seed']}"


def _headline(run: StoredRun) -> str:
    result = run.result
    assert result is not None
    target = run.plan["training"]["target_accuracy"]
    moved = sum(each["up"] for each in result["wan_payload_bytes"].values())
    rate = throughput(run)
    rows = [
        (badge(result["status"]), "run"),
        (badge(result["fidelity"]["status"]), "fidelity"),
        (share(result["accuracy"]), "test accuracy"),
        (str(result["rounds"]), "rounds"),
        (per_worker(result, "steps"), "steps per worker"),
        (per_worker(result, "samples"), "samples per worker"),
        (seconds(result["round_time_s"]), "per round"),
        *([(seconds(result["training_s"]), "run time")] if run.program else []),
        (seconds(result["time_to_target_s"]), f"to {share(target)}" if target else "no target accuracy"),
        (size(moved), "over the WAN"),
        (MISSING if rate is None else f"{short(rate)}/s", "training samples"),
    ]
    cause = f"<p class='note'>{escape(result['message'])}</p>" if result["message"] else ""
    resumed = result.get("resumed_round")
    return facts(rows) + cause + ("" if resumed is None else f"<p class='note'>This run {_since(resumed)}.</p>")


def _comparison(runs: Sequence[StoredRun], looks: list[Identity]) -> str:
    head = ("run", ">accuracy", ">per round", ">to target", ">speed-up", ">WAN", ">waiting", "fidelity")
    compared = comparison(list(runs))
    rows = []
    for row, look in zip(compared, looks, strict=True):
        faster = factor(row["speed_up"])
        name = f"<span class='swatch' style='background:{look.color}'></span>{escape(row['label'])}"
        resumed = row["resumed_round"]
        name += f"<br><code>{escape(row['run'])}</code>" + ("" if resumed is None else "<br>" + _since(resumed))
        rows.append((name, share(row["accuracy"]),
                     seconds(row["round_time_s"]), seconds(row["time_to_target_s"]), faster, size(row["wan_bytes"]),
                     share(row["waiting_share"]), _states(row)))  # fmt: skip
    note = "Speed-up against the first run."
    return f"<section class='card'>{table(head, rows)}<p class='note'>{note}</p></section>"


def _since(resumed_round: int) -> str:
    return f"goes on after {resumed_round + 1} rounds: bytes and rounds count from there"


def _states(row: Mapping[str, Any]) -> str:
    """Return the fidelity, and before it what is wrong with the run itself."""
    wrong = "" if row["status"] == "done" else badge(row["status"]) + " "
    return wrong + badge(row["fidelity"])


def _splits(shown: Sequence[tuple[StoredRun, Identity]]) -> str:
    split = round_split([run for run, _ in shown])
    draw = partial(charts.time_split, split=split, names=[look.label for _, look in shown])
    picture = charts.svg(draw, charts.NARROW_IN, 0.95 + 0.3 * len(shown), "Time of a round, all runs")
    note = "Mean over the workers: every instant of a round counts once."
    return f"<h2>Time</h2><div class='grid'>{card('Where a round’s time goes', note, picture)}</div>"


def _of_run(run: StoredRun, several: bool) -> Iterator[str]:
    label = f"{run.name}: " if several else ""
    yield f"<h2>{escape(label)}{'n' if several else 'N'}etwork and time</h2><div class='grid'>"
    yield from _topology(run, label)
    if run.program is None:
        yield from _time_of_rounds(run, label)
    yield from _links(run, label)
    yield "</div>"
    yield _trust(run, label)


def _time_of_rounds(run: StoredRun, label: str) -> Iterator[str]:
    if not run.logs_work:
        yield card("Time of a round", "", f"<p class='muted'>{NOT_LOGGED.capitalize()}.</p>")
        return
    yield from _waited(run, label)
    every = run.time_split
    nodes = every.head(charts.NODES_SHOWN)
    few = f" The first {len(nodes)} of {len(every)} nodes." if len(nodes) < len(every) else ""
    draw = partial(charts.time_split, split=nodes, names=nodes["node"].tolist())
    yield card("Time of a round, by node", f"Every instant of a worker’s round counts once.{few}",
               charts.svg(draw, charts.NARROW_IN, 0.95 + 0.2 * len(nodes), f"{label}Time of a round"))  # fmt: skip
    height = 0.85 + 0.27 * len(nodes)
    picture = charts.svg(partial(charts.timeline, run=run), charts.WIDE_IN, height, f"{label}Timeline")
    note = f"{charts.ROUNDS_SHOWN} rounds from the middle of training. <code>testbed export</code> gives all of it."
    yield card("Timeline", note, f"<div class='scroll'>{picture}</div>", wide=True)


def _links(run: StoredRun, label: str) -> Iterator[str]:
    names = panels.links_by_traffic(run)[: charts.LINKS_SHOWN]
    if names:
        height = 0.75 + 0.72 * len(names)
        yield card("Links over time", "Configured rate (the trace) and what training used of it.", charts.svg(
            partial(charts.links, run=run, names=names), charts.NARROW_IN, height, f"{label}Links"))  # fmt: skip


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
    yield card("Topology and link load", note, charts.svg(
        partial(charts.topology, run=run), charts.NARROW_IN, 3.7, f"{label}Topology"))  # fmt: skip


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
    texts = [*verdict["reasons"], *verdict["notes"]]
    lines = "".join(f"<li>{escape(text)}</li>" for text in texts[:WARNINGS_SHOWN])
    left = len(texts) - WARNINGS_SHOWN
    more = f"<p class='note'>and {left} more in fidelity.json</p>" if left > 0 else ""
    told = f"<ul class='warnings'>{lines}</ul>{more}" if lines else "<p class='muted'>No warnings.</p>"
    if run.plan["back_end"] == "simulate":
        told += "<p class='note'>Simulated: times are predictions, exact for the model of network and compute.</p>"
    head = f"{escape(label)}fidelity" if label else "Fidelity"
    return f"<h2>{head} {badge(verdict['status'])}</h2><section class='card'>{told}</section>"


def _provenance(runs: Sequence[StoredRun]) -> Iterator[str]:
    rows = [(f"<code>{escape(run.name)}</code>", *map(escape, _ran_on(run))) for run in runs]
    head = ("run", "technique", "software", "machine", "seed", "code")
    yield f"<h2>What ran on what</h2><section class='card scroll'>{table(head, rows)}</section>"
    yield "<footer>Made by testbed from the run directories. This page loads nothing from anywhere.</footer>"


def _ran_on(run: StoredRun) -> tuple[str, ...]:
    technique = run.plan["technique"]
    named = ", ".join(f"{axis.replace('_', ' ')} {value['kind']}" for axis, value in technique.items())
    if run.program:
        named = " ".join(run.program["command"] or run.program["first"])
    software, machine, testbed = (run.provenance.get(name, MISSING) for name in ("software", "machine", "testbed"))
    return named, software, machine, str(run.plan["seed"]), testbed


# ---- pieces of HTML: what is given as ``html`` is markup already; everything else is escaped ------------------------


def card(title: str, note: str, html: str, *, wide: bool = False) -> str:
    """Return a figure with its title; ``note`` may hold markup."""
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
