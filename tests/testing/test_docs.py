"""The pages in docs/axes: their examples are the tested files, and their tables are complete."""

from __future__ import annotations

from pathlib import Path

from testbed.testing.subject import AXES
from tests.docs.blocks import blocks_of
from tests.for_each import for_each
from tests.testing.test_contracts import EXAMPLES, FIGURE, GOOD

DOCS = Path(__file__).parents[2] / "docs" / "axes"


@for_each(("page", "kind"), [*GOOD.items(), ("figure", FIGURE)])
def test_the_example_is_the_tested_file(page: str, kind: str) -> None:
    (code,) = [block.code for block in blocks_of(DOCS / f"{page}.md") if block.language == "python"]
    assert code == (EXAMPLES / kind.partition(":")[0]).read_text()


@for_each("axis", AXES)
def test_every_method_and_declaration_is_explained(axis: str) -> None:
    text = (DOCS / f"{axis}.md").read_text()
    base = AXES[axis].base_class()
    contract = [each for each in (base, *base.__subclasses__()) if each.__module__ == base.__module__]
    public = {name for each in contract for name in vars(each) if not name.startswith("_")} - {"Options"}
    assert [name for name in sorted(public) if f"`{name}" not in text] == []
