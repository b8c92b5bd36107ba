"""What a WAN link may do to packets beside delaying and losing them at random, and when it is down."""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated

from pydantic import model_validator

from testbed.scenario.reading.quantities import DURATION, INSTANT, LOSS, number
from testbed.scenario.reading.section import Section
from testbed.scenario.reading.violations import Violation, raise_found


class Outage(Section):
    """The link is down, and loses everything, from ``at`` until ``until``."""

    at: Annotated[float, INSTANT]
    """Time since the start of training."""
    until: Annotated[float, DURATION]
    """Time since the start of training at which it is up again."""


class Impairments(Section):
    """Part of a link; counts for both directions."""

    loss_burst: Annotated[float, number(1, 1000)] = 1.0
    """Mean length of a burst of losses, in packets (Gilbert-Elliott); 1 means independent losses."""
    corruption: Annotated[float, LOSS] = 0.0
    """Share of packets with one wrong bit, which the receiver's checksum finds."""
    duplication: Annotated[float, LOSS] = 0.0
    """Share of packets that arrive twice. Emulated with netem only."""
    reordering: Annotated[float, LOSS] = 0.0
    """Share of packets that skip the delay, and so overtake those before them."""
    down: tuple[Outage, ...] = ()
    """When the link is down, e.g. [{at: 10 s, until: 15 s}]."""

    @model_validator(mode="after")
    def _outages(self) -> Impairments:
        raise_found(_outage_problems(self.down))
        return self


def _outage_problems(down: tuple[Outage, ...]) -> list[Violation]:
    """Each ends after it began, and before the next."""
    found = [
        Violation(("down", index, "until"), f"{outage.until:g} s does not come after {outage.at:g} s")
        for index, outage in enumerate(down)
        if outage.until <= outage.at
    ]
    found += [
        Violation(("down", index, "at"), f"{after.at:g} s comes before the end of the one before, {before.until:g} s")
        for index, (before, after) in enumerate(pairwise(down), start=1)
        if after.at <= before.until
    ]
    return found
