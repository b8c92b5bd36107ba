"""Executes a study: runs what is missing, then writes CSV, PNG, SVG, PDF and a verdict on every claim.

<out>/<sweep>/             one sweep directory (``testbed.execution.sweep``): runs are keyed by content
<out>/<name>.csv           one row per run, or per evaluation where the study shows curves
<out>/<name>.png|svg|pdf   all panels            <out>/verdict.json   every claim with its measured value, also
<out>/<name>-claims.csv|tex                      as a table
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from itertools import combinations
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd

from analysis.compare import latex_text, tabular
from analysis.figures import panels
from analysis.identity import BACK_ENDS
from analysis.load import load_run
from analysis.metrics import throughput, time_to, wan_bytes
from analysis.studies import verdict
from analysis.studies.claims import UNRESOLVED, Claim, unresolved
from analysis.studies.columns import accuracy, round_s
from analysis.studies.drawing import draw, values_of
from analysis.studies.results import PLACE, Results, published, select
from analysis.studies.study import RATE, Request, Study, StudyRun, StudySweep
from testbed import numbers
from testbed.errors import RunFailed, ScenarioError
from testbed.execution import sweep as sweeps
from testbed.execution.sweep_points import SweepPoint, points_of
from testbed.results import COMPLETED, atomic
from testbed.scenario.load import completed
from testbed.scenario.sweep import SweepAxis, SweepSettings
from testbed.target import ACCURACY, Target, target_in

SCENARIOS = Path(__file__).parents[2] / "scenarios"
# metadata without anything that changes when a figure is drawn again
FORMATS: dict[str, dict[str, Any]] = {"png": {"Software": None}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}
DEFAULT_TARGET = 0.9
_OF_COMPARISONS = {"training.rounds", "training.evaluate_every", "optimizer.learning_rate"}
"""Settings in which variants may differ only for a fair comparison."""

Watch = Callable[[sweeps.SweepJob], AbstractContextManager[Any]]


def unseen(_: sweeps.SweepJob) -> AbstractContextManager[Any]:
    """Return a ``Watch`` that shows nothing."""
    return nullcontext(SimpleNamespace(take=lambda *_: None, warn=lambda *_: None))


def execute(name: str, study: Study, request: Request, watch: Watch = unseen) -> dict[str, Any]:
    """Make everything under ``request.out``; return the verdict. ``watch`` shows the progress of one sweep.

    Raises ``ScenarioError`` for a setting that cannot be, ``RunFailed`` where a run fails.
    """
    _check(study, request)
    request.out.mkdir(parents=True, exist_ok=True)
    rows, curves, code = frames(study, run_all(study, request, watch))
    missing = left_out(study, request)
    swept = swept_by(study, request)
    results = write_figure(name, study, (rows, curves), request.out, missing, swept)
    rows = results.runs
    claims = claims_of(study, results, missing, swept)
    if claims:
        table = pd.DataFrame([asdict(each) for each in claims])
        atomic.write_text(request.out / f"{name}-claims.csv", table.to_csv(index=False))
        atomic.write_text(request.out / f"{name}-claims.tex", as_latex(table))
    told = {
        "schema_version": 1,
        "figure": name,
        "title": study.title,
        "source": study.source,
        "back_ends": sorted(set(rows["back_end"])),
        "runs": len(rows),
        "code": sorted(code),
        "summary": {state: sum(each.verdict == state for each in claims) for state in ("pass", "fail", "not resolved")},
        "assertions": [asdict(each) for each in claims],
    }
    atomic.write_json(request.out / "verdict.json", told)
    return {**told, "means": means(study, rows).to_dict("records")}


def write_figure(
    name: str,
    study: Study,
    found: tuple[pd.DataFrame, pd.DataFrame | None],
    out: Path,
    missing: Sequence[str],
    swept: Sequence[str] = (),
) -> Results:
    """Write CSV and pictures of runs and curves; return these, with derived columns.

    What needs the variants ``missing`` is left out. Where the user has ``swept`` settings, each of their points has
    a picture: what is shown are means over seeds, and what is compared differs in nothing else.
    """
    rows, curves = found
    parts = [
        (told, Results(*(each, each) if curves is None else (each, select(curves, where))))
        for told, where, each in _points_of(rows, swept)
    ]
    with _unless(missing):
        parts = [
            (told, results_of(name, study, each.runs, None if curves is None else each.curves)) for told, each in parts
        ]
    rows = pd.concat([each.runs for _, each in parts]) if len(parts) > 1 else parts[0][1].runs
    results = Results(rows, rows if curves is None else curves, parts[0][1].published)
    table = rows if curves is None else rows.merge(curves, "left")  # on the columns that both have
    atomic.write_text(out / f"{name}.csv", table.to_csv(index=False))
    for number, (told, each) in enumerate(parts, 1):
        stem = name if len(parts) == 1 else f"{name}-{number}"
        with _unless(missing):
            _save(study, each, out / stem, told)
    return results


def _points_of(rows: pd.DataFrame, swept: Sequence[str]) -> list[tuple[str, dict[str, Any], pd.DataFrame]]:
    """Return the rows of each point of the settings ``swept``, with the point in words, and as values of columns."""
    if not swept:
        return [("", {}, rows)]
    points = rows[list(swept)].drop_duplicates().to_dict("records")
    wheres = [{str(path): value for path, value in point.items()} for point in points]
    return [
        (", ".join(f"{path} {value}" for path, value in where.items()), where, select(rows, where)) for where in wheres
    ]


@contextmanager
def _unless(missing: Sequence[str]) -> Iterator[None]:
    """Pass over what fails for want of variants, if some are ``missing``."""
    try:
        yield
    except (LookupError, ValueError, ZeroDivisionError):
        if not missing:
            raise


def means(study: Study, rows: pd.DataFrame) -> pd.DataFrame:
    """What the panels show, as a table: a row per place that varies, the mean over seeds of each panel's ``y``."""
    shown = [panel for panel in study.panels if panel.y and panel.kind != "curve"]
    texts = [name for name in rows if rows[name].map(type).eq(str).all() and "sha256" not in name]
    places = [name for name in dict.fromkeys([*PLACE[:-1], *texts]) if name in rows and rows[name].nunique() > 1]
    found: dict[tuple[Any, ...], dict[str, float]] = {}
    for panel in shown:
        part = select(rows, panel.where)
        heading = " ".join(filter(None, (panel.title, panel.y_label)))
        # a place that a run has not, as the variant of another sweep, is a place, too
        places_of = part[places].astype(object).where(part[places].notna(), None).itertuples(index=False, name=None)
        for place, values in values_of(part, panel.y).groupby(pd.Series(list(places_of), part.index), sort=False):
            found.setdefault(place, {})[heading] = float(values.mean())
    columns = dict.fromkeys(heading for means_of in found.values() for heading in means_of)
    table = [
        (*(place or ("all",)), *(means_of.get(heading) for heading in columns)) for place, means_of in found.items()
    ]
    return pd.DataFrame(table, columns=[*(places or [""]), *columns])


