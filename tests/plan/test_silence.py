"""When a data centre has been cut off for so long that it counts as lost."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from testbed.plan.build import build_plan
from testbed.plan.model import Plan, Series
from testbed.plan.silence import silences
from testbed.scenario.load import load

QUICKSTART = Path(__file__).parents[2] / "scenarios" / "quickstart.yaml"


def plan_with(outages: dict[str, tuple[float, float]]) -> Plan:
    """The quickstart with links that are down from the one time to the other, in multiples of ``dead_after_s``."""
    plan = build_plan(load(QUICKSTART), "simulate")
    patience_s = plan.timeouts.dead_after_s
    links = [
        replace(link, state_trace=_down(*(each * patience_s for each in outages[link.name])))
        if link.name in outages
        else link
        for link in plan.network.links
    ]
    return replace(plan, network=replace(plan.network, links=tuple(links)))


def _down(begin_s: float, end_s: float) -> Series:
    return Series(times_s=(0.0, begin_s, end_s), values=(1.0, 0.0, 1.0))


def found(outages: dict[str, tuple[float, float]]) -> list[tuple[float, str]]:
    plan = plan_with(outages)
    return [(time_s / plan.timeouts.dead_after_s, site) for time_s, site in silences(plan)]


def ways() -> tuple[str, str]:
    """The links of the first data centre without the scheduler, to the scheduler's and back."""
    plan = plan_with({})
    home = plan.with_role("scheduler")[0].data_center
    site = next(site.name for site in plan.network.sites if site.name != home)
    return plan.network.routes[f"{site}>{home}"][0], plan.network.routes[f"{home}>{site}"][0]


def test_an_outage_that_is_shorter_than_patience_is_none() -> None:
    there, back = ways()
    assert found({there: (1.0, 1.9)}) == []
    assert found({there: (1.0, 1.9), back: (2.0, 2.9)}) == []


def test_a_longer_one_is_told_when_patience_ends() -> None:
    there, _ = ways()
    ((at, site),) = found({there: (1.0, 2.5)})
    assert at == pytest.approx(2.0) and there.startswith(f"{site}>")


def test_rates_of_0_that_repeat_are_outages_over_the_end_of_their_period() -> None:
    there, _ = ways()
    plan = plan_with({})
    patience_s = plan.timeouts.dead_after_s
    rates = Series(times_s=(0.0, 0.6 * patience_s, 2 * patience_s), values=(0.0, 1e6, 0.0), period_s=2.5 * patience_s)
    links = tuple(replace(link, rate_trace=rates) if link.name == there else link for link in plan.network.links)
    ((at_s, _),) = silences(replace(plan, network=replace(plan.network, links=links)))
    assert at_s == pytest.approx(3 * patience_s)


def test_outages_that_overlap_are_one() -> None:
    there, back = ways()
    assert [at for at, _ in found({there: (1.0, 1.6), back: (1.5, 2.2)})] == [pytest.approx(2.0)]
