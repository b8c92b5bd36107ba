"""Numbers as words: never a power of ten, and no rounding over the edge of a unit."""

from testbed import numbers
from tests.for_each import for_each


@for_each(
    ("value_s", "told"),
    [
        (None, "–"),
        (0.0, "0 s"),
        (8.92e-9, "<1 µs"),
        (4.2e-5, "42 µs"),
        (0.2573, "257 ms"),
        (0.99949, "999 ms"),
        (0.9996, "1 s"),
        (1.48, "1.48 s"),
        (123.4, "123 s"),
        (999.6, "16.7 min"),
        (72_000, "20 h"),
        (4e6, "1111 h"),
    ],
)
def test_durations(value_s: float | None, told: str) -> None:
    assert numbers.seconds(value_s) == told


@for_each(
    ("value_bytes", "told"),
    [(None, "–"), (12, "12 B"), (999.7e3, "1 MB"), (123.4e3, "123 kB"), (1.5e9, "1.5 GB"), (4.2e12, "4200 GB")],
)
def test_sizes(value_bytes: float | None, told: str) -> None:
    assert numbers.size(value_bytes) == told


def test_no_number_has_an_exponent_and_no_cell_is_a_tuple() -> None:
    assert numbers.share(1.07e-6) == "<0.001 %" and numbers.share(0.00107) == "0.107 %"
    assert numbers.cell((None, 8596.6)) == "–, 8597" and numbers.cell(float("nan")) == "–"
    assert numbers.counted(1, "worker") == "1 worker"


def test_three_digits_and_targets() -> None:
    assert [numbers.short(value) for value in (0.1234, 12.34, 99.96, 1234.6, -1234.6)] == [
        "0.123",
        "12.3",
        "100",
        "1235",
        "-1235",
    ]
    assert [numbers.target(value) for value in (0.9, 0.93, 0.975)] == ["90 %", "93 %", "97.5 %"]


def test_a_share_below_a_target_is_told_with_as_many_digits_as_show_it() -> None:
    told = [numbers.share_below(value, 0.88) for value in (0.5, 0.8796, 0.87999, 0.88, 0.9, None)]
    assert told == ["50 %", "87.96 %", "87.999 %", "88 %", "90 %", "–"]
