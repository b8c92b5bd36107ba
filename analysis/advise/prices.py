"""What a run costs: bytes between data centres, by their source and target, and machines by the hour.

A file of prices is a CSV with the columns ``data_center``, ``to``, ``region``, ``usd_per_gb``, ``usd_per_hour``:

    region          the cloud region of the data centre: the prices of its transfers are taken from ``prices.csv``
    usd_per_gb      the price of a gigabyte (10^9 bytes) sent from it to the data centre ``to``; to any, if ``to`` is
                    empty
    usd_per_hour    the price of all machines of the data centre per hour

The project ships ``prices.csv``, each row with its date and source. Clouds change their prices: give ``usd_per_gb``
where this matters.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from testbed.errors import ScenarioError
from testbed.suggest import nearest_or_all
from testbed.units import parse_float

TABLE = Path(__file__).with_name("prices.csv")
COLUMNS = ("data_center", "to", "region", "usd_per_gb", "usd_per_hour")
ANY = "*"
INTERNET = "internet"
_GB = 1e9


@dataclass(frozen=True, slots=True)
class Prices:
    """Prices of a network.

    usd_per_gb    by source and target data centre; the target ``*`` is any
    usd_per_hour  of all machines together
    """

    usd_per_gb: Mapping[tuple[str, str], float] = field(default_factory=dict)
    usd_per_hour: float = 0.0

    def check(self, data_centers: Sequence[str]) -> None:
        """Raise ``ScenarioError`` if a data centre has no transfer price, or a price names an unknown data centre."""
        priced = {source for source, _ in self.usd_per_gb}
        for name in sorted(priced.difference(data_centers)):
            raise ScenarioError(
                f"--prices: '{name}' is not a data centre of the scenario ({nearest_or_all(name, data_centers)})"
            )
        if missing := [name for name in data_centers if name not in priced]:
            raise ScenarioError(f"--prices: {_no_price(missing[0], 'any other')}")

    def of_byte(self, wan_bytes: Mapping[tuple[str, str], int]) -> float:
        """Return the mean price of a byte (US dollars). Raise ``ScenarioError`` if a price is missing.

        wan_bytes  the bytes sent, by source and target data centre
        """
        total = sum(wan_bytes.values())
        if not total:
            return 0.0
        return sum(self._price(*pair) * size for pair, size in wan_bytes.items()) / total / _GB

    def _price(self, source: str, target: str) -> float:
        for pair in ((source, target), (source, ANY)):
            if pair in self.usd_per_gb:
                return self.usd_per_gb[pair]
        raise ScenarioError(f"--prices: {_no_price(source, repr(target))}")


def _no_price(source: str, target: str) -> str:
    cure = f"add a row with data_center {source}, and its region or usd_per_gb"
    return f"no price from '{source}' to {target}; {cure}"


@cache
def transfer_prices() -> dict[tuple[str, str], float]:
    """Return the shipped prices of a gigabyte, by source and target region. A target may be ``*`` or ``internet``."""
    with open(TABLE, newline="", encoding="utf-8") as file:
        return {(row["from"], row["to"]): float(row["usd_per_gb"]) for row in csv.DictReader(file)}


def read_prices(path: Path) -> Prices:
    """Return the prices in a file. Raise ``ScenarioError`` that says where the error is and what is expected."""
    try:
        with open(path, newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
    except (OSError, UnicodeDecodeError) as error:
        raise ScenarioError(f"--prices {path}: cannot be read ({error})") from error
    known = set(rows[0]) if rows else set()
    if "data_center" not in known or not known <= set(COLUMNS):
        raise ScenarioError(f"--prices {path}: expected a CSV with the columns {','.join(COLUMNS)}")
    per_gb: dict[tuple[str, str], float] = {}
    per_hour = 0.0
    regions: dict[str, str] = {}
    for line, row in enumerate(rows, 2):
        where = f"--prices {path}:{line}"
        name = row["data_center"]
        if region := row.get("region"):
            regions[name] = _region(region, where)
        if row.get("usd_per_gb"):
            per_gb[name, row.get("to") or ANY] = _number(row["usd_per_gb"], where)
        if row.get("usd_per_hour"):
            per_hour += _number(row["usd_per_hour"], where)
    shipped = {pair: price for pair, price in _between(regions).items() if (pair[0], ANY) not in per_gb}
    return Prices({**shipped, **per_gb}, per_hour)


def _between(regions: Mapping[str, str]) -> dict[tuple[str, str], float]:
    """Return the prices between data centres of known regions, and from each of these to the rest over the internet."""
    shipped = transfer_prices()
    found = {}
    for source, left in regions.items():
        for target, entered in regions.items():
            same = left == entered
            found[source, target] = 0.0 if same else shipped.get((left, entered), shipped[left, ANY])
        found[source, ANY] = shipped[left, INTERNET]
    return found


def _region(region: str, where: str) -> str:
    known = sorted({source for source, _ in transfer_prices()})
    if region not in known:
        raise ScenarioError(f"{where}: region '{region}' ({nearest_or_all(region, known, 30)})")
    return region


def _number(text: str, where: str) -> float:
    try:
        value = parse_float(text)
    except ValueError as error:
        raise ScenarioError(f"{where}: '{text}' is not a number of US dollars") from error
    if value < 0:
        raise ScenarioError(f"{where}: {text} is negative")
    return value
