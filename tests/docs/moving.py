"""A moving picture of a run's page: ``python -m tests.docs.moving PAGE.html PICTURE.webp [FROM_S TO_S]``.

The page is a saved one (``testbed view RUN --save PAGE.html``). A browser draws it at moments of the run, one after the
other, and each is a frame; so the picture shows what a reader sees, and the same run makes the same picture.
"""

from __future__ import annotations

import argparse
import io
import sys
from pathlib import Path

from PIL import Image

from tests.view.browser import chromium, page_of

FRAMES = 96
FRAME_MS = 70
WIDTH = 1180  # pixels of the browser's window; the picture is narrower
SHOWN_WIDTH = 900
LARGEST_BYTES = 2_000_000


def frames_of(saved: Path, from_s: float, to_s: float) -> list[Image.Image]:
    """Return what a browser shows of a saved page at moments between two times of its run."""
    frames = []
    with chromium() as browser, page_of(browser, saved.resolve().as_uri(), width=WIDTH) as page:
        page.evaluate(f"page.lanes[0].show({from_s}, {to_s})")
        for number in range(FRAMES):
            page.evaluate(
                f"page.seek({from_s + (to_s - from_s) * number / FRAMES}); page.draw(performance.now() + 1e6)"
            )
            shot = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
            height = round(shot.height * SHOWN_WIDTH / shot.width)
            frames.append(shot.resize((SHOWN_WIDTH, height), Image.Resampling.LANCZOS))
    return frames


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("page", type=Path)
    parser.add_argument("picture", type=Path)
    parser.add_argument("span_s", type=float, nargs="*", default=(8.0, 14.0), help="default: 8 14")
    arguments = parser.parse_args()
    first, *others = frames_of(arguments.page, *arguments.span_s)
    first.save(arguments.picture, save_all=True, append_images=others, duration=FRAME_MS, loop=0, quality=60, method=4)
    size = arguments.picture.stat().st_size
    if size > LARGEST_BYTES:
        sys.exit(f"{arguments.picture}: {size / 1e6:.1f} MB; fewer frames, or a shorter time")


if __name__ == "__main__":
    main()
