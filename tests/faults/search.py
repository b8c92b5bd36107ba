"""Random schedules of faults in virtual time, against every technique and policy: what must hold, holds after each.

``python -m tests.faults.search --schedules 2000 --seed 1`` prints every schedule that breaks an invariant, made as
short as it can be, as the command that repeats it: ``--only SEED``.
"""

from __future__ import annotations

import argparse
import gc
import math
import multiprocessing
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from testbed.codec.options import CODECS
from testbed.engine import sync_setup
from testbed.errors import NodeLost, RunFailed
from testbed.garbage import relaxed_garbage_collection
from testbed.ids import data_center_of
from testbed.plan.model import Plan
from testbed.policy.events import Contribution
from testbed.policy.sync import SYNC
from tests.faults.plans import quick_plan, recovery_of
from tests.faults.runs import Ended, rounds_of_all, run_plan
from tests.faults.schedules import ROUNDS, Case, case, techniques

MEMORY = Path("/dev/shm")  # files there cost no disk
PORTION = 25  # schedules that a process takes at a time
REPORTED = 1000  # schedules between two words on how far it is


class CalmRun(NamedTuple):
    """A run to which nothing happened: hashes of what all held at its end, and of what those held who hold all keys."""

    hashes: set[str]
    whole: set[str]


Calm = dict[tuple[str, ...], CalmRun]  # by overrides


def broken(tried: Case, calm: Calm) -> str:
    """Which invariant it breaks; empty if none."""
    directory = Path(tempfile.mkdtemp(dir=MEMORY if MEMORY.is_dir() else None))
    try:
        if tried.exact and tried.calm not in calm:
            plan = quick_plan(tried.calm, (), recovery_of("abort", "abort", 0), 0)
            undisturbed = run_plan(plan, directory / "calm", listens=False)
            calm[tried.calm] = CalmRun(undisturbed.hashes(), _held(undisturbed))
        ended = run_plan(tried.plan, directory / "hit", listens=False)
        return _judged(tried, ended, calm.get(tried.calm, CalmRun(set(), set())))
    except Exception as error:
        return f"raised {type(error).__name__}: {error}"
    finally:
        shutil.rmtree(directory)


def _judged(tried: Case, ended: Ended, calm: CalmRun) -> str:
    if ended.error is not None and not _may_end_so(tried, ended.error):
        return f"{type(ended.error).__name__}: {ended.error}"
    if ended.error is not None:
        return _versions(ended) or _once(ended)
    if tried.exact and tried.policy != "continue" and tried.on_nan == "abort" and ended.hashes() != calm.hashes:
        return "other bits than without faults"
    if tried.exact and len(calm.whole) == 1 and len(_held(ended)) != 1:
        return "survivors hold different values"
    return _versions(ended) or _once(ended) or _rounds(ended)


def _held(ended: Ended) -> set[str]:
    """Hashes of what those hold who are there at the end: who left in good order had the values of its last round.

    Several global servers hold some of the keys each, and servers sums where workers have the optimizer. Who has come
    in time for the end only was sent the values as they are, and the others as the codec makes them.
    """
    servers = [node.name for node in ended.plan.with_role("global_server")]
    gone: dict[str, bool] = dict.fromkeys(servers if len(servers) > 1 else (), True)
    back_s: dict[str, float] = {}
    for event in ended.events("epoch"):
        gone |= dict.fromkeys(event["targets"].split(", "), not event["begins"])
        back_s |= dict.fromkeys(event["targets"].split(", "), event["t"])
    if sums_come_down(ended.plan):
        gone |= dict.fromkeys((node.name for node in ended.plan.nodes if node.role != "worker"), True)
    if ended.plan.technique.codec_tier2.kind != CODECS.default:
        trained_s = {data_center_of(event["node"]): event["t"] for event in ended.events("round")}
        gone |= {name: True for name, t in back_s.items() if trained_s.get(data_center_of(name), 0.0) < t}
    ends = {event["node"]: event.get("parameters_sha256") for event in ended.events("final")}
    return {digest for name, digest in ends.items() if digest and not gone.get(name)}


def sums_come_down(plan: Plan) -> bool:
    """Whether servers hold sums of gradients, for an optimizer of the workers."""
    gradients = sync_setup.contribution_of(plan) is Contribution.GRADIENT
    return bool(plan.with_role("global_server")) and (
        gradients and plan.technique.optimizer.options.get("at") == "worker"
    )


def _may_end_so(tried: Case, error: BaseException) -> bool:
    """The errors that a policy promises."""
    if isinstance(error, NodeLost):
        return tried.policy == "abort"
    full_disks = ("times in a row",) if sum("kind: disk_full" in fault for fault in tried.faults) > 1 else ()
    promised = {
        "continue": ("no other training worker is left", *full_disks),
        "restart": ("times in a row",),
        "abort": ("times in a row",),
    }
    texts = (*promised[tried.policy], *(("no run continues without it",) if tried.replicas else ()))
    return isinstance(error, RunFailed) and any(text in str(error) for text in texts)


