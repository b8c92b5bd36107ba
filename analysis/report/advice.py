"""The page of an advice: conclusion, ranking, why the best technique wins, and on which networks another would."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from html import escape

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.advise.advice import Advice
from analysis.advise.conclusion import conclusion
from analysis.advise.output import cells, columns
from analysis.figures import advice as drawing
from analysis.report import charts
from analysis.report.page import card, document, table
from testbed.numbers import counted

_ROW_IN = 0.3


def page(advice: Advice) -> str:
    """Return the HTML document about an advice."""
    return document(f"{advice.name}: advice", "".join(_body(advice)))


def _body(advice: Advice) -> Iterator[str]:
    yield f"<header><h1>{escape(advice.name)}</h1><p class='muted'>{escape(_about(advice))}</p></header>"
    first, *others = conclusion(advice)
    yield f"<p class='conclusion'>{escape(first)}</p>"
    yield from (f"<p>{escape(sentence)}</p>" for sentence in others)
    yield f"<section class='card'>{table(columns(advice), _rows(advice))}"
    yield "<p class='note'>Intervals hold the mean over three seeds with 90 %; > is a lower bound.</p></section>"
    rows = drawing.shown(advice)
    if rows:
        height = 1.2 + _ROW_IN * len(rows)
        yield "<div class='grid'>"
        yield _card("Ranking, with 90 % intervals", height, partial(drawing.ranking, advice=advice, rows=rows))
        yield _card("Time and traffic", height, partial(drawing.pareto, advice=advice, rows=rows))
        yield "</div>"
    if advice.splits or advice.elsewhere:
        yield "<div class='grid'>"
        yield _card("Where the time to the goal goes", 2.6, partial(drawing.why, advice=advice))
        yield _card("First on other networks", 2.6, partial(drawing.elsewhere, advice=advice))
        yield "</div>"


def _rows(advice: Advice) -> Iterator[list[str]]:
    for row in cells(advice):
        yield [escape(cell) for cell in row]


def _about(advice: Advice) -> str:
    wanted = "what a training sample takes"
    if advice.goal.target is not None:
        wanted = f"least {advice.goal.least} to {advice.goal.target.told}"
    return f"{wanted}; {counted(len(advice.rows), 'technique')}, {counted(advice.simulations, 'simulation')}"


def _card(title: str, height_in: float, draw: Callable[[Axes], None]) -> str:
    def fill(figure: Figure) -> None:
        axes = figure.subplots()
        draw(axes)
        axes.set_title("")  # the card has the title

    return card(title, "", charts.svg(fill, charts.NARROW_IN, height_in, title))
