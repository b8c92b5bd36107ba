"""The pictures of documents and the outputs of notebooks, made anew: ``python -m tests.docs.pictures [PATH …]``.

A picture of a document comes from a run that a reader can repeat. The comment before the image names the file:

    <!-- picture: runs/fsa/figure.png -->                        the blocks of the document above it make the file
    <!-- picture: run/figure.png of testbed run quickstart -->   this command makes the file
    <!-- page: run.html of testbed view run --save run.html -->  likewise, before the frame of a saved page

The picture is stored where the image's link points to, with few colours, so that the repository stays small. A
notebook is executed from top to bottom and stored with its outputs. Without PATH, all documents and notebooks are
made anew, which takes some minutes; emulated runs need root or user namespaces.
"""

from __future__ import annotations

import argparse
import base64
import io
import os
import re
import sys
import tempfile
from collections.abc import Sequence
from contextlib import chdir
from dataclasses import dataclass
from pathlib import Path

import matplotlib as mpl
from PIL import Image

from tests.docs.blocks import NOT_RUN, ROOT, Page, blocks_of, documents, shell

PICTURE = re.compile(r"<!-- picture: (?P<file>\S+)(?: of (?P<command>.+?))? -->\n!\[(?P<alt>[^\]]*)\]\((?P<link>\S+)\)")
PAGE = re.compile(
    r"<!-- page: (?P<file>\S+) of (?P<command>.+?) -->\n<iframe src=\"(?P<link>\S+)\" title=\"(?P<alt>[^\"]*)\""
)
NOTEBOOKS = ROOT / "analysis" / "notebooks"
COLOURS = 96
WIDTH = 1100  # pixels, at most; a page of the site is narrower


@dataclass(frozen=True)
class Picture:
    """An image of a document: the file that a run makes, and the file of the repository that the document shows."""

    line: int
    file: str
    command: str
    alt: str
    stored: Path


def pictures_of(document: Path) -> list[Picture]:
    """Return the pictures of a document, in order."""
    return _found(PICTURE, document)


def pages_of(document: Path) -> list[Picture]:
    """Return the saved pages that a document shows in a frame."""
    return _found(PAGE, document)


def _found(pattern: re.Pattern[str], document: Path) -> list[Picture]:
    text = document.read_text(encoding="utf-8")
    return [
        Picture(
            line=text.count("\n", 0, found.start()) + 1,
            file=found["file"],
            command=found["command"] or "",
            alt=found["alt"],
            stored=(document.parent / found["link"]).resolve(),
        )
        for found in pattern.finditer(text)
    ]


def make(document: Path) -> None:
    """Run the blocks of a document in the working directory, and store its pictures.

    The blocks after the last picture are not run.
    """
    page = Page(str(document.relative_to(ROOT)))
    blocks = [block for block in blocks_of(document) if NOT_RUN not in block.notes]
    for picture in (*pictures_of(document), *pages_of(document)):
        if picture.command:
            shell(picture.command)
        else:
            while blocks and blocks[0].line < picture.line:
                page.execute(blocks.pop(0))
        picture.stored.parent.mkdir(parents=True, exist_ok=True)
        made = Path(picture.file).read_bytes()
        picture.stored.write_bytes(reduced(made) if picture.file.endswith(".png") else made)
        tell_size(picture.stored)


def reduced(png: bytes) -> bytes:
    """Return a PNG with at most ``COLOURS`` colours and ``WIDTH`` pixels a row."""
    image = Image.open(io.BytesIO(png)).convert("RGB")
    if image.width > WIDTH:
        image = image.resize((WIDTH, round(image.height * WIDTH / image.width)), Image.Resampling.LANCZOS)
    stored = io.BytesIO()
    image.quantize(COLOURS, dither=Image.Dither.NONE).save(stored, "PNG", optimize=True)
    return stored.getvalue()


def tell_size(path: Path) -> None:
    sys.stdout.write(f"{path.relative_to(ROOT)}: {path.stat().st_size / 1000:.0f} kB\n")


def execute(path: Path) -> None:
    """Execute a notebook in the working directory, and store it with its outputs."""
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(path, as_version=4)
    NotebookClient(notebook, timeout=600, resources={"metadata": {"path": "."}}).execute()
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)  # the times at which the cell began and ended
        for output in cell.get("outputs", ()):
            data = output.get("data", {})
            if "image/png" in data:
                data["image/png"] = base64.b64encode(reduced(base64.b64decode(data["image/png"]))).decode()
    nbformat.write(notebook, path)
    tell_size(path)


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="*", type=Path, metavar="PATH", help="a document or a notebook; default: all")
    chosen = [path.resolve() for path in parser.parse_args(arguments).paths]
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    os.environ["PYTHONPATH"] = str(ROOT)
    os.environ["OMP_NUM_THREADS"] = "1"
    mpl.use("agg")
    for path in chosen or [*filter(pictures_of, documents()), *sorted(NOTEBOOKS.glob("*.ipynb"))]:
        with tempfile.TemporaryDirectory() as folder, chdir(folder):
            Path("scenarios").symlink_to(ROOT / "scenarios")
            if path.suffix == ".ipynb":
                execute(path)
            else:
                make(path)


if __name__ == "__main__":
    main(sys.argv[1:])
