"""Makes a page from the paths that a user gives: runs side by side, the runs of a sweep, or those of a folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from analysis.view.page import saved_page
from analysis.view.server import ViewServer
from analysis.view.source import ViewedRun, saved, viewed
from testbed.errors import ScenarioError
from testbed.results import rundir
from testbed.results.job_index import JOBS, has_jobs

if TYPE_CHECKING:
    from analysis.view.listing import Listing

MOST_TOGETHER = 4


def server_of(paths: Sequence[Path], port: int = 0) -> ViewServer:
    """Serve the page of these paths. Raise ``ScenarioError`` if one is neither a run nor a sweep or folder of runs."""
    listing = _listing_among(paths)
    if listing is None:
        runs = viewed(_checked(paths))
        return ViewServer(runs, len(runs), port=port)

    def opened(number: int) -> ViewedRun:
        return ViewedRun(listing.paths[number], listing.labels[number])

    return ViewServer(opened, len(listing.paths), listing.table, port)


def saved_page_of(paths: Sequence[Path]) -> str:
    """Return the page of these paths as one file."""
    listing = _listing_among(paths)
    if listing is not None:
        return saved_page("sweep", listing.table())
    return saved(_checked(paths))


def _listing_among(paths: Sequence[Path]) -> Listing | None:
    if len(paths) == 1 and not rundir.is_run(paths[0]):
        from analysis.view.listing import listing_of  # importing it takes half a second

        return listing_of(paths[0] / JOBS if has_jobs(paths[0]) else paths[0])
    return None


def _checked(paths: Sequence[Path]) -> Sequence[Path]:
    if len(paths) > MOST_TOGETHER:
        raise ScenarioError(f"{len(paths)} runs: at most {MOST_TOGETHER} side by side; or give the folder they are in")
    for path in paths:
        rundir.open_run(path)
    return paths
