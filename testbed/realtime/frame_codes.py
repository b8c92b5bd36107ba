"""Authentication codes of frames and datagrams, by their names in ``transport.mac``.

Every code fills a field of the same size, so the choice of a code does not change the bytes on a link. On one core of
the machine of ``docs/measurements/transport.md``, aes-gmac processes 29 GB/s in pieces of 128 KiB.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Protocol

from cryptography.hazmat.primitives.ciphers import AEADEncryptionContext, Cipher
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import GCM

from testbed.errors import ScenarioError
from testbed.messages import FRAME_MAC_BYTES

Bytes = bytes | bytearray | memoryview
NO_CODE = "none"
_NONCE_BYTES = 12
_AT_ONCE_BYTES = 8192  # up to this size, joining the bytes and one call take a tenth of making a context (7 µs)


class Mac(Protocol):
    """Computes the code of one frame, over all bytes that ``update`` was given, in order."""

    def update(self, data: Bytes, /) -> None:
        """Take in ``data``, which must not change before ``digest``."""

    def digest(self) -> bytes:
        """Return the code, padded at the front to ``FRAME_MAC_BYTES``. To be called once."""


class FrameCode(ABC):
    """The codes of one direction of a connection."""

    @abstractmethod
    def __init__(self, key: bytes) -> None: ...

    @abstractmethod
    def begin(self, number: int) -> Mac:
        """Begin the code of frame ``number``. A sender must never use a number twice."""

    def of(self, number: int, data: Bytes) -> bytes:
        """Return the code of frame ``number``, which consists of ``data``."""
        mac = self.begin(number)
        mac.update(data)
        return mac.digest()


def frame_code(kind: str, key: bytes) -> FrameCode:
    """Return the code that ``transport.mac`` names, keyed by 32 bytes. Raise ``ScenarioError`` for an unknown name."""
    if kind not in CODES:
        raise ScenarioError(f"transport.mac: no frame code named {kind!r}; use one of {', '.join(CODES)}")
    return CODES[kind](key)


class AesGmac(FrameCode):
    """AES-256-GMAC (NIST SP 800-38D): the tag of GCM over data that is authenticated but not encrypted.

    The nonce is the frame's number. GCM is insecure if a nonce is used twice with one key; so each handshake derives a
    new key for each direction, and numbers only count up.
    """

    def __init__(self, key: bytes) -> None:
        self._aes = AES(key)
        self._at_once = AESGCM(key)

    def begin(self, number: int) -> Mac:
        return _Gmac(self._aes, self._at_once, _nonce(number))

    def of(self, number: int, data: Bytes) -> bytes:
        return self._at_once.encrypt(_nonce(number), b"", data).rjust(FRAME_MAC_BYTES, b"\0")


def _nonce(number: int) -> bytes:
    return number.to_bytes(_NONCE_BYTES, "big")


class _Gmac:
    """Collects the bytes of a small frame for one call; passes a large frame to a context piece by piece."""

    def __init__(self, aes: AES, at_once: AESGCM, nonce: bytes) -> None:
        self._aes = aes
        self._at_once = at_once
        self._nonce = nonce
        self._pieces: list[Bytes] = []
        self._size = 0
        self._context: AEADEncryptionContext | None = None

    def update(self, data: Bytes, /) -> None:
        if self._context is not None:
            return self._context.authenticate_additional_data(data)
        self._pieces.append(data)
        self._size += len(data)
        if self._size > _AT_ONCE_BYTES:
            self._context = Cipher(self._aes, GCM(self._nonce)).encryptor()
            for piece in self._pieces:
                self._context.authenticate_additional_data(piece)
        return None

    def digest(self) -> bytes:
        if self._context is None:
            tag = self._at_once.encrypt(self._nonce, b"", b"".join(self._pieces))
        else:
            self._context.finalize()
            tag = self._context.tag
        return tag.rjust(FRAME_MAC_BYTES, b"\0")


class NoCode(FrameCode):
    """No code: only TCP's checksum guards the bytes. For measuring the cost of a code, inside one machine only."""

    def __init__(self, key: bytes) -> None:
        pass

    def begin(self, number: int) -> Mac:
        return self

    def of(self, number: int, data: Bytes) -> bytes:
        return bytes(FRAME_MAC_BYTES)

    def update(self, data: Bytes, /) -> None:
        pass

    def digest(self) -> bytes:
        return bytes(FRAME_MAC_BYTES)


CODES: dict[str, type[FrameCode]] = {"aes-gmac": AesGmac, NO_CODE: NoCode}
