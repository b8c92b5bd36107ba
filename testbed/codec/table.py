"""The codecs by name. Apart from ``options`` because these import torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from testbed.codec.base import Codec
from testbed.codec.none import NoneCodec
from testbed.codec.options import CODECS

_MAKERS: dict[str, Callable[[Any], Codec]] = {"none": NoneCodec}


def make_codec(kind: str, options: dict[str, Any]) -> Codec:
    """A new codec with its own memory."""
    return _MAKERS[kind](CODECS[kind](**options))
