from topologies.traces.formats.base import TraceFormat
from topologies.traces.model import from_durations


class Halves(TraceFormat):
    """One rate in Mbit/s a line, each for half a second."""

    about = "one rate a line, for half a second"
    holds = ("rate",)
    sample = "4\n8\n"

    @staticmethod
    def parse(file, reading):
        rows = file.numbers(1, "one rate in Mbit/s", "e.g. 20")
        return from_durations(file, [(line, 0.5, mbit_s * 1e6) for line, (mbit_s,) in rows], reading)
