"""Traces that cannot be taken: each refusal names the file, the line where there is one, and the cure."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

import pytest

from testbed.errors import ScenarioError
from tests.for_each import for_each
from topologies.traces import MAX_POINTS, Reading, parse_trace, read_network_traces, read_trace

INTERVAL = {"sum": {"seconds": 1.0, "bytes": 1_250_000, "bits_per_second": 1e7}}


def report(*intervals: Any, **more: Any) -> str:
    return json.dumps({"intervals": list(intervals), **more}, indent=1)


SKYPLANE = "src_region,src_tier,dst_region,dst_tier,throughput_sent,success\n"
PAIR = {"source": "a", "target": "b"}
FCC_RAW = "unit_id,dtime,target,address,fetch_time,bytes_total,bytes_sec\n"

MALFORMED: list[tuple[str, str, dict[str, Any], str, str]] = [
    # what is wrong, text, how it is read, what is said (after the file's name), the cure
    ("nothing", "", {}, ": no rows", "empty"),
    ("words", "hello world\n", {}, ":1: not a known trace format", "give 'format'"),
    (
        "two columns",
        "0 10\n5 8\n",
        {},
        ":1: numbers without a header, whose units are unknown: '0 10'",
        "give 'format: pensieve' if it is two columns: seconds, Mbit/s until then",
    ),
    ("many digits", f"{'1' * 5000}\n2\n", {}, ":1: numbers without a header", "give 'format: fcc' if"),
    ("one column", "600000\n500000\n", {}, ":1: numbers without a header", "give 'format: fcc' if"),
    ("no such format", "1\n", {"format": "mahi"}, ": format 'mahi' is not one of csv, mahimahi", "skyplane"),
    ("no such unit", "1\n", {"unit": "Mbps"}, ": unit 'Mbps' does not fit a rate", "Mbit/s"),
    # our own
    (
        "csv: a foreign column",
        "time_s,swallows\n0,1\n",
        {},
        ":1: has no column for a rate: its columns are",
        "columns: {rate: NAME in Mbit/s}",
    ),
    ("csv: no unit", "time,rate\n0,1\n", {}, ":1: column 'time' has no unit", "columns: {time: time in s}"),
    ("csv: no date", "timestamp,mbps\n2024-06-10T12:00:00Z,1\n10/06/2024,2\n", {}, ":3: '10/06/2024' is no", "ISO"),
    (
        "csv: latency",
        "time_s,latency_ms\n0,1\n",
        {"what": "delay"},
        ":1: has no column for a delay",
        "is 'latency_ms' the round trip, or one way?",
    ),
    (
        "csv: no such column",
        "time_s,x\n0,1\n",
        {"columns": (("rate", "y in Mbit/s"),)},
        ":1: columns: there is no col",
        "its columns are 'time_s', 'x'",
    ),
    ("csv: twice", "time_s,loss,loss\n0,0,0\n", {}, ":1: expected the header", "none twice"),
    ("csv: no number", "time_s,rate_mbit_s\n0,1\n5,x\n", {}, ":3: expected two numbers", "'x' is not a number"),
    ("csv: time stands", "time_s,rate_mbit_s\n0,5\n3,5\n# x\n3,6\n", {}, ":5: time 3 does not come after 3", "sort"),
    ("csv: no values", "time_s,rate_mbit_s\n0,nan\n1,-\n", {}, ": has 0 rows below the header", "add one per step"),
    ("csv: per cent as share", "time_s,loss\n0,5\n", {"what": "loss"}, ":2: 5 as a share is outside [0, 0.5]", "unit"),
    ("csv: s for ms", "time_s,delay_s\n0,40\n", {"what": "delay"}, ":2: 40 s is outside [0, 10]", "correct it"),
    ("csv: many links", "time_s,src,dst,rate_mbit_s\n0,a,b,1\n0,b,a,1\n", {}, ":1: holds 2 links", "from: a, to: b"),
    (
        "csv: not this link",
        "time_s,src,dst,rate_mbit_s\n0,a,b,1\n",
        {"source": "a", "target": "c"},
        ":1: no rows from 'a' to 'c'; it has a>b",
        "from: a, to: b",
    ),
    ("csv: no header", "0,10\n5,8\n", {}, ":1: columns without a header: '0,10'", "write 'time_s,rate_mbit_s'"),
    ("csv: an underscore", "time_s,rate_mbit_s\n0,1_0\n", {}, ":2: expected two numbers", "'1_0' is not a number"),
    ("csv: for ever", "time_s,rate_mbit_s\n0,1\n1e300,2\n", {}, ":3: the trace lasts 2e+300 s", "another unit?"),
    ("csv: an early end", "time_s,rate_mbit_s\n0,1\n2,1\n2,end\n", {}, ":4: time 2 does not come after 2", "sort"),
    # Mahimahi
    (
        "mahimahi: seconds",
        "0.1\n0.2\n",
        {"format": "mahimahi"},
        ":1: expected one integer (ms), got '0.1'",
        "whole milli",
    ),
    ("mahimahi: a foreign digit", "¹\n", {"format": "mahimahi"}, ":1: expected one integer (ms), got '¹'", "whole"),
    ("mahimahi: falls", "5\n4\n", {"format": "mahimahi"}, ":2: 4 ms comes after 5 ms", "sort the lines"),
    ("mahimahi: no length", "0\n0\n", {"format": "mahimahi"}, ":2: the last time is 0 ms", "end it with the time"),
    (
        "mahimahi: whole seconds",
        "0\n" + "1\n" * 5000,
        {},
        ":5001: 5001 packets until 1 ms are more than 10 Gbit/s",
        "in ms",
    ),
    ("mahimahi: a delay", "1\n2\n", {"what": "delay"}, ": the format mahimahi has no delay", "another 'format'"),
    # Pensieve
    ("pensieve: kbit/s", "0 2400\n1 2600\n2 2500\n", {}, ":2: 2600 Mbit/s, and half", "give 'unit: kbit/s'"),
    (
        "pensieve: ms",
        "0 2.1\n1000 2.3\n2000 2.2\n",
        {},
        ":2: the time rises by 1000 a line: milliseconds?",
        "'time_unit: ms'",
    ),
    ("pensieve: one line", "0 2.1\n", {}, ":1: has one line", "at least two"),
    ("pensieve: time falls", "0 2\n2 2\n1 2\n", {}, ":3: time 1 does not come after 2", "remove repeated"),
    ("pensieve: no time passes", "0 1\n1e-300 2\n52 1\n", {}, ":3: the step before it is shorter", "times must rise"),
    ("pensieve: an underscore", "0 1\n1 1_0\n", {}, ":2: expected two numbers", "one pair"),
    # FCC, HSDPA
    (
        "fcc: Mbit/s",
        "12.5\n13.1\n11.9\n",
        {},
        ":1: half of the lines are below 12.5 bytes/s: Mbit/s?",
        "'unit: Mbit/s'",
    ),
    (
        "fcc: words",
        "600000\nx\n",
        {"format": "fcc"},
        ":2: expected one number, bytes/s, got 'x'",
        "one throughput a line",
    ),
    (
        "fcc-raw: columns",
        FCC_RAW + "7,2016-06-01 00:00:05,t\n",
        {},
        ":2: has 3 columns, expected at least 7",
        "bytes_sec",
    ),
    (
        "fcc-raw: many units",
        FCC_RAW + "".join(f"{u},2016-06-01 00:00:05,t,a,1,2,600000\n" for u in (7, 8)),
        {},
        ":2: holds 2 pairs of unit and target",
        "from: '7', to: 't'",
    ),
    (
        "fcc-raw: no such unit",
        FCC_RAW + "7,2016-06-01 00:00:05,t,a,1,2,600000\n",
        {"source": "9"},
        ": no unit '9'",
        "columns 1 and 3",
    ),
    (
        "hsdpa: restarted",
        "1 1000 59 10 5 1000\n2 900 59 10 5 1000\n",
        {},
        ":2: 900 ms does not come after 1000 ms",
        "cut",
    ),
    (
        "hsdpa: unix ms",
        "1300000000000 1 59 10 5 1000\n",
        {},
        ":1: 1.3e+12 in the first column: unix time in ms?",
        "divide",
    ),
    ("hsdpa: no time", "1 1 59 10 500 0\n", {}, ":1: 500 bytes in 0 ms", "remove the line"),
    # iperf3
    ("iperf3: cut off", report(INTERVAL)[:-20], {}, ":7: not valid JSON", "interrupted"),
    ("iperf3: no report", '{"a": 1}', {}, ": the report has no 'intervals'", "iperf3 -J"),
    ("iperf3: it failed", report(error="unable to connect"), {}, ": iperf3 failed: unable to connect", "run it again"),
    ("iperf3: -i 0", report(), {}, ": intervals is empty", "-J -i 1"),
    (
        "iperf3: bytes for bits",
        report({"sum": {"seconds": 1, "bytes": 10, "bits_per_second": 10}}),
        {},
        ": intervals[0].sum: bits_per_second is 10, but its bytes and seconds make 80",
        "bytes for bits?",
    ),
    ("iperf3: TCP has no loss", report(INTERVAL), {"what": "loss"}, ": intervals[0].sum has no lost_percent", "-u -J"),
    ("iperf3: no rtt", report(INTERVAL), {"what": "delay"}, ": intervals[0] has no rtt", "sender's report"),
    ("iperf3: no time", report({"sum": {"seconds": math.nan}}), {}, ": intervals[0].sum.seconds is nan", "run it"),
    (
        "iperf3: a long number",
        report({"sum": {"seconds": 1.0, "bits_per_second": 10**400}}),
        {},
        ": intervals[0].sum.bits_per_second is inf",
        "run it again",
    ),
    (
        "iperf3: words as rtt",
        report(INTERVAL | {"streams": [{"rtt": 1}, {"rtt": "1 ms"}]}),
        {"what": "delay"},
        ": intervals[0].streams[1].rtt is '1 ms'",
        "run it again",
    ),
    (
        "iperf3: for ever",
        report(INTERVAL | {"streams": [{"rtt": 1e308}] * 2}),
        {"what": "delay"},
        ": inf s is outside",
        "correct it",
    ),
    # Skyplane
    ("skyplane: which pair?", SKYPLANE + "a,P,b,P,5e9,True\n", {}, ":1: holds many pairs", "from: aws:us-east-1"),
    (
        "skyplane: no region",
        "src_region,src_tier,to,dst_tier,throughput_sent,success\n" + "a,P,b,P,5e9,True\n",
        PAIR | {"format": "skyplane"},
        ":1: has no column dst_region",
        "header",
    ),
    (
        "skyplane: failed only",
        SKYPLANE + "a,P,b,P,5e9,False\n",
        PAIR,
        ": no successful measurement from 'a' to 'b'",
        "src_region",
    ),
    (
        "skyplane: Mbit/s",
        SKYPLANE + "a,P,b,P,5000,True\n",
        PAIR,
        ":2: 5000 bit/s between clouds: another unit?",
        "give 'unit'",
    ),
    (
        "csv: a unit beside the header's",
        "time_s,rate_mbit_s\n0,1\n",
        {"unit": "kbit/s"},
        ": 'unit' has no effect on the format csv",
        "rename the column",
    ),
    (
        "csv: a pair where there is one link",
        "time_s,rate_mbit_s\n0,1\n",
        PAIR,
        ":1: has no columns 'src' and 'dst'",
        "remove 'from'",
    ),
    (
        "too many steps",
        "time_s,rate_mbit_s\n" + "".join(f"{i},1\n" for i in range(MAX_POINTS + 1)),
        {},
        f": has {MAX_POINTS + 1} steps, allowed {MAX_POINTS}",
        "resample",
    ),
]


HEADERLESS = ("mahimahi", "pensieve", "fcc", "hsdpa")  # these formats have to be given; each case begins with its own


@for_each(("name", "text", "reading", "said", "cure"), MALFORMED)
def test_it_names_file_line_and_cure(name: str, text: str, reading: dict[str, Any], said: str, cure: str) -> None:
    kind = name.partition(":")[0]
    given = {"format": kind} if kind in HEADERLESS else {}
    with pytest.raises(ScenarioError) as caught:
        parse_trace(text, "t.txt", Reading(**given | reading))
    message = str(caught.value)
    assert message.startswith(f"t.txt{said}"), message
    head, _, tail = message.partition(" (")
    assert cure in message[len(f"t.txt{said}") :] or cure in tail, message
    assert head and len(message.splitlines()) == 1


def test_files(tmp_path: Path) -> None:
    (tmp_path / "bad.csv").write_bytes(b"time_s,rate_mbit_s\n0,\xff\n")
    with pytest.raises(ScenarioError, match=r"bad\.csv:2: not valid UTF-8 at byte 21 \(save it as UTF-8"):
        read_trace(tmp_path / "bad.csv")
    with pytest.raises(ScenarioError, match=r"gone\.csv: No such file"):
        read_trace(tmp_path / "gone.csv")
    with pytest.raises(ScenarioError, match="Is a directory"):
        read_trace(tmp_path)
    (tmp_path / "a.csv").symlink_to(tmp_path / "b.csv")
    (tmp_path / "b.csv").symlink_to(tmp_path / "a.csv")
    with pytest.raises(ScenarioError, match=r"a\.csv: Too many levels of symbolic links"):
        read_trace(tmp_path / "a.csv")
    os.mkfifo(tmp_path / "fifo.csv")
    with pytest.raises(ScenarioError, match=r"fifo\.csv: not a regular file \(copy"):
        read_trace(tmp_path / "fifo.csv")


def test_a_file_of_a_network_needs_ends(tmp_path: Path) -> None:
    path = tmp_path / "n.csv"
    path.write_text("time_s,rate_mbit_s\n0,1\n")
    with pytest.raises(ScenarioError, match=r"n\.csv:1: has no columns 'src' and 'dst' \(write 'time_s,src,dst"):
        read_network_traces(path)
