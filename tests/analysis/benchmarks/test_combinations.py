"""Some random combinations; ``testbed bench combinations`` draws five hundred."""

from __future__ import annotations

from dataclasses import replace

import pytest

from analysis.benchmarks.combinations import draw, examine, plan_of, wrong_bytes


@pytest.mark.sample(1)  # of 2, which take 3 s
@pytest.mark.parametrize("number", [0, 2])  # the cheap ones of ten: 0.4 to 1.2 s
def test_a_combination_is_refused_with_a_cure_or_trains(number: int) -> None:
    row = examine(draw(1, number))
    assert row["ok"], row


@pytest.mark.slow  # 30 s: real processes on loopback
@pytest.mark.parametrize("number", [2, 6])
def test_on_loopback(number: int) -> None:
    row = examine(draw(1, number), "local")
    assert row["ok"] and row["ended"] == "trained", row


def test_a_combination_that_does_not_learn_is_found() -> None:
    case = draw(1, 2)
    slow = replace(case, settings=(*case.settings, "optimizer.learning_rate=0.000001"))
    assert "not above chance" in examine(slow)["wrong"]


def test_bytes_that_no_message_explains_are_found() -> None:
    plan = plan_of(draw(1, 2))
    link = plan.network.links[0].name
    source, target = link.split(">")
    sent = {"kind": "transfer", "source": f"{source}/worker0", "target": f"{target}/worker0", "payload_bytes": 1400,
            "header_bytes": 48}  # fmt: skip
    (path,) = plan.network.between(source, target)
    assert path == link
    assert wrong_bytes(plan, [sent, {"kind": "link", "link": link, "bytes": 1514}]) == ""
    assert "carried 2896" in wrong_bytes(plan, [sent, {"kind": "link", "link": link, "bytes": 3028}])