def _check(study: Study, request: Request) -> None:
    """Raise ``ScenarioError`` for labels of ``--only`` that the study has not."""
    known = dict.fromkeys(label for sweep in study.sweeps(request.quick) for label in sweep.variants)
    if unknown := [label for label in request.only if label not in known]:
        raise ScenarioError(f"--only: no variant '{unknown[0]}' in this study (one of {', '.join(known)})")


def swept_by(study: Study, request: Request) -> list[str]:
    """Return the settings that the user sweeps, and the study does not: columns that no claim or panel knows."""
    known = {completed(path) for sweep in study.sweeps(request.quick) for path in sweep.grid}
    return [path for path, values in request.settings.items() if len(values) > 1 and completed(path) not in known]


def left_out(study: Study, request: Request) -> list[str]:
    """Return the labels of the variants that ``--only`` leaves out."""
    declared = study.sweeps(request.quick) if request.only else ()
    labels = dict.fromkeys(label for sweep in declared for label in sweep.variants)
    return [label for label in labels if label not in request.only]


def claims_of(study: Study, results: Results, missing: Sequence[str], swept: Sequence[str] = ()) -> list[Claim]:
    """Return the study's claims, with what was measured. Without the variants ``missing``, none of them is decided.

    Where the user has ``swept`` settings, they are decided at each of their points alone.
    """
    claims: list[Claim] = []
    why = f"--only left out {', '.join(missing)}"
    decided = False
    with _unless(missing):
        for told, where, runs in _points_of(results.runs, swept):
            curves = select(results.curves, where)
            for each in _decided(study, replace(results, runs=runs, curves=curves)):
                claims.append(replace(each, claim=f"{told}: {each.claim}" if told else each.claim))
        decided = True
    if not decided:
        claims.append(unresolved("the claims that need what was left out", why))
    return [replace(each, verdict=UNRESOLVED, why=why) if missing else each for each in claims]


def _decided(study: Study, results: Results) -> Iterator[Claim]:
    """Yield the claims; once for each back end."""
    ran = list(results.runs["back_end"].unique())
    for on in ran:
        for each in verdict.claims_of(study, results.made(on)):
            yield replace(each, claim=f"{each.claim} ({BACK_ENDS[on].label})") if len(ran) > 1 else each


