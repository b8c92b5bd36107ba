"""Finds the files of a job's trace, one for each rank, and reads them."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from testbed.errors import ScenarioError
from testbed.job_trace import chakra, pytorch
from testbed.job_trace.checks import MOST_BYTES, check
from testbed.job_trace.model import ALL_GATHER, COLLECTIVE, GATHER, SEND, JobTrace, RankTrace, Rates, whole

RANK = "{rank}"
_MOST_TIMES = 8  # assumed limit for how often an algorithm sends a tensor: to all others, or log2 p times
_ENDS = (".et", ".et.gz", ".json", ".json.gz")


def files_of(trace: Path) -> list[Path]:
    """Return the files of a job by rank. Raise ``ScenarioError`` if there are none, or one is missing.

    trace  a folder with files whose names contain the rank; a path with ``{rank}``; a path without the ending
           ``.0.et``, as ASTRA-sim takes it; or the only file of a job with one rank
    """
    if trace.is_file():
        return [trace]
    if RANK in trace.name:
        begin, _, end = trace.name.partition(RANK)
        pattern = re.compile(re.escape(begin) + r"(\d+)" + re.escape(end))
        folder = trace.parent
    elif trace.is_dir():
        pattern = re.compile(r".*?(\d+)\D*")
        folder = trace
    else:
        pattern = re.compile(re.escape(trace.name) + r"\.(\d+)\.(?:et|json)(?:\.gz)?")
        folder = trace.parent
    found: dict[int, Path] = {}
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        match = pattern.fullmatch(path.name) if path.name.endswith(_ENDS) else None
        if match and int(match[1]) in found:
            both = f"{found[int(match[1])].name} and {path.name} are both of rank {match[1]}"
            raise ScenarioError(f"{trace}: {both}; write the path with '{RANK}' in the place of the number")
        if match:
            found[int(match[1])] = path
    if not found and RANK not in trace.name and trace.is_dir():
        inside = [each.name for each in sorted(trace.iterdir()) if each.is_dir()]
        cure = (
            f"name the folder with the files, such as '{trace.name}/{inside[0]}'" if inside else "name another folder"
        )
        raise ScenarioError(f"{trace}: the folder has no files of ranks, such as job.0.et or job.0.json; {cure}")
    if not found:
        raise ScenarioError(f"{trace}: there is no such trace; name a folder, or a path with '{RANK}' in it")
    missing = next(rank for rank in range(len(found) + 1) if rank not in found)
    if missing < len(found):
        raise ScenarioError(f"{trace}: rank {missing} has no file, but rank {max(found)} has one; add its file")
    return [found[rank] for rank in range(len(found))]


def read_rank(trace: str, rank: int, kineto: str = "") -> RankTrace:
    """Return the trace of one rank. ``kineto`` names, like ``trace``, the files of PyTorch's profiler, if any."""
    path = files_of(Path(trace))[rank]
    if not kineto:
        return chakra.read(path, rank)
    times = files_of(Path(kineto))
    if rank >= len(times):
        raise ScenarioError(f"{kineto}: rank {rank} has no file here, but one in {trace}")
    return pytorch.read(path, times[rank], rank)


def read_job(trace: str, kineto: str = "", groups: str = "", rates: Rates = Rates()) -> JobTrace:  # noqa: B008
    """Return the trace of all ranks. Raise ``ScenarioError`` if it cannot be read, or cannot be played to its end."""
    ranks = tuple(read_rank(trace, rank, kineto) for rank in range(len(files_of(Path(trace)))))
    job = JobTrace(ranks, groups_of(ranks, groups))
    check(job, rates)
    return job


def groups_of(ranks: tuple[RankTrace, ...], file: str = "") -> dict[str, tuple[int, ...]]:
    """Return the process groups by name: those in ``file``, in ASTRA-sim's format, and those that ranks declare."""
    found = _groups_of_file(Path(file)) if file else {}
    for trace in ranks:
        for name, members in trace.groups.items():
            if found.setdefault(name, members) != members:
                told = f"process group '{name}' has ranks {list(members)} here, and {list(found[name])} elsewhere"
                raise ScenarioError(f"{trace.file}: rank {trace.rank}: {told}")
    return found


def _groups_of_file(path: Path) -> dict[str, tuple[int, ...]]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(content, dict):
            raise ValueError("it is not a JSON object")
        return {name: _members(name, members) for name, members in content.items()}
    except FileNotFoundError:
        raise ScenarioError(
            f'{path}: there is no such file; write one of process groups, {{"NAME": [ranks]}}'
        ) from None
    except (OSError, ValueError) as error:
        raise ScenarioError(f'{path}: is not a list of process groups, {{"NAME": [ranks]}}: {error}') from error


def _members(name: str, ranks: Any) -> tuple[int, ...]:
    """Return the ranks of a process group. Raise ``ValueError`` if they are not a list of different ranks."""
    if not isinstance(ranks, list) or not all(isinstance(rank, int | float | str) for rank in ranks):
        raise ValueError(f"group '{name}' has no list of ranks")
    members = tuple(map(whole, ranks))
    if len(set(members)) < len(members):
        raise ValueError(f"group '{name}' has a rank twice")
    return members


def digest_of(*paths: str) -> str:
    """Return a digest of these files and of all files of these traces. Empty paths are left out."""
    files = [file for path in paths if path for file in files_of(Path(path))]
    return _digest(tuple((str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in files))


@lru_cache(maxsize=64)
def _digest(files: tuple[tuple[str, int, int], ...]) -> str:
    digest = hashlib.sha256()
    for path, _, _ in files:
        with open(path, "rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()


@dataclass(frozen=True, slots=True)
class Totals:
    """Totals of a job, from which deadlines are derived.

    ranks       number of ranks
    sent_bytes  upper bound of the bytes that one rank sends
    work_s      duration of the work of all ranks together
    """

    ranks: int
    sent_bytes: int
    work_s: float


def totals_of(job: JobTrace, rates: Rates) -> Totals:
    """Return the totals. Raise ``ScenarioError`` at the node with which a rank exceeds ``MOST_BYTES`` per round."""
    sent = [0] * len(job.ranks)
    work_s = 0.0
    for trace in job.ranks:
        for node in trace.nodes:
            work_s += rates.duration_s(node)
            if node.kind == SEND:
                sent[trace.rank] += node.size_bytes
            elif node.kind == COLLECTIVE:
                others = len(job.members(node.group)) - 1
                forwards = node.operation in (ALL_GATHER, GATHER)  # a rank also forwards the data of others
                sent[trace.rank] += node.size_bytes * (others if forwards else min(_MOST_TIMES, others))
            if sent[trace.rank] > MOST_BYTES:
                told = f"has {node.size_bytes} bytes, with which its rank sends up to {sent[trace.rank]} in a round"
                cure = f"{MOST_BYTES} is the most; divide the trace, or write it again"
                raise ScenarioError(f"{trace.place(node)}: {told}; {cure}")
    return Totals(len(job.ranks), max(sent), work_s)
