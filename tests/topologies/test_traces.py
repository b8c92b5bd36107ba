"""Every format read to numbers worked out by hand, changes, conversion there and back."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.cli.main import main
from testbed.errors import ScenarioError
from tests.for_each import for_each
from tests.topologies.made import RECIPES, library_trace
from topologies.library import LIBRARY, library_path, trace_about
from topologies.traces import Reading, Trace, parse_trace, read_network_traces, read_trace
from topologies.traces.change import looped, resampled, scaled, shifted, sped_up, steps_of
from topologies.traces.write import to_text


def bits(trace: Trace) -> float:
    """What passes through the link in one lap."""
    return math.fsum(duration * value for duration, value in steps_of(trace))


def test_our_csv_with_units_and_comments() -> None:
    text = "# measured by somebody\ntime_s, rate_kbit_s\n0,800\n\n2.5,400\n"
    trace = parse_trace(text, "t.csv")
    assert (trace.times_s, trace.values, trace.format) == ((0.0, 2.5), (8e5, 4e5), "csv")
    assert trace.period_s == math.inf and trace.length_s == 5.0


@pytest.mark.parametrize(
    ("text", "values", "note"),
    [
        ("time_s,rate_mbit_s\n1718000000,5\n1718000010,4\n", (5e6, 4e6), "the first time, 1718000000, became 0"),
        ("ts;Bandwidth [MB/s]\n2024-06-10T12:00:00Z;5\n2024-06-10T12:00:10Z;4\n", (40e6, 32e6), "T12:00:00Z, became"),
        ("epoch|goodputMbps|min_goodput_mbps\n1718000000|5|1\n1718000010|4|1\n", (5e6, 4e6), "'min_goodput_mbps'"),
        ("time_s,rate\n3,5 Mbit/s\n13,400 kbit/s\n", (5e6, 4e5), "the first time, 3, became 0"),
        ('"time_s","rate (Gbit/s)","site, place"\n0,5,x\n5,,x\n10,4,x\n', (5e9, 4e9), "1 row without a rate"),
    ],
)
def test_tables_of_other_tools(text: str, values: tuple[float, float], note: str) -> None:
    """Names, units and separators as they come; times since 1970, dates; the first becomes 0, with a note."""
    trace = parse_trace(text, "t.csv")
    assert (trace.format, trace.times_s, trace.values) == ("csv", (0.0, 10.0), values)
    assert any(note in each for each in trace.notes)


def test_one_csv_for_many_links_and_quantities(tmp_path: Path) -> None:
    path = tmp_path / "n.csv"
    path.write_text("t_s,src,dst,rate_mbit_s,rtt_ms,loss\n0,a,b,5,80,0.01\n0,b,a,6,90,0\n10,a,b,4,100,0.02\n")
    read = read_network_traces(path).traces
    assert read["a", "b", "rate"].values == (5e6, 4e6)
    assert read["a", "b", "delay"].values == (0.04, 0.05), "half of the round trip"
    assert read["a", "b", "loss"].times_s == (0.0, 10.0)
    assert read["b", "a", "rate"].values == (6e6,)
    assert read_trace(path, Reading(source="b", target="a")).values == (6e6,)


def test_mahimahi_counts_packets() -> None:
    """12 Mbit/s is one packet of 1500 bytes each ms (mahimahi's own traces/12mbps)."""
    trace = parse_trace("".join(f"{ms}\n" for ms in range(1, 1001)), "12mbps", Reading(format="mahimahi"))
    assert trace.format == "mahimahi" and trace.period_s == 1.0
    assert set(trace.values) == {12e6} and len(trace.values) == 10
    twice = parse_trace("1\n1\n2\n2\n4\n4\n", "t", Reading(format="mahimahi", step_s=0.002))
    assert twice.values == (24e6, 12e6), "4 packets in the first 2 ms, 2 in the next"


def test_pensieve_rates_hold_until_their_time() -> None:
    """env.py of Pensieve: the rate of line i counts from the time of line i - 1 to that of line i."""
    trace = parse_trace("10.0 1.0\n12.0 2.0\n15.0\t3.5\n", "t", Reading(format="pensieve"))
    assert (trace.times_s, trace.values, trace.period_s) == ((0.0, 2.0), (2e6, 3.5e6), 5.0)


def test_units_that_are_said_are_believed() -> None:
    assert parse_trace("0 2400\n1 2600\n", "t", Reading(format="pensieve", unit="kbit/s")).values == (2.6e6,)
    assert parse_trace("0 2400\n1 2600\n", "t", Reading(format="pensieve", unit="Mbit/s")).values == (2.6e9,)
    assert parse_trace("0 2\n2000 2\n", "t", Reading(format="pensieve", time_unit="ms")).length_s == 2.0


def test_fcc() -> None:
    trace = parse_trace("500000\n250000\n", "t", Reading(format="fcc"))
    assert (trace.times_s, trace.values, trace.period_s) == ((0.0, 5.0), (4e6, 2e6), 10.0)


def test_fcc_raw_picks_one_unit() -> None:
    rows = "".join(
        f'{unit},2016-06-01 0{i}:00:05,"http://t",1.2.3.4,2,9,{600000 + unit}\n' for unit in (7, 8) for i in (1, 2)
    )
    header = "unit_id,dtime,target,address,fetch_time,bytes_total,bytes_sec\n"
    trace = parse_trace(header + rows, "t", Reading(source="8"))
    assert trace.values == (600008 * 8.0,) * 2 and trace.times_s == (0.0, 5.0)
    assert parse_trace(rows, "t", Reading(source="7")).format == "fcc-raw", "without the header as well"


def test_hsdpa() -> None:
    """The last two columns: bytes, and the ms that they took."""
    text = "1289406399 549893 59.85 10.78 53600 800\n1289406400 551050 59.85 10.78 95260 1157\n"
    trace = parse_trace(text, "bus.log", Reading(format="hsdpa"))
    assert trace.format == "hsdpa"
    assert trace.values == pytest.approx((53600 * 8 / 0.8, 95260 * 8 / 1.157))
    assert trace.times_s == (0.0, 0.8) and trace.length_s == 1.957


def test_iperf3_rate_delay_and_loss() -> None:
    def interval(rate: float, seconds: float, **more: object) -> dict[str, object]:
        sums = {"seconds": seconds, "bytes": int(rate * seconds / 8), "bits_per_second": rate, **more}
        return {"streams": [{"rtt": 80_000}, {"rtt": 90_000}], "sum": sums}

    first = interval(9e6, 0.5, lost_percent=2.0)
    omitted = {"sum": {"seconds": 1, "bytes": 1, "bits_per_second": 8, "omitted": True}}
    text = json.dumps({"intervals": [omitted, first, interval(8e6, 1.0, lost_percent=0)]})
    assert parse_trace(text, "t").times_s == (0.0, 0.5)
    assert parse_trace(text, "t").values == (9e6, 8e6)
    assert parse_trace(text, "t", Reading(what="delay")).values == pytest.approx((0.0425, 0.0425))
    assert parse_trace(text, "t", Reading(what="loss")).values == (0.02, 0.0)


def test_skyplane_is_a_constant() -> None:
    text = "src_region,src_tier,dst_region,dst_tier,throughput_sent,success\n" + "".join(
        f"aws:a,P,gcp:b,P,{rate},{ok}\n" for rate, ok in ((3e9, True), (5e9, True), (4e9, True), (1e9, False))
    )
    trace = parse_trace(text, "t", Reading(source="aws:a", target="gcp:b"))
    assert trace.values == (4e9,) and trace.format == "skyplane"
    latency = "src_region,dst_region,min_rtt,avg_rtt\na,b,80,90.5\n"
    assert parse_trace(latency, "t", Reading(what="delay", source="a", target="b")).values == pytest.approx((0.04525,))


SQUARE = Trace((0.0, 2.0, 3.0), (8e6, 2e6, 4e6), "rate", 6.0, 6.0)


def test_changes() -> None:
    assert scaled(SQUARE, 0.5).values == (4e6, 1e6, 2e6)
    assert sped_up(SQUARE, 2.0) == Trace((0.0, 1.0, 1.5), (8e6, 2e6, 4e6), "rate", 3.0, 3.0)
    assert looped(SQUARE, False).period_s == math.inf
    assert shifted(SQUARE, 2.5) == Trace((0.0, 0.5, 3.5, 5.5), (2e6, 4e6, 8e6, 2e6), "rate", 6.0, 6.0)
    assert shifted(SQUARE, 8.5).times_s == shifted(SQUARE, 2.5).times_s, "a lap later it is the same"
    assert shifted(looped(SQUARE, False), 2.5) == Trace((0.0, 0.5), (2e6, 4e6), "rate", math.inf, 3.5)
    with pytest.raises(ScenarioError, match="offset 7 s is beyond the trace's 6 s"):
        shifted(looped(SQUARE, False), 7.0)


def test_an_offset_that_is_a_steps_time_or_whole_laps_leaves_no_step_without_length() -> None:
    """Numbers are rounded: 25.2 s are not quite two laps of 8.4 s + 4.2 s, and a row at 104 ms comes after 0.104 s."""
    thirds = parse_trace("time_s,rate_mbit_s\n0,1\n4.2,2\n8.4,3\n", "t.csv")
    lap = looped(thirds, True)
    for laps_s in (12.6, 25.2, 37.8, 63.0):
        assert shifted(lap, laps_s).times_s == thirds.times_s and shifted(lap, laps_s).values == thirds.values
    with pytest.raises(ScenarioError, match="beyond"):
        shifted(thirds, 12.6)
    in_ms = parse_trace("time_ms,rate_mbit_s\n0,1\n104,2\n200,3\n", "t.csv")
    assert shifted(in_ms, 0.104).times_s == (0.0, 0.096)
    assert shifted(looped(in_ms, True), 0.104).values == (2e6, 3e6, 1e6)


def test_resampling_is_a_mean_over_time() -> None:
    assert resampled(SQUARE, 3.0).values == pytest.approx((6e6, 4e6))
    assert resampled(SQUARE, 4.0).values == pytest.approx((22e6 / 4, 4e6)), "the last step is shorter"
    with pytest.raises(ScenarioError, match="allowed 50000"):
        resampled(SQUARE, 1e-5)


# From 125 kbit/s on, a packet takes less than the 0.1 s that may be missing at the end of Mahimahi's.
RATES = st.lists(st.tuples(st.integers(1, 40), st.integers(125, 90_000)), min_size=1, max_size=20)


@given(RATES, st.integers(1, 50))
def test_resampling_keeps_what_passes(steps: list[tuple[int, int]], step: int) -> None:
    times = [sum(length for length, _ in steps[:index]) / 10 for index in range(len(steps))]
    trace = Trace(
        tuple(times), tuple(float(rate * 1000) for _, rate in steps), "rate", math.inf, sum(s for s, _ in steps) / 10
    )
    assert bits(resampled(trace, step / 10)) == pytest.approx(bits(trace), rel=1e-9)


@given(RATES)
def test_mahimahi_and_back_loses_no_packet(steps: list[tuple[int, int]]) -> None:
    """Rates come back as the mean of their bins, but for what is left of a packet at the end."""
    length = sum(s for s, _ in steps) / 10
    times = [sum(s for s, _ in steps[:index]) / 10 for index in range(len(steps))]
    trace = Trace(tuple(times), tuple(float(rate * 1000) for _, rate in steps), "rate", math.inf, length)
    text = to_text(trace, "mahimahi") if bits(trace) > 12_000 * 1.5 else ""
    assert abs(text.count("\n") * 12_000 - bits(trace)) <= 12_000 or not text


def test_what_cannot_be_written() -> None:
    with pytest.raises(ScenarioError, match="holds rates only"):
        to_text(Trace((0.0,), (0.1,), "delay", math.inf, 1.0), "mahimahi")
    with pytest.raises(ScenarioError, match="not one packet"):
        to_text(Trace((0.0,), (1000.0,), "rate", math.inf, 1.0), "mahimahi")
    with pytest.raises(ScenarioError, match=r"passes at 10 s, but the trace ends at 20 s: .*\(write csv or pensieve\)"):
        to_text(Trace((0.0, 10.0), (12e6, 0.0), "rate", 20.0, 20.0), "mahimahi")


@for_each(
    ("kind", "period_s", "length_s", "said"),
    [
        ("csv", 12.0, 12.0, "csv cannot say that the trace repeats: write 'loop: true'"),
        ("csv", math.inf, 12.0, ""),
        ("pensieve", 12.0, 12.0, ""),
        ("pensieve", math.inf, 12.0, "pensieve files repeat from their end: write 'loop: false'"),
        ("fcc", 12.0, 12.0, "fcc has steps of 5 s only: the file lasts 15 s, but the trace 12 s"),
        ("fcc", 10.0, 10.0, ""),
    ],
)
def test_the_command_tells_what_a_conversion_changes(
    kind: str, period_s: float, length_s: float, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, made = tmp_path / "s.csv", tmp_path / "made"
    source.write_text(f"time_s,rate_mbit_s\n0,12\n2,24\n{length_s:g},end\n")
    loop = "--loop" if math.isfinite(period_s) else "--no-loop"
    assert main(["trace", str(source), loop, "--json", "--out", str(made), "--as", kind]) == 0
    captured = capsys.readouterr()
    assert captured.err.count("\n") == bool(said) and said in captured.err and json.loads(captured.out)
    back = read_trace(made, Reading(format=kind))
    assert back.length_s == (15.0 if "15 s" in said else length_s)
    assert (back.period_s == back.length_s) == (math.isfinite(period_s) != ("'loop: " in said))


def test_the_library_is_what_its_recipes_make() -> None:
    """Every shipped trace is synthetic, says so, and can be made again."""
    assert set(LIBRARY) == set(RECIPES)
    for name in LIBRARY:
        text = library_path(name).read_text()
        assert text == library_trace(name)
        assert text.startswith("# SYNTHETIC: ") and "Licence: CC0" in text
        assert len(read_trace(library_path(name), Reading(what=RECIPES[name].what)).values) > 1
        assert trace_about(name) == (RECIPES[name].what, RECIPES[name].about)