def results_of(name: str, study: Study, rows: pd.DataFrame, curves: pd.DataFrame | None) -> Results:
    """Return what claims and panels are made from, including derived columns and published numbers."""
    rows = study.derive(rows) if study.derive else rows
    return Results(rows, rows if curves is None else curves, tuple(published(name)))


# ---- runs -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StudyJob:
    """The points of one sweep of one scenario on one back end, each with the label of its variant."""

    sweep: StudySweep
    labelled: list[tuple[str, SweepPoint]]
    job: sweeps.SweepJob


def jobs(study: Study, request: Request) -> Iterator[StudyJob]:
    """Yield every sweep of a study on every requested back end. Raise ``ScenarioError`` for what cannot run."""
    swept = swept_by(study, request)
    back_ends = request.on or study.on
    with tempfile.TemporaryDirectory() as folder:
        for sweep in study.sweeps(request.quick):
            scenario = _scenario(sweep.scenario, Path(folder))
            asked = _asked(sweep, request, swept)
            files = Path.cwd() if "\n" in sweep.scenario else scenario.parent
            for on in (each for each in back_ends if not sweep.on or each in sweep.on):
                labelled = list(_points(asked, scenario, on, files))
                if not labelled:
                    continue
                name = f"{sweep.name}-{on}" if len(back_ends) > 1 else sweep.name
                yield StudyJob(
                    asked,
                    labelled,
                    sweeps.SweepJob(
                        directory=request.out / name,
                        scenario=scenario,
                        sweep=SweepSettings(),
                        points=[point for _, point in labelled],
                        jobs=request.jobs,
                        cluster=request.cluster,
                    ),
                )


def _scenario(given: str, folder: Path) -> Path:
    """Return the file of a path, or of a YAML text, which is written into ``folder``."""
    if "\n" in given:
        path = folder / "scenario.yaml"
        path.write_text(given)
        return path
    path = SCENARIOS / given  # of an absolute path, that
    if not path.is_file():
        raise ScenarioError(f"{path}: no such scenario")
    return path


def _is_below(place: str, others: Collection[str]) -> bool:
    """Return whether a place is one of the others, or below one of them."""
    return any(place == other or place.startswith((f"{other}.", f"{other}[")) for other in others)


def _differ(first: Mapping[str, str], second: Mapping[str, str]) -> bool:
    """Return whether two variants do, in more than how long and how well they are trained."""
    one, other = ({completed(path): value for path, value in settings.items()} for settings in (first, second))
    return any(one.get(place) != other.get(place) for place in {*one, *other} - _OF_COMPARISONS)


def _asked(sweep: StudySweep, request: Request, swept: Sequence[str]) -> StudySweep:
    """Return the sweep with what the user set: values of the grid are replaced, all else is added to every variant.

    swept  settings of the user's that take several values in every sweep; others do so where the grid has them

    Raise ``ScenarioError`` for settings that would make variants equal.
    """
    in_grid = {completed(path): path for path in sweep.grid}
    given = {
        in_grid.get(completed(path), path): values
        for path, values in request.settings.items()
        if len(values) == 1 or path in swept or completed(path) in in_grid
    }
    chosen = {
        label: settings for label, settings in sweep.variants.items() if not request.only or label in request.only
    }
    places = {completed(path) for path in given}
    left = {
        label: {path: value for path, value in settings.items() if not _is_below(completed(path), places)}
        for label, settings in chosen.items()
    }
    for first, second in combinations(chosen, 2):
        if _differ(chosen[first], chosen[second]) and not _differ(left[first], left[second]):
            paths = ", ".join(path for path in given if path not in sweep.grid)
            told = f"'{first}' and '{second}' of '{sweep.name}' would be the same; choose among them with --only"
            raise ScenarioError(f"--set {paths}: {told}")
    fixed = {path: values[0] for path, values in given.items() if len(values) == 1 and path not in sweep.grid}
    grid = {**sweep.grid, **{path: values for path, values in given.items() if path not in fixed}}
    variants = {label: {**settings, **fixed} for label, settings in left.items()}
    seeds = sweep.seeds if sweep.searches else request.seeds or sweep.seeds
    return replace(sweep, variants=variants, grid=grid, seeds=seeds)


def _points(sweep: StudySweep, scenario: Path, on: str, folder: Path) -> Iterator[tuple[str, SweepPoint]]:
    """``folder``: of the files that scenario and settings name, code among them, as the study is code itself."""
    for label, settings in sweep.variants.items():
        fixed = [SweepAxis((path,), ((value,),)) for path, value in settings.items() if path not in sweep.grid]
        grid = [SweepAxis((path,), tuple((value,) for value in values)) for path, values in sweep.grid.items()]
        swept = SweepSettings((*fixed, *grid), sweep.seeds)
        for point in points_of(scenario, swept, on, allow_code=True, folder=folder):
            yield label, point


