"""Broken on purpose: whatever ``float`` accepts becomes a rate, infinite ones among them."""

from topologies.traces.formats.base import TraceFormat
from topologies.traces.model import Reading, TextFile, Trace


class TakesAnyNumber(TraceFormat):
    """One rate in Mbit/s a line, each for a second."""

    sample = "4\n8\n"

    @staticmethod
    def parse(file: TextFile, reading: Reading) -> Trace:
        if reading.what != "rate":
            file.refuse(None, "holds rates only", "give another 'format'")
        rates = []
        for line, text in file.rows:
            try:
                rates.append(float(text) * 1e6)
            except ValueError:
                file.refuse(line, f"'{text}' is no number", "e.g. 20")
        return Trace(tuple(map(float, range(len(rates)))), tuple(rates), "rate", length_s=float(len(rates)))