def _versions(ended: Ended) -> str:
    """They go back at restarts only, and grow by one."""
    last: dict[tuple[str, int, int], int] = {}
    for update, era in _updates(ended):
        where = (update["node"], update["key"], era)
        if update["version"] != last.get(where, update["version"] - 1) + 1:
            return f"version {update['version']} of key {update['key']} after {last[where]}"
        last[where] = update["version"]
    return ""


def _once(ended: Ended) -> str:
    """A contribution to a round of a key is applied at most once.

    With a quorum, late ones are recorded under the round of the others; the server asserts that none comes twice.
    """
    seen = set()
    if not SYNC[ended.plan.technique.sync_tier2.kind].pauses:
        return ""
    for update, era in _updates(ended):
        for member in update["contributors"]:
            what = (update["node"], update["key"], update["round"], member, era)
            if what in seen:
                return f"round {update['round']} of key {update['key']} of {member} was applied twice"
            seen.add(what)
    return ""


def _updates(ended: Ended) -> Iterator[tuple[dict[str, object], int]]:
    """Each with the number of restarts and returns before it: who comes back may begin with a round it once began."""
    begins = [event["t"] for event in ended.events("restart")]
    begins += [event["t"] for event in ended.events("epoch") if event["begins"]]
    for update in ended.events("update"):
        yield update, sum(t <= update["t"] for t in begins)


def _rounds(ended: Ended) -> str:
    """Who was never hit has done every round."""
    gone = {name for event in ended.events("epoch") for name in event["targets"].split(", ")}
    gone |= set(ended.plan.late_comers)
    for node in ended.plan.training_workers:
        if node.name not in gone and sorted(set(ended.rounds(node.name))) != rounds_of_all(
            ended, node.name, ROUNDS - 1
        ):
            return f"{node.name} has left out rounds"
    return ""


def shrunk(tried: Case, calm: Calm) -> Case:
    """Without the faults that are not needed to break it."""
    for text in tried.faults:
        fewer = tried.but(*(each for each in tried.faults if each != text))
        if fewer.faults and broken(fewer, calm):
            tried = fewer
    return tried


def search(cases: Iterable[Case], calm: Calm) -> list[str]:
    """A text for every schedule that breaks something."""
    found = []
    for tried in cases:
        why = broken(tried, calm)
        if why:
            least = shrunk(tried, calm)
            said = (*least.technique, f"checkpoint.every={least.every}, replicas={least.replicas}", *least.faults)
            texts = "\n".join(f"  {text}" for text in said)
            again = f"python -m tests.faults.search --only {tried.seed}"
            found.append(f"{least.policy}: {why}\n{texts}\n  {again}")
    return found


# ---- many of them ---------------------------------------------------------------------------------------------------

_CALM: Calm = {}  # a process' own


def _portion(seeds: range) -> list[str]:
    with relaxed_garbage_collection():
        found = search(map(case, seeds), _CALM)
    gc.collect()
    return found


def in_processes(seeds: range, processes: int) -> Iterator[list[str]]:
    """What each portion of the seeds has found, searched by processes forked from this one, which is warm by then."""
    portions = [seeds[at : at + PORTION] for at in range(0, len(seeds), PORTION)]
    techniques()
    broken(case(0), _CALM)
    gc.collect()
    gc.freeze()
    with multiprocessing.get_context("fork").Pool(processes) as pool:
        yield from pool.imap(_portion, portions)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--schedules", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int)
    parser.add_argument("--seconds", type=float, default=math.inf, help="begin no more of them after this time")
    parser.add_argument("--processes", type=int, default=len(os.sched_getaffinity(0)))
    given = parser.parse_args()
    seeds = range(given.seed, given.seed + given.schedules) if given.only is None else range(given.only, given.only + 1)
    began_s, count, done = time.monotonic(), 0, 0
    for found in in_processes(seeds, given.processes):
        count, done = count + len(found), min(len(seeds), done + PORTION)
        sys.stdout.writelines(f"{text}\n" for text in found)
        sys.stdout.flush()
        if done % REPORTED == 0:
            sys.stderr.write(f"… {done} in {time.monotonic() - began_s:.0f} s\n")
        if time.monotonic() - began_s > given.seconds:
            break
    took_s, last = time.monotonic() - began_s, seeds.start + done - 1
    sys.stdout.write(
        f"searched {done} schedules ({seeds.start} to {last}) in {took_s:.0f} s: {count} broke an invariant\n"
    )


if __name__ == "__main__":
    main()
