"""Hook of MkDocs: adds the documents outside docs/, notebooks, the reference, and the sources that documents link to.

A link of a document is relative to its place in the repository, so that it also works there. Here it is rewritten to
the page that the file has become. Folders have no page: links to them become text.
"""

from __future__ import annotations

import base64
import json
import logging
import posixpath
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(Path(__file__).parent)]
import reference  # noqa: E402 - MkDocs loads this file by its path

LINK = re.compile(r"(?P<open>\[(?P<text>[^\]]*)\]\()(?P<target>[^)\s#:]+)(?P<anchor>#[^)\s]*)?\)")
TOP = {
    "README.md": "index.md",
    "ARCHITECTURE.md": "architecture.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
}
LANGUAGES = {".py": "python", ".yaml": "yaml", ".css": "css", ".sh": "sh", ".toml": "toml", ".json": "json"}
origins: dict[str, str] = {}  # place in the site -> file in the repository
_log = logging.getLogger("mkdocs.hooks.pages")


def documents() -> list[str]:
    """Return the documents outside docs/ that are pages."""
    found = [*ROOT.glob("scenarios/**/README.md"), *ROOT.glob("topologies/README.md")]
    return [name for name in TOP if (ROOT / name).exists()] + sorted(str(path.relative_to(ROOT)) for path in found)


def place_of(path: str) -> str:
    """Return the place in the site of a file of the repository."""
    if path in TOP:
        return TOP[path]
    if path.endswith(".ipynb"):
        return f"notebooks/{Path(path).stem}.md"
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    return path if path.endswith(".md") else f"source/{path}.md"


def notebook(path: Path) -> tuple[str, dict[str, bytes]]:
    """Return the page of a notebook with the outputs of its cells, and the pictures that the page shows, by name."""
    texts: list[str] = []
    pictures: dict[str, bytes] = {}
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        text = "".join(cell["source"])
        texts.append(f"```python\n{text}\n```" if cell["cell_type"] == "code" else text)
        for output in cell.get("outputs", ()):
            shown = output.get("data", {"text/plain": output.get("text", "")})
            if "image/png" in shown:
                name = f"{path.stem}-{len(pictures) + 1}.png"
                pictures[name] = base64.b64decode("".join(shown["image/png"]))
                texts.append(f"![Output of the cell above]({name})")
            elif "text/html" in shown:
                texts.append(f"<div>{''.join(shown['text/html'])}</div>")
            else:
                texts.append(f"```text\n{''.join(shown['text/plain']).rstrip()}\n```")
    return "\n\n".join(texts), pictures


def source(path: Path) -> str:
    fence = "````"
    text = path.read_text(encoding="utf-8")
    return f"# {path.relative_to(ROOT)}\n\n{fence}{LANGUAGES.get(path.suffix, 'text')}\n{text}\n{fence}\n"


def on_files(files: Files, config: Any) -> Files:

    def add(uri: str, content: str | bytes) -> None:
        files.append(File.generated(config, uri, content=content))

    for file in files.documentation_pages():
        origins[file.src_uri] = f"docs/{file.src_uri}"
    for name in documents():
        origins[place_of(name)] = name
        add(place_of(name), (ROOT / name).read_text(encoding="utf-8"))
    for path in sorted((ROOT / "analysis" / "notebooks").glob("*.ipynb")):
        name = str(path.relative_to(ROOT))
        origins[place_of(name)] = name
        page, pictures = notebook(path)
        add(place_of(name), page)
        for picture, content in pictures.items():
            add(f"notebooks/{picture}", content)
    for uri, content in reference.pages().items():
        add(uri, content)
    for name in sorted({target for origin in origins.values() for target in _sources(origin)}):
        add(place_of(name), source(ROOT / name))
    return files


def _sources(origin: str) -> set[str]:
    """Return the files that a document links to and that have no page of their own."""
    found: set[str] = set()

    def note(path: str) -> str:
        if (ROOT / path).is_file() and place_of(path).startswith("source/"):
            found.add(path)
        return path

    if origin.endswith(".md"):
        rewrite((ROOT / origin).read_text(encoding="utf-8"), origin, note)
    return found


def rewrite(markdown: str, origin: str, place: Callable[[str], str]) -> str:
    """Return a document whose links to files of the repository lead to their pages."""
    here = place_of(origin)

    def relinked(link: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(posixpath.dirname(origin), link["target"]))
        if (ROOT / path).is_dir():
            path += "/README.md"
            if not (ROOT / path).is_file():
                return link["text"]
        if not (ROOT / path).is_file():
            return link[0]
        target = posixpath.relpath(place(path), posixpath.dirname(here) or ".")
        return f"{link['open']}{target}{link['anchor'] or ''})"

    return LINK.sub(relinked, markdown)


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Rewrite the links of a page."""
    origin = origins.get(page.file.src_uri)
    return rewrite(markdown, origin, place_of) if origin else markdown
