"""Traces of rate, delay and loss change links of the virtual world while training runs."""

from __future__ import annotations

from pathlib import Path

from testbed.plan.build import build_plan
from testbed.results.events import read
from testbed.scenario import loads
from tests.faults.runs import execute
from tests.for_each import for_each

TEXT = """\
version: 1
name: traced
seed: 3
run: {on: simulate}
timeouts: {dead_after: 10 min}
topology:
  data_centers: [{name: east, central: true, workers: 1}, {name: west, workers: 1}]
  links: [{between: [east, west], rate: 20 Mbit/s, delay: 40 ms, loss: 0.01 %TRACE}]
training: {model: {kind: mlp, hidden: 8}, data: digits, batch: 8, rounds: 6, evaluate_every: 6}
simulation: {network: flows}
"""


def run(trace: str, directory: Path) -> tuple[float, list[dict[str, object]]]:
    """When the last node ended, and the changes of links."""
    directory.mkdir()
    plan = build_plan(loads(TEXT.replace("TRACE", f", {trace}" if trace else "")))
    execute("simulate", plan, directory)
    events = list(read(directory / "events"))
    return max(event["t"] for event in events if event["kind"] == "final"), [e for e in events if e["kind"] == "replay"]


@for_each(
    ("trace", "what", "value"),
    [
        ("rate_trace: [{at: 0 s, rate: 20 Mbit/s}, {at: 200 ms, rate: 200 kbit/s}]", "rate", 200e3),
        ("delay_trace: [{at: 0 s, delay: 40 ms}, {at: 200 ms, delay: 300 ms}]", "delay", 0.3),
        ("loss_trace: [{at: 0 s, loss: 0.01 %}, {at: 200 ms, loss: 40 %}]", "loss", 0.4),
    ],
)
def test_what_a_trace_says_happens(trace: str, what: str, value: float, tmp_path: Path) -> None:
    plain_s, none = run("", tmp_path / "plain")
    traced_s, changes = run(trace, tmp_path / "traced")
    assert none == [] and traced_s > 1.2 * plain_s
    assert {(change["link"], change["what"]) for change in changes} == {("east>west", what), ("west>east", what)}
    assert {change["value"] for change in changes if change["planned_t"] == 0.2} == {value}


def test_training_waits_for_the_end_of_an_outage(tmp_path: Path) -> None:
    """A trace that begins with a minute without a rate: the link is down, and no one counts as lost meanwhile."""
    text = TEXT.replace("timeouts: {dead_after: 10 min}\n", "")
    outage = ", rate_trace: [{at: 0 s, rate: 0 bit/s}, {at: 60 s, rate: 2 Mbit/s}]"
    plan = build_plan(loads(text.replace("TRACE", outage)))
    execute("simulate", plan, tmp_path)
    finals = [event["t"] for event in read(tmp_path / "events") if event["kind"] == "final"]
    assert len(finals) == len(plan.nodes) and 60 < max(finals) < 200
