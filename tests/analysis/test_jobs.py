"""Jobs that have shared a network: who crowded whom."""

from __future__ import annotations

from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from rich.console import Console

from analysis.jobs import StoredJobs
from testbed.display.jobs import summary_of_jobs

NO_WAN = SimpleNamespace(name="local", has_wan=False)


class Sent(StoredJobs):
    """Jobs that have sent these bytes over one link."""

    SENT = {"one": 44, "two": 45, "three": 11}

    def sent(self, job: str, begin_s: float = 0.0, end_s: float = 0.0) -> dict[str, int]:
        del begin_s, end_s
        return {"a>b": self.SENT[job]}


def stored(*names: str) -> StoredJobs:
    result: dict[str, Any] = {"training_s": 1.0, "status": "done", "round_time_s": 1.0, "accuracy": None, "rounds": 1}
    simulated = SimpleNamespace(name="simulate", has_wan=True)
    run: Any = SimpleNamespace(result=result, start_s=0.0, facilities=simulated)
    return Sent(Path("run"), "name", dict.fromkeys(names, run), dict.fromkeys(names, 0.0), {})


def shown(*names: str) -> str:
    console = Console(width=200, file=StringIO())
    with console.capture() as captured:
        console.print(*summary_of_jobs(stored(*names)))
    return captured.get()


def test_who_crowded_a_job_most_is_told_with_the_bytes_of_all_and_with_its_own() -> None:
    three = stored("one", "two", "three").crowded("two")
    assert three is not None
    assert (three.by, three.others, three.most) == ("one", 0.55, 0.44)
    assert "55 % of a>b by others, 44 % by one" in shown("one", "two", "three")
    assert "49.4 % of a>b by one" in shown("one", "two")


def test_without_a_wan_no_link_carries_bytes() -> None:
    run: Any = SimpleNamespace(facilities=NO_WAN)
    assert StoredJobs(Path("run"), "name", {"one": run}, {"one": 0.0}, {}).sent("one") == {}


def test_a_job_without_a_result_has_a_mark_in_each_column() -> None:
    run: Any = SimpleNamespace(result=None, status=SimpleNamespace(state="crashed"), facilities=NO_WAN)
    console = Console(width=200, file=StringIO())
    with console.capture() as captured:
        console.print(*summary_of_jobs(StoredJobs(Path("run"), "name", {"one": run}, {"one": 0.0}, {})))
    row = next(line for line in captured.get().splitlines() if line.startswith(" one"))
    assert row.split()[3:] == ["crashed", "–", "–", "–", "–"]