def run_all(study: Study, request: Request, watch: Watch = unseen) -> list[StudyRun]:
    """Return all runs of a study; those that are missing are made. Raises as ``execute``."""
    found = [each for job in jobs(study, request) for each in _run_job(job, watch)]
    if not found:
        back_ends = " ".join(request.on or study.on)
        raise ScenarioError(f"--on {back_ends}: no variant of this study that you ask for can run there")
    return found


def _run_job(study_job: StudyJob, watch: Watch) -> list[StudyRun]:
    job = study_job.job
    grid = study_job.sweep.grid
    with watch(job) as shown:
        rows = sweeps.execute(job, shown.take, shown.warn)
    failed = [row for row in rows if row["status"] not in COMPLETED]
    if failed:
        where = job.directory / "runs" / failed[0]["run"]
        raise RunFailed(f"{len(failed)} of {len(rows)} runs failed; the first, {where}: {failed[0]['message']}")
    return [
        StudyRun(
            study_job.sweep.name,
            label,
            {path: value for path, value in point.settings.items() if path in grid},
            point.seed,
            load_run(job.path(point)),
        )
        for label, point in study_job.labelled
    ]


# ---- rows -----------------------------------------------------------------------------------------------------------


def frames(study: Study, found: list[StudyRun]) -> tuple[pd.DataFrame, pd.DataFrame | None, set[str]]:
    """Return one row per run, the rows of all curves if the study shows any, and the commits of the code that ran."""
    rows = pd.DataFrame([{**usual(each, study.target), **_own(study, each)} for each in found])
    if study.parts:  # some have a case in common
        rows = rows.drop_duplicates([*PLACE, "learning_rate"], ignore_index=True)
    curves = None
    if any(panel.kind == "curve" for panel in study.panels):
        curves = pd.concat([accuracy(each).assign(**_place(each)) for each in found], ignore_index=True)
    code = {str(each.run.manifest.get("testbed", {}).get("git_commit")) for each in found}
    return rows, curves, code


def _own(study: Study, each: StudyRun) -> dict[str, Any]:
    """Return the study's own columns."""
    values = {name: of(each) for part in (study, *study.parts) for name, of in part.columns.items()}
    if study.rates or study.parts:
        values["learning_rate"] = float(each.settings.get(RATE, "nan"))
    return values


def _place(each: StudyRun) -> dict[str, Any]:
    return {
        "sweep": each.sweep,
        "variant": each.variant,
        "back_end": each.run.plan["back_end"],
        **each.settings,
        "seed": each.seed,
    }


def usual(each: StudyRun, target: float | None) -> dict[str, Any]:
    """Return the first columns of every study's table: place, result, throughput, traffic, time to ``target``."""
    result: Mapping[str, Any] = each.run.result or {}
    known = ("rounds", "accuracy", "round_time_s", "training_s")
    own = target_in(each.run.plan["training"])
    wanted = Target(ACCURACY, target or DEFAULT_TARGET) if target or own is None else own
    return {
        **_place(each),
        **{name: result.get(name) for name in known},
        "throughput": throughput(each.run),
        "wan_bytes": wan_bytes(each.run),
        "round_s": round_s(each),
        "time_to_target_s": time_to(each.run, wanted),
        "parameters_sha256": result.get("parameters_sha256"),
        "fidelity": result["fidelity"]["status"] if result else None,
    }


# ---- files ----------------------------------------------------------------------------------------------------------


def _save(study: Study, results: Results, stem: Path, told: str = "") -> None:
    """``told``: what the figure is of, as one of several."""
    with panels.style():
        picture = draw(study, results)
        if told:
            picture.suptitle(told, fontsize=9)
        for form, metadata in FORMATS.items():
            with atomic.replacing(stem.with_name(f"{stem.name}.{form}")) as temporary:
                picture.savefig(temporary, format=form, bbox_inches="tight", metadata=metadata)


def as_latex(table: pd.DataFrame) -> str:
    """Any table as a ``tabular``: text on the left, numbers on the right with four digits, dashes for none."""
    columns = "".join("r" if kind.kind in "if" else "l" for kind in table.dtypes)
    rows = [[_latex_cell(value) for value in row] for row in table.itertuples(index=False)]
    return tabular(columns, [[latex_text(str(name)) for name in table]], rows)


def _latex_cell(value: Any) -> str:
    if isinstance(value, float):
        return "--" if math.isnan(value) else numbers.short(value)
    return "--" if value is None else latex_text(str(value))
