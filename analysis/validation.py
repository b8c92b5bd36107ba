"""Compares simulated with measured runs point by point: errors, ranking of techniques, and a map of the errors.

A point is a technique at one rate and one delay of all links. The compared quantity is the mean time of a round.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage

from testbed.errors import ScenarioError

_DARK = 0.28  # from this absolute error on, the colour is too dark for black text
# Two techniques whose rounds differ by less than this share take equally long, in either world (see ``tau_b``).
RESOLUTION = 0.005
# If ``fill`` lies between these, single packets decide whether a burst overflows the queue, and a timeout may be as
# long as a round. This holds for loss-based congestion control; the rate that BBR measures depends on no single loss.
UNDECIDED = (0.5, 1.5)


@dataclass(frozen=True, slots=True)
class ValidationPoint:
    """A technique at one rate and delay of all links, and the mean times of its rounds, measured and simulated.

    rate_bps             of every link
    delay_s              one-way delay of every link
    measured_s           mean round time of the emulated or exact run; with several seeds, the mean of ``repeats_s``
    simulated_s          mean round time of the simulated run; with several seeds, that of ``simulated_repeats_s``
    fill                 see ``fill_of``
    caveat               why the measured run doubts its own times (a busy machine, late packets); may be empty
    repeats_s            measured round times, by seed
    simulated_repeats_s  simulated round times, by seed
    doubt                why the simulated run doubts its prediction (``testbed.simulation.validity``); may be empty
    case                 another setting that differs between points, such as the model; may be empty
    loss_based           whether the congestion control reacts to losses
    """

    technique: str
    rate_bps: float
    delay_s: float
    measured_s: float
    simulated_s: float
    fill: float = 0.0
    caveat: str = ""
    repeats_s: tuple[float, ...] = ()
    simulated_repeats_s: tuple[float, ...] = ()
    doubt: str = ""
    case: str = ""
    loss_based: bool = True

    @property
    def error(self) -> float:
        """The relative error of the simulated time; positive if it is too long."""
        return self.simulated_s / self.measured_s - 1

    @property
    def valid(self) -> bool:
        """Whether this point tests the model: it lies where the model claims to hold, and neither run is doubtful."""
        return not (self._undecided or self.caveat or self.doubt)

    @property
    def why(self) -> str:
        """Why this point does not test the model; empty if it does."""
        fill = f"a round sends {self.fill:.1f} times what path and queue hold" if self._undecided else ""
        return "; ".join(part for part in (fill, self.doubt, self.caveat) if part)

    @property
    def _undecided(self) -> bool:
        return self.loss_based and UNDECIDED[0] <= self.fill < UNDECIDED[1]


@dataclass(frozen=True, slots=True)
class Agreement:
    """How well simulated and measured times agree.

    median         of the absolute errors over all points
    percentile_95  95th percentile of these errors; ``worst``: the largest one
    tau            Kendall's tau of the order of techniques: a mean over cases, rates and delays
    tau_resolved   the same, if times that differ by less than ``RESOLUTION`` count as ties
    points         number of points
    """

    median: float
    percentile_95: float
    worst: float
    tau: float | None
    tau_resolved: float | None
    points: int


def verdict(points: Sequence[ValidationPoint]) -> Agreement:
    """Return the agreement over all points. Raise ``ScenarioError`` if there are none."""
    if not points:
        raise ScenarioError("nothing to compare: no point was run in both worlds")
    errors = np.abs([point.error for point in points])
    return Agreement(
        float(np.median(errors)),
        float(np.percentile(errors, 95)),
        float(errors.max()),
        ranking(points),
        ranking(points, RESOLUTION),
        len(points),
    )


def reproduced(points: Sequence[ValidationPoint]) -> Agreement | None:
    """Compare measured runs with each other: the second run of each point is taken as a prediction of the first.

    A prediction of a single run cannot be expected to be closer. ``None`` if no point was measured twice.
    """
    twice = [
        replace(point, measured_s=point.repeats_s[0], simulated_s=point.repeats_s[1])
        for point in points
        if len(point.repeats_s) > 1
    ]
    return verdict(twice) if twice else None


def ranking(points: Sequence[ValidationPoint], resolution: float = 0.0) -> float | None:
    """Return Kendall's tau-b between measured and simulated times: a mean over cases, rates and delays.

    ``None`` if there are fewer than two techniques, or all are ties.
    """
    frame = pd.DataFrame(points)
    taus = [
        tau_b(group["measured_s"].to_numpy(), group["simulated_s"].to_numpy(), resolution)
        for _, group in frame.groupby(["case", "rate_bps", "delay_s"])
    ]
    known = [tau for tau in taus if tau is not None]
    return sum(known) / len(known) if known else None


def tau_b(one: np.ndarray, other: np.ndarray, resolution: float = 0.0) -> float | None:
    """Return Kendall's tau-b of two series of positive values; ``None`` if one of them is all ties.

    A pair is tied if its values differ by no more than ``resolution`` times the larger. Without a resolution this is
    the coefficient of Kendall, "The treatment of ties in ranking problems" (Biometrika 33, 1945).
    """
    orders = [_order(values, resolution) for values in (one, other)]
    scale = math.sqrt(math.prod(np.count_nonzero(order) for order in orders))
    return float((orders[0] * orders[1]).sum() / scale) if scale else None


def _order(values: np.ndarray, resolution: float) -> np.ndarray:
    """Return 1, -1 or 0 for each pair of values: whether the first is larger, smaller, or neither."""
    first = values[:, None]
    second = values[None, :]
    differs = np.abs(first - second) > resolution * np.maximum(first, second)
    order: np.ndarray = np.sign(first - second) * differs
    return order


def fill_of(result: Mapping[str, object], product_bytes: float, queue_bytes: float) -> float:
    """Return how many times a round's payload of the median data centre fills the path and the queue.

    result         the content of ``result.json``
    product_bytes  bandwidth-delay product of a link
    """
    payload = result["wan_payload_bytes"]
    rounds = result["rounds"]
    assert isinstance(payload, dict) and isinstance(rounds, int)
    sent = float(np.median([max(ways["up"], ways["down"]) for ways in payload.values()]))
    return sent / max(1, rounds) / (product_bytes + queue_bytes)


def write_table(points: Sequence[ValidationPoint], path: Path) -> None:
    """Write a CSV file with one row per point."""
    rows = [asdict(point) | {"error": point.error, "valid": point.valid, "why": point.why} for point in points]
    pd.DataFrame(rows).to_csv(path, index=False)


def error_map(points: Sequence[ValidationPoint], against: str = "emulated") -> Figure:
    """Draw one panel per technique and case: the error in per cent over rate and delay.

    Errors of points that do not test the model are in brackets.

    against  the back end of the measured runs, for the label
    """
    shown = list(dict.fromkeys((point.technique, point.case) for point in points))
    columns = min(3, len(shown))
    rows = -(-len(shown) // columns)
    figure = Figure(figsize=(1.2 + 2.9 * columns, 0.9 + 2.5 * rows), layout="constrained")
    panels = list(figure.subplots(rows, columns, squeeze=False).flat)
    rates = sorted({point.rate_bps for point in points})
    delays = sorted({point.delay_s for point in points})
    for axis, (technique, case) in zip(panels, shown, strict=False):
        of_panel = [point for point in points if (point.technique, point.case) == (technique, case)]
        image = _panel(axis, of_panel, rates, delays)
        axis.set_title("\n".join(filter(None, (technique, case))))
    for axis in panels[len(shown) :]:
        axis.set_visible(False)
    figure.colorbar(image, ax=panels, label=f"simulated against {against} round (%)", shrink=min(0.8, 2 / rows))
    return figure


def _panel(axis: Axes, points: Sequence[ValidationPoint], rates: list[float], delays: list[float]) -> AxesImage:
    values = np.full((len(delays), len(rates)), np.nan)
    for point in points:
        place = delays.index(point.delay_s), rates.index(point.rate_bps)
        values[place] = 100 * point.error
        text = f"{100 * point.error:+.1f}"
        axis.text(
            place[1],
            place[0],
            text if point.valid else f"({text})",
            ha="center",
            va="center",
            fontsize=8,
            color="white" if abs(point.error) > _DARK else "black",
        )
    image = axis.imshow(values, cmap="RdBu", vmin=-40, vmax=40, aspect="auto")
    axis.set_xticks(range(len(rates)), [f"{rate / 1e6:g}" for rate in rates])
    axis.set_yticks(range(len(delays)), [f"{delay * 1e3:g}" for delay in delays])
    axis.set_xlabel("rate (Mbit/s)")
    axis.set_ylabel("one-way delay (ms)")
    return image
