"""The summary of a run with several jobs: a line for each job, and the bytes that each has sent over the links."""

from __future__ import annotations

from typing import TYPE_CHECKING

from testbed import numbers
from testbed.display import look

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from analysis.jobs import Crowded, StoredJobs
    from analysis.load import StoredRun

_LINKS_SHOWN = 16


def summary_of_jobs(stored: StoredJobs) -> list[RenderableType]:
    """Return a table of the jobs, and a table of the links that carried most bytes."""
    carried = any(stored.sent(name) for name in stored.jobs)
    return [_jobs(stored), _links(stored)] if carried else [_jobs(stored)]


def _jobs(stored: StoredJobs) -> Table:
    world = next(iter(stored.jobs.values())).facilities.name
    count = numbers.counted(len(stored.jobs), "job")
    shown = look.table(
        f"{stored.name} on {world}: {count} on one network",
        "job",
        ">starts",
        "ends",
        ">rounds",
        ">round time",
        *((">alone", ">longer") if stored.alone else ()),
        ">training",
        ">accuracy",
        "crowded most",
    )
    for name, run in stored.jobs.items():
        shown.add_row(*_row(stored, name, run))
    return shown


def _row(stored: StoredJobs, name: str, run: StoredRun) -> list[str]:
    result = run.result
    start = numbers.seconds(stored.starts_s[name])
    if result is None:
        return [name, start, run.status.state, *[numbers.MISSING] * (6 if stored.alone else 4), ""]
    row = [name, start, result["status"], numbers.rounds_of_workers(result), numbers.seconds(result["round_time_s"])]
    if stored.alone:
        alone = stored.alone.get(name)
        alone_s = alone.result["round_time_s"] if alone is not None and alone.result is not None else None
        row += [numbers.seconds(alone_s), _longer(stored.longer(name))]
    row += [numbers.seconds(result["training_s"]), numbers.share(result["accuracy"])]
    return [*row, _crowded(stored.crowded(name))]


def _crowded(crowded: Crowded | None) -> str:
    if crowded is None:
        return ""
    others = f"{numbers.share(crowded.others)} of {crowded.link} by"
    if crowded.most == crowded.others:
        return f"{others} {crowded.by}"
    return f"{others} others, {numbers.share(crowded.most)} by {crowded.by}"


def _longer(factor: float | None) -> str:
    return numbers.MISSING if factor is None else f"{factor:.2f} ×"


def _links(stored: StoredJobs) -> Table:
    """Return a table with the bytes of each job's messages on the links that carried most."""
    by_job = {name: stored.sent(name) for name in stored.jobs}
    totals: dict[str, int] = {}
    for sent in by_job.values():
        for link, size_bytes in sent.items():
            totals[link] = totals.get(link, 0) + size_bytes
    links = sorted(totals, key=lambda link: -totals[link])
    more = f"; the {_LINKS_SHOWN} of {len(links)} links that carried most" if len(links) > _LINKS_SHOWN else ""
    shown = look.table(f"messages over the links{more}", "link", *(f">{name}" for name in by_job), ">all")
    for link in links[:_LINKS_SHOWN]:
        own = (numbers.size(sent.get(link, 0)) for sent in by_job.values())
        shown.add_row(link, *own, numbers.size(totals[link]))
    return shown
