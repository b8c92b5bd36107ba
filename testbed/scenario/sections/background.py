"""The section ``background``: traffic on the WAN that is not the run's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from pydantic import Field

from testbed.scenario.reading.quantities import DURATION, INSTANT, NAME, RATE, integer, one_of
from testbed.scenario.reading.section import Section
from testbed.scenario.reading.violations import Violation


class Background(Section):
    """Traffic from one data centre to another."""

    kind: Annotated[str, one_of("constant", "on_off", "tcp")]
    """constant: datagrams at 'rate'. on_off: the same in bursts. tcp: connections under congestion control."""
    source: Annotated[str, NAME] = Field(alias="from")
    """Data centre that sends."""
    target: Annotated[str, NAME] = Field(alias="to")
    """Data centre that receives."""
    rate: Annotated[float | None, RATE] = None
    """Rate of constant and on_off traffic, Ethernet frames counted."""
    on: Annotated[float, DURATION] = 1.0
    """Mean length of a burst of on_off traffic (exponentially distributed)."""
    off: Annotated[float, DURATION] = 1.0
    """Mean pause between two bursts."""
    streams: Annotated[int | None, integer(1, 64)] = None
    """Connections of tcp traffic; default transport.parallel_streams."""
    start: Annotated[float, INSTANT] = 0.0
    """Time since the start of training."""
    stop: Annotated[float | None, DURATION] = None
    """Time since the start of training; by default it lasts as long as the run."""

    def _violations(self) -> Iterator[Violation]:
        if self.source == self.target:
            yield Violation(("to",), f"both ends are '{self.source}'")
        if self.kind == "tcp" and self.rate is not None:
            yield Violation(("rate",), "has no effect on tcp", "congestion control decides; use 'streams'")
        if self.kind != "tcp" and self.rate is None:
            yield Violation((), f"{self.kind} traffic has no rate", "write 'rate: 5 Mbit/s'")
        if self.kind != "tcp" and self.streams is not None:
            yield Violation(("streams",), f"has no effect on {self.kind}")
        for key in self.other_than_default("on", "off") if self.kind != "on_off" else ():
            yield Violation((key,), f"has no effect on {self.kind}", "write 'kind: on_off', or remove it")
        if self.stop is not None and self.stop <= self.start:
            yield Violation(("stop",), f"{self.stop:g} s does not come after the start, {self.start:g} s")
