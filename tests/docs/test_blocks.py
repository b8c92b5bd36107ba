"""Every code block of the documents is executed, or validated, in the order of its document."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import matplotlib as mpl
import pytest

from tests.docs.blocks import EXCERPT, NOT_RUN, ROOT, SLOW, Page, blocks_of, check_excerpt, documents, tokens_of
from tests.docs.pictures import pages_of, pictures_of
from tests.emulation.inside import skip_reason

LANGUAGES = {"sh", "python", "yaml", "toml", EXCERPT, "text"}  # text is not executed
TEXTS = {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in documents()}
QUICK = [name for name, text in TEXTS.items() if "```" in text]
LONG = [name for name, text in TEXTS.items() if f"<!-- {SLOW}: " in text]
NOT_EXECUTED = 12  # blocks; lower it when one becomes executable


@pytest.fixture(autouse=True)
def _new_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    mpl.use("agg")
    (tmp_path / "scenarios").symlink_to(ROOT / "scenarios")  # documents of the repository call from its root


@pytest.mark.sample(7)  # of 35, which take 18 s
@pytest.mark.parametrize("name", QUICK)
def test_quick_blocks(name: str) -> None:
    page = Page(name)
    for block in blocks_of(ROOT / name):
        if not block.notes:
            page.execute(block)


@pytest.mark.slow  # as long as the comments in the documents say
@pytest.mark.parametrize("name", LONG)
def test_all_blocks(name: str) -> None:
    page = Page(name)
    for block in blocks_of(ROOT / name):
        emulated = "emulated" in block.notes.get(SLOW, "")
        if NOT_RUN not in block.notes and not (emulated and skip_reason()):
            page.execute(block)


def test_every_block_has_a_language_that_is_executed_or_is_text() -> None:
    unknown = [
        f"{name}:{block.line}: {block.language or 'no language'}"
        for name in QUICK
        for block in blocks_of(ROOT / name)
        if block.language not in LANGUAGES
    ]
    assert unknown == []


def test_the_ways_of_a_gradient_and_of_a_rate_are_those_of_the_code() -> None:
    page = "docs/explanation/one-round.md"
    excerpts = [block for block in blocks_of(ROOT / page) if block.language == EXCERPT]
    for block in excerpts:
        check_excerpt(block, page)
    of_rate = TEXTS[page].partition("## One link's rate")[0].count("\n")
    assert len({block.title for block in excerpts if block.line < of_rate}) <= 20, "files to know of a gradient"
    assert len({block.title for block in excerpts if block.line > of_rate}) <= 12, "files to know of a link's rate"


def test_documents_fence_their_code() -> None:
    """A block that is only indented has no language, and would not be executed."""
    own = [path for path in documents() if path.parent == ROOT or ROOT / "docs" in path.parents]
    assert [str(path) for path in own if "code_block" in {token.type for token in tokens_of(path)}] == []


def test_few_blocks_are_not_executed() -> None:
    reasons = [block.notes[NOT_RUN] for name in QUICK for block in blocks_of(ROOT / name) if NOT_RUN in block.notes]
    assert len(reasons) <= NOT_EXECUTED, "\n".join(reasons)


def test_every_picture_of_a_document_is_stored_and_says_which_run_makes_it() -> None:
    for path in documents():
        pictures = pictures_of(path)
        assert len(pictures) == path.read_text(encoding="utf-8").count("\n!["), f"{path}: which run makes the picture?"
        for picture in pictures:
            most = 2_000_000 if picture.stored.suffix == ".webp" else 150_000  # that one moves
            assert picture.alt and picture.stored.stat().st_size < most, picture


def test_every_frame_of_a_document_has_its_page() -> None:
    for path in documents():
        pages = pages_of(path)
        assert len(pages) == path.read_text(encoding="utf-8").count("\n<iframe"), f"{path}: which run makes the page?"
        for page in pages:
            assert page.alt and page.stored.stat().st_size < 1_000_000, page
