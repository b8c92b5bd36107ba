"""Write files where the user asks, whole or not at all; an unusable place is a ``ScenarioError``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from testbed.errors import ScenarioError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PICTURES = (".png", ".svg", ".pdf")


def save(figure: Figure, path: Path) -> None:
    """Write a picture in the format of the path's suffix. Raise ``ScenarioError``."""
    if path.suffix.lower() not in PICTURES:
        raise ScenarioError(f"{path}: a picture ends in one of {', '.join(PICTURES)}")
    with _replacing(path) as temporary:
        figure.savefig(temporary, format=path.suffix.lower()[1:])


def write(path: Path, text: str) -> None:
    """Write a text in UTF-8. Raise ``ScenarioError``."""
    with _replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


@contextmanager
def _replacing(path: Path) -> Iterator[Path]:
    from testbed.results.atomic import replacing

    try:
        with replacing(path) as temporary:
            yield temporary
    except OSError as error:
        raise ScenarioError(f"{path}: {error.strerror}") from error
