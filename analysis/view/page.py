"""The page as HTML: served with its scripts and styles as separate files, or saved as one file.

The HTML contains no name of a run: the page gets names as JSON, and inserts them as text.
"""

from __future__ import annotations

import base64
import gzip
import json
import secrets
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

_STATIC = Path(__file__).parent / "static"
MODULES = ("charts", "lanes", "look", "main", "network", "numbers", "store", "sweep")
STYLES = ("uPlot.min.css", "style.css")
PLOTTING = "uPlot.iife.min.js"
TYPES = {".js": "text/javascript", ".css": "text/css"}
_BODIES = {"run": ("run.html", "view/main"), "sweep": ("sweep.html", "view/sweep")}


@cache
def static(name: str) -> bytes:
    """Return the content of a file of the page."""
    return (_STATIC / name).read_bytes()


FILES = (*(f"{name}.js" for name in MODULES), *STYLES, PLOTTING)
"""The names of all files that a server of the page may send."""


def policy(nonce: str, *, served: bool) -> str:
    """Return the Content-Security-Policy: no content from other origins, and only scripts that the page names."""
    scripts = f"'nonce-{nonce}' " + ("'self'" if served else "data:")
    connect = "'self'" if served else "'none'"
    styles = "'self' 'unsafe-inline'" if served else "'unsafe-inline'"
    return (
        f"default-src 'none'; script-src {scripts}; style-src {styles}; img-src data:; connect-src {connect}; "
        "base-uri 'none'; form-action 'none'" + ("; frame-ancestors 'none'" if served else "")
    )


def served_page(kind: str, root: str, nonce: str) -> str:
    """Return the page of a ``run`` or a ``sweep``. ``root``: the URL path of its files, which ends in a slash."""
    styles = "".join(f'<link rel="stylesheet" href="{root}static/{name}">' for name in STYLES)
    plotting = f'<script nonce="{nonce}" src="{root}static/{PLOTTING}"></script>'
    return _page(kind, styles + plotting, lambda name: f"{root}static/{name}.js", nonce)


def saved_page(kind: str, data: Mapping[str, Any]) -> str:
    """Return a page that contains its data, scripts and styles."""
    nonce = secrets.token_hex(8)
    head = f'<meta http-equiv="Content-Security-Policy" content="{policy(nonce, served=False)}">'
    head += "".join(f"<style>{static(name).decode()}</style>" for name in STYLES)
    head += f'<script nonce="{nonce}">{static(PLOTTING).decode()}</script>'
    held = base64.b64encode(compressed(data)).decode()
    head += f'<script type="application/octet-stream" id="data">{held}</script>'

    def place_of(name: str) -> str:
        return "data:text/javascript;base64," + base64.b64encode(static(f"{name}.js")).decode()

    return _page(kind, head, place_of, nonce)


def compressed(data: Mapping[str, Any]) -> bytes:
    return gzip.compress(json_of(data), mtime=0)


def json_of(data: Any) -> bytes:
    """Return JSON without NaN and without ``<``, so that it cannot end the script that contains it."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").encode()


def _page(kind: str, head: str, place_of: Callable[[str], str], nonce: str) -> str:
    body, module = _BODIES[kind]
    imports = {f"view/{name}": place_of(name) for name in MODULES}
    modules = json.dumps({"imports": imports})
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n<title>testbed</title>\n'
        '<link rel="icon" href="data:,">\n'
        f"{head}\n"
        f'<script nonce="{nonce}" type="importmap">{modules}</script>\n'
        f"</head>\n<body>\n<main>\n{static(body).decode()}</main>\n"
        f'<script nonce="{nonce}" type="module">import "{module}";</script>\n</body>\n</html>\n'
    )
