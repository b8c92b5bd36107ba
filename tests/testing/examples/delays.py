"""A trace format of delays alone."""

from topologies.traces.formats.base import TraceFormat
from topologies.traces.model import Reading, TextFile, Trace, from_durations


class Delays(TraceFormat):
    """One delay a line, in ms unless the scenario says otherwise, each for a second."""

    about = "one delay a line, for a second"
    holds = ("delay",)
    takes = ("unit",)
    units = {"delay": "ms"}
    sample = "4\n8\n"

    @staticmethod
    def parse(file: TextFile, reading: Reading) -> Trace:
        if reading.what not in Delays.holds:
            file.refuse(None, f"holds delays, no {reading.what}", "give another 'format'")
        rows = file.numbers(1, "one delay in ms", "e.g. 20")
        return from_durations(file, [(line, 1.0, delay * reading.scale("ms")) for line, (delay,) in rows], reading)
