"""Broken on purpose: the unit that a scenario may state has no effect."""

from topologies.traces.formats.base import TraceFormat
from topologies.traces.model import Reading, TextFile, Trace, from_durations


class IgnoresTheUnit(TraceFormat):
    """One rate in Mbit/s a line, each for a second."""

    sample = "4\n8\n"
    takes = ("unit",)

    @staticmethod
    def parse(file: TextFile, reading: Reading) -> Trace:
        if reading.what != "rate":
            file.refuse(None, "holds rates only", "give another 'format'")
        rows = file.numbers(1, "a rate in Mbit/s", "e.g. 20")
        return from_durations(file, [(line, 1.0, mbit_s * 1e6) for line, (mbit_s,) in rows], reading)
