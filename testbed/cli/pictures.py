"""Files that verbs write where the user says: whole or not at all, and a wrong place is the user's mistake."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from testbed.errors import ScenarioError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PICTURES = (".png", ".svg", ".pdf")


def save(figure: Figure, path: Path) -> None:
    """Write a picture. Raises ``ScenarioError``."""
    from testbed.results.atomic import replacing

    if path.suffix.lower() not in PICTURES:
        raise ScenarioError(f"{path}: a picture ends in one of {', '.join(PICTURES)}")
    try:
        with replacing(path) as temporary:
            figure.savefig(temporary, format=path.suffix.lower()[1:])
    except OSError as error:
        raise ScenarioError(f"{path}: {error.strerror}") from error


def write(path: Path, text: str) -> None:
    """Write a text. Raises ``ScenarioError``."""
    from testbed.results.atomic import write_bytes

    try:
        write_bytes(path, text.encode())
    except OSError as error:
        raise ScenarioError(f"{path}: {error.strerror}") from error
