"""Broken on purpose: rates are returned for delays and losses as well, in their own unit."""

from topologies.traces.formats.base import TraceFormat
from topologies.traces.model import Reading, TextFile, Trace


class OfAnything(TraceFormat):
    """One rate in Mbit/s a line, each for a second."""

    sample = "4\n8\n"

    @staticmethod
    def parse(file: TextFile, reading: Reading) -> Trace:
        rates = [mbit_s * 1e6 for _, (mbit_s,) in file.numbers(1, "a rate in Mbit/s", "e.g. 20")]
        return Trace(tuple(map(float, range(len(rates)))), tuple(rates), "rate", length_s=float(len(rates)))
