"""Executes a study: makes the missing runs, then writes CSV, PNG, SVG, PDF and a verdict on every claim.

<out>/<sweep>/               one sweep directory (``testbed.execution.sweep``): runs are keyed by content
<out>/<name>.csv             one row per run, or per evaluation if the study shows curves
<out>/<name>.png|svg|pdf     all panels
<out>/verdict.json           every claim with its measured value
<out>/<name>-claims.csv|tex  the same claims as a table
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
# metadata that makes a figure's file the same each time it is drawn
FORMATS: dict[str, dict[str, Any]] = {"png": {"Software": None}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}
DEFAULT_TARGET = 0.9
_OF_COMPARISONS = {"training.rounds", "training.evaluate_every", "optimizer.learning_rate"}
"""Settings that variants may set only to make a comparison fair. They do not make two variants different."""

Watch = Callable[[sweeps.SweepJob], AbstractContextManager[Any]]


def unseen(_: sweeps.SweepJob) -> AbstractContextManager[Any]:
    """Return a ``Watch`` that shows nothing."""
    return nullcontext(SimpleNamespace(take=lambda *_: None, warn=lambda *_: None))


def execute(name: str, study: Study, request: Request, watch: Watch = unseen) -> dict[str, Any]:
    """Write all files of a study under ``request.out``; return the verdict, and the table ``means``.

    watch  shows the progress of one sweep

    Raise ``ScenarioError`` for an invalid setting, and ``RunFailed`` if a run fails.
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
    """Write the CSV file and the figures of a study; return its runs and curves with derived columns.

    found    the rows of runs, and those of curves (``None`` without curves)
    missing  labels of variants that were not run. Columns and figures that need them are left out
    swept    settings that the user sweeps: each of their points has a figure of its own, since a figure shows means
             over seeds of runs that are otherwise equal
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
    table = rows if curves is None else rows.merge(curves, "left")  # on the common columns
    atomic.write_text(out / f"{name}.csv", table.to_csv(index=False))
    for number, (told, each) in enumerate(parts, 1):
        stem = name if len(parts) == 1 else f"{name}-{number}"
        with _unless(missing):
            _save(study, each, out / stem, told)
    return results


def _points_of(rows: pd.DataFrame, swept: Sequence[str]) -> list[tuple[str, dict[str, Any], pd.DataFrame]]:
    """Return each point of the settings ``swept``: as text, as values by column, and its rows."""
    if not swept:
        return [("", {}, rows)]
    points = rows[list(swept)].drop_duplicates().to_dict("records")
    wheres = [{str(path): value for path, value in point.items()} for point in points]
    return [
        (", ".join(f"{path} {value}" for path, value in where.items()), where, select(rows, where)) for where in wheres
    ]


@contextmanager
def _unless(missing: Sequence[str]) -> Iterator[None]:
    """Ignore errors of code that needs the variants ``missing``; if none are missing, raise them."""
    try:
        yield
    except (LookupError, ValueError, ZeroDivisionError):
        if not missing:
            raise


def means(study: Study, rows: pd.DataFrame) -> pd.DataFrame:
    """Return the values that the panels show: one row per combination of varying settings, one column per panel.

    A value is the mean over seeds of the panel's ``y``.
    """
    shown = [panel for panel in study.panels if panel.y and panel.kind != "curve"]
    texts = [name for name in rows if rows[name].map(type).eq(str).all() and "sha256" not in name]
    places = [name for name in dict.fromkeys([*PLACE[:-1], *texts]) if name in rows and rows[name].nunique() > 1]
    found: dict[tuple[Any, ...], dict[str, float]] = {}
    for panel in shown:
        part = select(rows, panel.where)
        heading = " ".join(filter(None, (panel.title, panel.y_label)))
        # a missing value, such as that of a setting of another sweep, counts as a value
        places_of = part[places].astype(object).where(part[places].notna(), None).itertuples(index=False, name=None)
        for place, values in values_of(part, panel.y).groupby(pd.Series(list(places_of), part.index), sort=False):
            found.setdefault(place, {})[heading] = float(values.mean())
    columns = dict.fromkeys(heading for means_of in found.values() for heading in means_of)
    table = [
        (*(place or ("all",)), *(means_of.get(heading) for heading in columns)) for place, means_of in found.items()
    ]
    return pd.DataFrame(table, columns=[*(places or [""]), *columns])


def _check(study: Study, request: Request) -> None:
    """Raise ``ScenarioError`` if ``--only`` names a variant that the study does not have."""
    known = dict.fromkeys(label for sweep in study.sweeps(request.quick) for label in sweep.variants)
    if unknown := [label for label in request.only if label not in known]:
        raise ScenarioError(f"--only: no variant '{unknown[0]}' in this study (one of {', '.join(known)})")


def swept_by(study: Study, request: Request) -> list[str]:
    """Return the settings that the user sweeps but the study does not, so that its claims and panels ignore them."""
    known = {completed(path) for sweep in study.sweeps(request.quick) for path in sweep.grid}
    return [path for path, values in request.settings.items() if len(values) > 1 and completed(path) not in known]


def left_out(study: Study, request: Request) -> list[str]:
    """Return the labels of the variants that ``--only`` leaves out."""
    declared = study.sweeps(request.quick) if request.only else ()
    labels = dict.fromkeys(label for sweep in declared for label in sweep.variants)
    return [label for label in labels if label not in request.only]


def claims_of(study: Study, results: Results, missing: Sequence[str], swept: Sequence[str] = ()) -> list[Claim]:
    """Return the study's claims with their measured values.

    missing  labels of variants that were not run; if there are any, every claim is unresolved
    swept    settings that the user sweeps: each of their points has claims of its own
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
    """Yield the claims, separately for each back end."""
    ran = list(results.runs["back_end"].unique())
    for on in ran:
        for each in verdict.claims_of(study, results.made(on)):
            yield replace(each, claim=f"{each.claim} ({BACK_ENDS[on].label})") if len(ran) > 1 else each


