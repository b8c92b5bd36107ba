"""Quantities: what is accepted, what is refused with which words, and that writing and reading are inverse."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from testbed import units
from testbed.units import UnitError
from tests.for_each import for_each

POSITIVE = st.floats(min_value=0, max_value=1e15, allow_nan=False, allow_infinity=False)


@for_each(
    ("parse", "text", "value"),
    [
        (units.parse_rate, "20 Mbit/s", 20e6),
        (units.parse_rate, "1.5 Gbit/s", 1.5e9),
        (units.parse_rate, "7 bit/s", 7.0),
        (units.parse_rate, "1e3 bit/s", 1e3),
        (units.parse_rate, "155Mbit/s", 155e6),
        (units.parse_duration, "50 ms", 0.05),
        (units.parse_duration, "10 us", 1e-5),
        (units.parse_duration, "3 min", 180.0),
        (units.parse_duration, "1.5 h", 5400.0),
        (units.parse_duration, "100 ns", 1e-7),
        (units.parse_size, "2 MiB", 2 << 20),
        (units.parse_size, "64 KB", 64_000),
        (units.parse_size, "100 bytes", 100),
        (units.parse_size, "1.5 KiB", 1536),
        (units.parse_size, "1 byte", 1),
        (units.parse_share, "1 %", 0.01),
        (units.parse_share, "1%", 0.01),
        (units.parse_share, "0.01", 0.01),
    ],
)
def test_prefixes_are_decimal_and_values_the_nearest_float(
    parse: Callable[[str], float], text: str, value: float
) -> None:
    assert parse(text) == value


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


@given(POSITIVE, st.integers(min_value=0, max_value=10**15), st.floats(min_value=0, max_value=1))
@example(1 / 3, 1 << 30, 0.07)
@example(999_999_999.9999999, 0, 1.0)
@example(5e-324, 1, 0.0)
def test_what_is_written_reads_back_the_same(number: float, size_bytes: int, share: float) -> None:
    assert units.parse_rate(units.format_rate(number)) == number
    assert units.parse_duration(units.format_duration(number)) == number
    assert units.parse_size(units.format_size(size_bytes)) == size_bytes
    assert units.parse_share(units.format_share(share)) == share


@given(st.text(max_size=30))
def test_any_text_is_read_or_refused(text: str) -> None:
    for parse in (units.parse_rate, units.parse_duration, units.parse_size, units.parse_share):
        try:
            parse(text)
        except UnitError as error:
            assert error.problem
