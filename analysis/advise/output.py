"""An advice as a table: texts for people, numbers for programs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from math import isfinite
from typing import Any

import pandas as pd

from analysis.advise.advice import BEATEN, RANKED, Advice, Records, Row
from analysis.advise.conclusion import interval, quantity
from testbed.numbers import MISSING, seconds, share, short, size
from testbed.target import learning_of, score_text


def columns(advice: Advice) -> tuple[str, ...]:
    """Return the headings of the table's columns; ``>`` aligns a column to the right."""
    measure = learning_of(advice.goal.target)
    return "", ">takes", ">90 % interval", ">first", ">WAN", ">rounds", ">a round", f">last {measure}", ">seeds", ""


def as_records(advice: Advice) -> Records:
    """Return one mapping per row, in the order of rows, with times in s and sizes in bytes."""
    return [_record(row) for row in advice.rows]


def frame(advice: Advice) -> pd.DataFrame:
    """Return a data frame with one row per technique: outcome, value, 90 % interval, seconds, bytes, rounds, seeds."""
    return pd.DataFrame(as_records(advice))


def _record(row: Row) -> dict[str, Any]:
    record = asdict(row)
    found = record.pop("estimate") or dict.fromkeys(("value", "low", "high", "chance"))
    found = {name: value if value is None or isfinite(value) else None for name, value in found.items()}
    settings = "; ".join(record.pop("settings"))
    return {**{key: record[key] for key in ("name", "outcome")}, **found, **record, "settings": settings}


def cells(advice: Advice) -> Iterator[tuple[str, ...]]:
    """Yield the cells of each row, with units, in the order of ``columns``."""
    measure = learning_of(advice.goal.target)
    for row in advice.rows:
        value = MISSING
        span = MISSING
        chance = MISSING
        if row.estimate is not None and row.outcome == RANKED:
            value = quantity(advice, row.estimate.value)
            span = interval(advice, row)
            chance = share(row.estimate.chance)
        elif row.estimate is not None and row.outcome == BEATEN:
            value = f"> {quantity(advice, row.estimate.value)}"
        yield (
            row.name,
            value,
            span,
            chance,
            size(row.wan_bytes),
            short(row.rounds),
            seconds(row.round_s) if row.round_s is not None else MISSING,
            score_text(measure, row.score(advice.goal.target)),
            str(row.seeds) if row.seeds else MISSING,
            row.why,
        )