def results_of(name: str, study: Study, rows: pd.DataFrame, curves: pd.DataFrame | None) -> Results:
    """Return the results that claims and panels use, with derived columns and published numbers."""
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
    """Yield every sweep of a study on every requested back end. Raise ``ScenarioError`` for invalid settings."""
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
    """Return the path of a scenario. ``given``: a path, or a YAML text, which is written into ``folder``."""
    if "\n" in given:
        path = folder / "scenario.yaml"
        path.write_text(given)
        return path
    path = SCENARIOS / given  # an absolute path stays as it is
    if not path.is_file():
        raise ScenarioError(f"{path}: no such scenario")
    return path


def _is_below(place: str, others: Collection[str]) -> bool:
    """Return whether the path of a setting is one of ``others``, or inside one of them."""
    return any(place == other or place.startswith((f"{other}.", f"{other}[")) for other in others)


def _differ(first: Mapping[str, str], second: Mapping[str, str]) -> bool:
    """Return whether two variants differ in more than the settings of ``_OF_COMPARISONS``."""
    one, other = ({completed(path): value for path, value in settings.items()} for settings in (first, second))
    return any(one.get(place) != other.get(place) for place in {*one, *other} - _OF_COMPARISONS)


def _asked(sweep: StudySweep, request: Request, swept: Sequence[str]) -> StudySweep:
    """Return the sweep with the user's settings: they replace values of the grid, or are added to every variant.

    swept  the user's settings that have several values in every sweep. Other settings with several values apply only
           to sweeps whose grid has them.

    Raise ``ScenarioError`` if the settings would make two variants equal.
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
    """Yield the label of the variant and the point of every run of a sweep.

    folder  of the files that the scenario and the settings name. They may be code, since a study is code itself
    """
    for label, settings in sweep.variants.items():
        fixed = [SweepAxis((path,), ((value,),)) for path, value in settings.items() if path not in sweep.grid]
        grid = [SweepAxis((path,), tuple((value,) for value in values)) for path, values in sweep.grid.items()]
        swept = SweepSettings((*fixed, *grid), sweep.seeds)
        for point in points_of(scenario, swept, on, allow_code=True, folder=folder):
            yield label, point


def run_all(study: Study, request: Request, watch: Watch = unseen) -> list[StudyRun]:
    """Return all runs of a study; make those that are missing. Raise the errors of ``execute``."""
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
    if study.parts:  # parts may share a case
        rows = rows.drop_duplicates([*PLACE, "learning_rate"], ignore_index=True)
    curves = None
    if any(panel.kind == "curve" for panel in study.panels):
        curves = pd.concat([accuracy(each).assign(**_place(each)) for each in found], ignore_index=True)
    code = {str(each.run.manifest.get("testbed", {}).get("git_commit")) for each in found}
    return rows, curves, code


def _own(study: Study, each: StudyRun) -> dict[str, Any]:
    """Return the columns that the study and its parts add for a run."""
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
    """Return the columns that every study has: place, result, throughput, traffic, time to a target, fidelity.

    target  accuracy; ``None``: the scenario's own target, or 90 %
    """
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
    """Write the figure in all formats. ``told``: its heading, if it is one of several."""
    with panels.style():
        picture = draw(study, results)
        if told:
            picture.suptitle(told, fontsize=9)
        for form, metadata in FORMATS.items():
            with atomic.replacing(stem.with_name(f"{stem.name}.{form}")) as temporary:
                picture.savefig(temporary, format=form, bbox_inches="tight", metadata=metadata)


def as_latex(table: pd.DataFrame) -> str:
    """Return a table as a LaTeX ``tabular``: text on the left, numbers on the right, dashes for missing values."""
    columns = "".join("r" if kind.kind in "if" else "l" for kind in table.dtypes)
    rows = [[_latex_cell(value) for value in row] for row in table.itertuples(index=False)]
    return tabular(columns, [[latex_text(str(name)) for name in table]], rows)


def _latex_cell(value: Any) -> str:
    if isinstance(value, float):
        return "--" if math.isnan(value) else numbers.short(value)
    return "--" if value is None else latex_text(str(value))
