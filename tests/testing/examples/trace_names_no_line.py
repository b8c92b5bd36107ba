"""Broken on purpose: a refusal names the file, and not the line."""

from topologies.traces.formats.base import TraceFormat
from topologies.traces.model import Reading, TextFile, Trace, from_durations


class NamesNoLine(TraceFormat):
    """One rate in Mbit/s a line, each for a second."""

    sample = "4\n8\n"

    @staticmethod
    def parse(file: TextFile, reading: Reading) -> Trace:
        if reading.what != "rate" or not all(text.isdecimal() for _, text in file.rows):
            file.refuse(None, "expected rates in Mbit/s", "e.g. 20")
        return from_durations(file, [(line, 1.0, int(text) * 1e6) for line, text in file.rows], reading)
