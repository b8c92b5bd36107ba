"""Jobs that shared a network: the bytes that each sent over each link, and how much of a link was left to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from analysis.load import StoredRun, load_run
from testbed.ids import data_center_of
from testbed.plan.model import LinkPlan, NetworkPlan, Plan, from_json
from testbed.results import COMPLETED
from testbed.results.job_index import FILE, folder, names_of_jobs
from testbed.results.rundir import read_json

if TYPE_CHECKING:
    import pandas as pd

ALONE = "alone"
_LEAST_SHARE = 0.05  # a link that carries a smaller share of a job's bytes does not delay the job much


@dataclass(frozen=True)
class Crowded:
    """The link on which other jobs left a job the smallest share while it trained.

    by      the other job that sent the most bytes there
    others  the share of all jobs' bytes on the link that the other jobs sent
    most    the share that ``by`` sent; equal to ``others`` if no third job sent any
    """

    link: str
    by: str
    others: float
    most: float


@dataclass(frozen=True)
class StoredJobs:
    """A run with several jobs.

    jobs      the run of each job, by name
    starts_s  when each job starts, by name
    alone     completed runs of single jobs on the same network, by name, for comparison
    """

    path: Path
    name: str
    jobs: Mapping[str, StoredRun]
    starts_s: Mapping[str, float]
    alone: Mapping[str, StoredRun]

    @cached_property
    def _spans(self) -> dict[str, pd.DataFrame]:
        return {}

    def links(self) -> dict[str, LinkPlan]:
        """Return the links of the network by name."""
        return {link.name: link for run in self.jobs.values() for link in plan_of(run).network.links}

    def sent(self, job: str, begin_s: float = float("-inf"), end_s: float = float("inf")) -> dict[str, int]:
        """Return the bytes of a job's messages on each link, with headers, that arrived between two times.

        Times are on the run's clock. Retransmissions and the headers of frames do not count, so that the bytes are
        equal in all worlds. The result is empty for ``local``, which has no links.
        """
        if not self.jobs[job].facilities.has_wan:
            return {}
        spans = self.spans(job)
        sent = spans[spans["t_s"].between(begin_s, end_s)].groupby("link", sort=False)["bytes"].sum()
        return {str(link): int(size_bytes) for link, size_bytes in sent.items()}

    def spans(self, job: str) -> pd.DataFrame:
        """Return a row for each WAN message of a job and each link of its route: ``link``, ``bytes``, ``t0_s``,
        ``t_s``."""
        if job not in self._spans:
            run = self.jobs[job]
            transfers = run.tables["transfers"]
            self._spans[job] = _spans(transfers[transfers["tier"] == "wan"], plan_of(run).network)
        return self._spans[job]

    def crowded(self, job: str) -> Crowded | None:
        """Return the link on which others left this job the least; ``None`` without others there, or without a
        result."""
        run = self.jobs[job]
        if run.result is None or not run.result["training_s"]:
            return None
        window = run.start_s, run.start_s + run.result["training_s"]
        by_job = {name: self.sent(name, *window) for name in self.jobs}
        found = []
        least = _LEAST_SHARE * sum(by_job[job].values())
        for link, own in by_job[job].items():
            others = {name: sent.get(link, 0) for name, sent in by_job.items() if name != job}
            if own > least and any(others.values()):
                most = max(others, key=lambda name: others[name])
                all_bytes = own + sum(others.values())
                found.append(Crowded(link, most, sum(others.values()) / all_bytes, others[most] / all_bytes))
        return max(found, key=lambda each: each.others, default=None)

    def longer(self, job: str) -> float | None:
        """Return the time of a round as a multiple of that of the job alone; ``None`` unless both runs completed."""
        times_s = [
            run.result["round_time_s"]
            for run in (self.jobs[job], self.alone.get(job))
            if run is not None and _has_ended(run) and run.result is not None and run.result["round_time_s"]
        ]
        return times_s[0] / times_s[1] if len(times_s) == len((self.jobs, self.alone)) else None


def load_jobs(path: Path) -> StoredJobs:
    """Open the directory of a run with several jobs. Raise ``TestbedError`` if a file of it is damaged."""
    written = read_json(path / FILE)
    names = names_of_jobs(path)
    places = {name: path / ALONE / name for name in names}
    by_itself = {name: load_run(place) for name, place in places.items() if (place / "result.json").is_file()}
    alone = {name: run for name, run in by_itself.items() if _has_ended(run)}
    starts_s = {str(job["name"]): float(job["start_s"]) for job in written["jobs"]}
    return StoredJobs(
        path, str(written["scenario"]), {name: load_run(folder(path, name)) for name in names}, starts_s, alone
    )


def _has_ended(run: StoredRun) -> bool:
    return run.result is not None and run.result["status"] in COMPLETED


def plan_of(run: StoredRun) -> Plan:
    return from_json((run.path / "plan.json").read_bytes())


def _spans(transfers: pd.DataFrame, network: NetworkPlan) -> pd.DataFrame:
    """Return each message once for each link of its route."""
    import pandas as pd

    ends = [transfers[end].map(data_center_of) for end in ("source", "target")]
    sizes = transfers["payload_bytes"] + transfers["header_bytes"]
    kept = pd.DataFrame({"bytes": sizes, "t0_s": transfers["t0_s"], "t_s": transfers["t_s"]})
    parts = []
    for (source, target), messages in kept.groupby(ends, sort=False):
        parts += [messages.assign(link=link) for link in network.between(source, target)]
    return pd.concat(parts, ignore_index=True) if parts else kept.assign(link=pd.Series(dtype=str))
