"""Mahimahi's traces: one line per packet that may pass, with its time in whole milliseconds. The trace repeats.

A packet counts as 1500 bytes, so the single line ``1`` means 12 Mbit/s (Netravali et al., USENIX ATC 2015;
traces/README of mahimahi).
"""

from __future__ import annotations

from collections.abc import Iterator

from topologies.text_file import TextFile
from topologies.traces.model import MAX_POINTS, Reading, Trace, from_durations

PACKET_BITS = 1500 * 8
DEFAULT_STEP_S = 0.1
MAX_PACKETS_PER_MS = 833  # 10 Gbit/s
MAX_DIGITS = 12  # 30 years of milliseconds


def parse(file: TextFile, reading: Reading) -> Trace:
    """Parse a trace: count packets in bins of ``step_s``. The last bin also covers the remainder of the trace."""
    times_ms = list(_times(file))
    end_ms = times_ms[-1]
    line, text = file.rows[-1]
    if end_ms == 0:
        file.refuse(line, "the last time is 0 ms, so the trace has no length", "end it with the time of its end in ms")
    if len(times_ms) / end_ms > MAX_PACKETS_PER_MS:
        cure = "write the times in ms" if end_ms < 10_000 else "give another 'format'"
        file.refuse(line, f"{len(times_ms)} packets until {text} ms are more than 10 Gbit/s: are these seconds?", cure)
    step_ms = max(1, round(1000 * (reading.step_s or DEFAULT_STEP_S)))
    bins = max(1, end_ms // step_ms)
    if bins > MAX_POINTS:
        file.refuse(line, f"{end_ms} ms are {bins} steps of {step_ms} ms, allowed {MAX_POINTS}", "give a longer 'step'")
    counts = [0] * bins
    for time_ms in times_ms:
        counts[min(bins - 1, max(0, time_ms - 1) // step_ms)] += 1
    widths = [step_ms] * (bins - 1) + [end_ms - step_ms * (bins - 1)]
    steps = [(line, ms / 1000, count * PACKET_BITS * 1000 / ms) for count, ms in zip(counts, widths, strict=True)]
    return from_durations(file, steps, reading, (f"packets of 1500 bytes counted in steps of {step_ms} ms",))


def _times(file: TextFile) -> Iterator[int]:
    before = 0
    for line, text in file.rows:
        if not (text.isascii() and text.isdigit() and len(text) <= MAX_DIGITS):
            cure = "the times are whole milliseconds; seconds with a fraction are another format"
            file.refuse(line, f"expected one integer (ms), got '{text[:40]}'", cure)
        time_ms = int(text)
        if time_ms < before:
            file.refuse(line, f"{time_ms} ms comes after {before} ms", "sort the lines, or give another 'format'")
        before = time_ms
        yield time_ms


def write(rates_bps: Iterator[tuple[float, float]]) -> Iterator[str]:
    """Yield the lines for steps of (duration in s, bit/s). A fraction of a packet is carried over to the next step."""
    packets = 0.0
    now_ms = 0.0
    sent_at = 0
    for duration_s, rate_bps in rates_bps:
        end_ms = now_ms + duration_s * 1000
        while sent_at < round(end_ms):
            sent_at += 1
            packets += rate_bps / PACKET_BITS / 1000
            whole = int(packets + 1e-9)  # rounded sums such as 0.1 + 0.2 + … may stay just below a whole packet
            yield from [str(sent_at)] * whole
            packets -= whole
        now_ms = end_ms
