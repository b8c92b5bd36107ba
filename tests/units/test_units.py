"""Quantities: what is accepted, what is refused with which words, and that writing and reading are inverse."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from testbed import units
from testbed.units import UnitError
from tests.for_each import for_each

POSITIVE = st.floats(min_value=0, max_value=1e15, allow_nan=False, allow_infinity=False)


@for_each(
    ("text", "rate_bps"),
    [("20 Mbit/s", 20e6), ("1.5 Gbit/s", 1.5e9), ("800 kbit/s", 8e5), ("7 bit/s", 7.0), ("1e3 bit/s", 1e3),
     ("155Mbit/s", 155e6)],
)  # fmt: skip
def test_rates_are_decimal(text: str, rate_bps: float) -> None:
    assert units.parse_rate(text) == rate_bps


@for_each(
    ("text", "duration_s"),
    [("50 ms", 0.05), ("2 s", 2.0), ("10 us", 1e-5), ("3 min", 180.0), ("1.5 h", 5400.0), ("100 ns", 1e-7)],
)
def test_durations_are_the_nearest_float(text: str, duration_s: float) -> None:
    assert units.parse_duration(text) == duration_s


@for_each(
    ("text", "size_bytes"),
    [
        ("2 MiB", 2 << 20),
        ("2 MB", 2_000_000),
        ("64 KB", 64_000),
        ("64 KiB", 65_536),
        ("100 bytes", 100),
        ("1.5 KiB", 1536),
        ("1 byte", 1),
    ],
)
def test_sizes_know_binary_and_decimal(text: str, size_bytes: int) -> None:
    assert units.parse_size(text) == size_bytes


def test_shares_are_numbers_or_percent() -> None:
    assert units.parse_share("1 %") == units.parse_share("1%") == units.parse_share("0.01") == 0.01


@for_each(
    ("text", "message"),
    [
        ("155Mbps", "'Mbps' is not a unit of rate (write '155 Mbit/s')"),
        ("20 MB/s", "'MB/s' is not a unit of rate (write '160 Mbit/s')"),
        ("20 mbit/s", "'mbit/s' is not a unit of rate (write '20 Mbit/s')"),
        ("10", "10 has no unit (write a unit, e.g. '10 Mbit/s')"),
        ("20 knots", "'knots' is not a unit of rate (one of Tbit/s, Gbit/s, Mbit/s, kbit/s, bit/s)"),
        ("fast", "expected a rate, got 'fast' (write a number and a unit, e.g. '10 Mbit/s')"),
        (".inf", "expected a rate, got '.inf' (it must be finite)"),
        ("3:20", "expected a rate, got '3:20' (sexagesimal notation is not supported)"),
        ("020 Mbit/s", "expected a number, got '020' (leading zeros are not allowed)"),
        ("1e400 bit/s", "'1e400 bit/s' is too large"),
        ("9" * 26 + " bit/s", "number has 26 characters, limit 25"),
    ],
)
def test_refused_rates_say_what_to_write(text: str, message: str) -> None:
    with pytest.raises(UnitError) as caught:
        units.parse_rate(text)
    assert str(caught.value) == message


def test_half_a_byte_is_refused() -> None:
    with pytest.raises(UnitError, match="not a whole number of bytes"):
        units.parse_size("0.5 bytes")


@given(POSITIVE)
@example(1 / 3)
@example(20e6)
@example(999_999_999.9999999)
def test_rates_read_back_the_same(rate_bps: float) -> None:
    assert units.parse_rate(units.format_rate(rate_bps)) == rate_bps


@given(POSITIVE)
@example(1e-9)
@example(5e-324)
@example(150.0)
def test_durations_read_back_the_same(duration_s: float) -> None:
    assert units.parse_duration(units.format_duration(duration_s)) == duration_s


@given(st.integers(min_value=0, max_value=10**15))
@example(1 << 30)
def test_sizes_read_back_the_same(size_bytes: int) -> None:
    assert units.parse_size(units.format_size(size_bytes)) == size_bytes


@given(st.floats(min_value=0, max_value=1))
@example(0.07)
def test_shares_read_back_the_same(share: float) -> None:
    assert units.parse_share(units.format_share(share)) == share


@given(st.text(max_size=30))
def test_any_text_is_read_or_refused(text: str) -> None:
    for parse in (units.parse_rate, units.parse_duration, units.parse_size, units.parse_share):
        try:
            parse(text)
        except UnitError as error:
            assert error.problem
