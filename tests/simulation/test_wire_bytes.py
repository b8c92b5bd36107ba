"""What the simulation counts for a message is what the wire carries, however many parts and whatever their kind."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from testbed.messages import FRAME_MAC_BYTES, FRAME_PREFIX_BYTES, Message, MessageKind, encode_header, wire_bytes

DEVICES = ["cpu", "meta"]
SHAPES = st.lists(st.lists(st.integers(0, 300), min_size=1, max_size=3), max_size=20)


@given(
    shapes=SHAPES,
    meta=st.integers(-(2**40), 2**40),
    key=st.integers(-1, 2**20),
    device=st.sampled_from(DEVICES),
)
def test_payload_and_overhead_are_those_of_the_encoded_message(
    shapes: list[list[int]], meta: int, key: int, device: str
) -> None:
    parts = tuple(torch.empty(shape, dtype=torch.int16, device="meta") for shape in shapes)
    if device == "cpu":
        parts = tuple(torch.zeros(shape[:1], dtype=torch.float32) for shape in shapes)
    message = Message(MessageKind.PUSH, key, 7, {"m": meta}, parts, sender="a/b", sent_at_s=0.25)
    overhead_bytes = FRAME_PREFIX_BYTES + len(encode_header(message)) + FRAME_MAC_BYTES
    for _ in range(2):  # the second time parts may be known
        assert wire_bytes(message) == (message.payload_bytes, overhead_bytes)


def test_a_tensor_is_not_taken_for_one_that_is_gone() -> None:
    """Whoever is remembered by identity must not be mistaken for another that has it now."""
    for size in range(1, 200):
        message = Message(MessageKind.PUSH, parts=(torch.empty(size, device="meta"),))
        assert wire_bytes(message)[0] == 4 * size
