"""The modules that belong to one script, in a process that it shares with other scripts."""

from __future__ import annotations

import sys
import sysconfig
from pathlib import Path
from types import ModuleType
from typing import ClassVar

_STANDARD_LIBRARY = Path(sysconfig.get_path("stdlib"))
_INSTALLED = {"site-packages", "dist-packages"}


class ScriptModules:
    """The modules that a script has imported from its own folder. Other scripts of the process import their own."""

    _in_place: ClassVar[ScriptModules | None] = None

    def __init__(self, folder: Path) -> None:
        self._folder = folder.absolute()
        self._own: dict[str, ModuleType] = {}
        self._loaded = 0  # number of all loaded modules, these included, when the turn began

    def put(self) -> None:
        """Let imports find these modules, and none of another script."""
        last = ScriptModules._in_place
        if last is not self:
            if last is not None:
                last.take()
            sys.modules.update(self._own)
            ScriptModules._in_place = self
        self._loaded = len(sys.modules)

    def note(self) -> None:
        """Note which of the script's modules were imported since ``put``. Call it when the turn ends."""
        if len(sys.modules) == self._loaded:  # the usual case
            return
        new = dict.fromkeys(list(sys.modules)[self._loaded :])
        for name in new:
            package = name.partition(".")[0]  # a package loaded before the turn is not the script's
            if (package in new or package in self._own) and self._lies_beside(sys.modules[name]):
                self._own[name] = sys.modules[name]

    def take(self) -> None:
        """Remove these modules from ``sys.modules``: another script's turn begins, or this script has ended."""
        for name in self._own:
            sys.modules.pop(name, None)
        ScriptModules._in_place = None

    def _lies_beside(self, module: ModuleType) -> bool:
        known = getattr(module, "__dict__", {})  # a module's own ``__getattr__`` may raise anything
        place = known.get("__file__") or next(iter(known.get("__path__") or ()), None)
        if not isinstance(place, str) or not (path := Path(place).absolute()).is_relative_to(self._folder):
            return False
        # installed packages may lie below the script's folder, for example in a user's home
        return not path.is_relative_to(_STANDARD_LIBRARY) and not _INSTALLED.intersection(path.parts)
