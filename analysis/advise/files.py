"""An advice as files: table, sentences, page, picture, and the scenarios of the best techniques."""

from __future__ import annotations

import re
from pathlib import Path

from analysis.advise.advice import Advice
from analysis.advise.conclusion import conclusion
from analysis.advise.output import frame
from analysis.figures.advice import draw
from analysis.report.advice import page
from testbed.results import atomic

_NO_FILE_NAME = re.compile(r"[^A-Za-z0-9._-]+")


def write(advice: Advice, out: Path) -> list[Path]:
    """Write ``advice`` as CSV, text, HTML, PNG and PDF, and ``1-NAME.yaml`` … of the best; return the paths."""
    out.mkdir(parents=True, exist_ok=True)
    atomic.write_text(out / "advice.csv", frame(advice).to_csv(index=False))
    atomic.write_text(out / "advice.txt", "\n".join(conclusion(advice)) + "\n")
    atomic.write_text(out / "advice.html", page(advice))
    files = [out / "advice.csv", out / "advice.txt", out / "advice.html"]
    if advice.ranked:
        figure = draw(advice)
        for form in ("png", "pdf"):
            with atomic.replacing(out / f"advice.{form}") as temporary:
                figure.savefig(temporary, format=form)
            files.append(out / f"advice.{form}")
    for place, (name, scenario) in enumerate(advice.scenarios().items(), 1):
        path = out / f"{place}-{file_name(name)}.yaml"
        atomic.write_text(path, scenario.to_yaml())
        files.append(path)
    return files


def file_name(name: str) -> str:
    """Return a technique's name as a part of a file's name."""
    return _NO_FILE_NAME.sub("-", name).strip("-")
