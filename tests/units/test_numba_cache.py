"""Compiled code is kept in a folder to which no other user can write."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from testbed.errors import CapabilityError
from testbed.numba_cache import own_folder
from tests.for_each import for_each


@for_each("kind", ["", "open", "link", "file", "another user's"])
def test_a_folder_that_others_could_have_made_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    place = tmp_path / f"testbed-{os.geteuid()}"
    if kind == "link":
        (tmp_path / "mine").mkdir(mode=0o700)
        place.symlink_to(tmp_path / "mine")
    elif kind == "file":
        place.touch(mode=0o600)
    elif kind:
        place.mkdir(mode=0o750 if kind == "open" else 0o700)
    if kind == "another user's":
        if os.geteuid() != 0:
            return
        os.chown(place, 65534, 65534)
    if kind:
        with pytest.raises(CapabilityError, match="cure: remove it, or set NUMBA_CACHE_DIR"):
            own_folder()
    else:
        assert own_folder() == place == own_folder()
        assert place.stat().st_mode & 0o7777 == 0o700
