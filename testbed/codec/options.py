"""The codecs that a scenario may name, and their options; free of torch, so that reading a scenario stays quick."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class NoneOptions:
    """float32 as it is."""


CODECS = {"none": NoneOptions}
