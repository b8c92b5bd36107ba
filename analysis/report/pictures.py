"""matplotlib figures as inline SVG that scales with the page, with text that stays text."""

from __future__ import annotations

import io
import re
from collections.abc import Callable

import matplotlib as mpl
from matplotlib.figure import Figure

from analysis.figures import panels

NARROW_IN, WIDE_IN = 4.6, 9.4  # widths at which 8.5 pt reads well on a phone, and across a desktop page


def svg(draw: Callable[[Figure], None], width_in: float, height_in: float, label: str) -> str:
    """``draw`` fills an empty figure; the result has no size of its own and an accessible label.

    Equal figures give equal text: nothing in it depends on the time or on the process.
    """
    with panels.style(), mpl.rc_context({"svg.hashsalt": label, "svg.fonttype": "none"}):
        figure = Figure(figsize=(width_in, height_in), layout="constrained")
        draw(figure)
        stream = io.StringIO()
        figure.savefig(stream, format="svg", metadata={"Date": None, "Creator": None}, transparent=True)
    return _inline(stream.getvalue(), label)


def _inline(text: str, label: str) -> str:
    body = text[text.index("<svg") :]
    body = re.sub(r"<metadata>.*?</metadata>", "", body, flags=re.DOTALL)
    prefix = re.sub(r"[^a-z0-9]+", "-", label.lower()).strip("-")
    body = re.sub(r'\bid="([^"]+)"', rf'id="{prefix}-\1"', body)
    body = re.sub(r"url\(#([^)]+)\)", rf"url(#{prefix}-\1)", body)
    body = re.sub(r'href="#([^"]+)"', rf'href="#{prefix}-\1"', body)
    opening = re.match(r"<svg[^>]*>", body)
    assert opening is not None
    box = re.search(r'viewBox="[^"]+"', opening[0])
    assert box is not None
    head = (f'<svg {box[0]} role="img" aria-label="{label}" xmlns="http://www.w3.org/2000/svg" '
            'xmlns:xlink="http://www.w3.org/1999/xlink">')  # fmt: skip
    return head + body[opening.end() :]
