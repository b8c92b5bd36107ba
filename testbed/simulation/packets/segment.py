"""Sizes of TCP segments."""

from __future__ import annotations

SEGMENT_BYTES = 1448  # of payload: MTU 1500 less IP's 20 and TCP's 32 bytes of headers, with timestamps
HEADER_BYTES = 66  # headers of a frame: Ethernet's 14, IP's 20, TCP's 32
