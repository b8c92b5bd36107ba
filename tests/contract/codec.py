"""The contract of ``testbed.codec.base.Codec``: what every codec promises, as tests that every codec passes.

To use it, inherit and give ``make``, which returns a new end of a connection; say in the class attributes what the
codec may lose. Sizes lie on both sides of every bound, of a byte's four codes and of a word's sixteen.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from testbed.codec.base import Codec
from testbed.codec.errors import NonFiniteNumbers
from testbed.messages import Message, MessageKind, decode_header, encode_header

SIZES = (1, 2, 3, 4, 5, 15, 16, 17, 64, 999, 1000, 1001, 4099)
KEY = 3
DTYPES = (torch.float32, torch.float16, torch.int32, torch.int64, torch.uint8)


def numbers(size: int, seed: int = 0) -> Tensor:
    """Heavy-tailed, without zeros."""
    generator = torch.Generator().manual_seed(seed)
    tensor = torch.randn(size, generator=generator) / (torch.rand(size, generator=generator) + 0.1)
    return tensor + torch.where(tensor >= 0, 1e-3, -1e-3)


def size_of(parts: tuple[Tensor, ...]) -> int:
    return sum(part.nbytes for part in parts)


@st.composite
def hostile_parts(draw: st.DrawFn, honest: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """The honest parts, with some of them replaced, reordered, cut, or filled with other numbers."""
    parts = list(honest)
    for _ in range(draw(st.integers(1, 3))):
        index = draw(st.integers(0, len(parts))) if parts else 0
        part = parts[index] if index < len(parts) else torch.zeros(draw(st.integers(0, 20)))
        damage = draw(st.sampled_from(["drop", "copy", "cast", "cut", "fill", "shape", "reverse"]))
        if damage == "drop":
            del parts[index : index + 1]
            continue
        if damage == "cast":
            part = part.to(draw(st.sampled_from(DTYPES)))
        elif damage == "cut":
            part = part.reshape(-1)[: draw(st.integers(0, 20))]
        elif damage == "fill":
            part = torch.full_like(part, draw(st.sampled_from([0, 1, 85, 127])))
        elif damage == "shape":
            part = part.reshape(-1, 1)
        elif damage == "reverse":
            part = part.reshape(-1).flip(0)
        parts[index : index + (damage != "copy")] = [part]
    return tuple(parts)


class CodecContract:
    """Inherit this, and give ``make``."""

    exact_up: ClassVar[bool] = False  # decode(encode(x)) is x
    exact_down: ClassVar[bool] = False  # a child has the value after one round
    settles: ClassVar[bool] = True  # a child has a value that no longer changes, after enough rounds
    checks_finite: ClassVar[bool] = True
    sizes: ClassVar[tuple[int, ...]] = SIZES

    @abstractmethod
    def make(self) -> Codec:
        """A new end of a connection."""

    def value(self, size: int, seed: int = 0) -> Tensor:
        """A value that a server may hold."""
        return numbers(size, seed)

    # ---- up -----------------------------------------------------------------------------------------------------

    def test_a_contribution_arrives_with_its_size(self) -> None:
        for size in self.sizes:
            tensor = numbers(size)
            arrived = self.make().decode(KEY, self.make().encode(KEY, tensor), size)
            assert arrived.shape == (size,)
            assert arrived.dtype == torch.float32
            if self.exact_up:
                assert torch.equal(arrived, tensor)

    def test_payloads_have_the_predicted_size(self) -> None:
        for size in self.sizes:
            codec = self.make()
            assert size_of(codec.encode(KEY, numbers(size))) == codec.encoded_bytes(size)
            later = [size_of(codec.encode(KEY, numbers(size, seed))) for seed in range(4)]
            assert max(later) <= codec.encoded_bytes(size)

    def test_zeros_are_sent_and_never_cost_more(self) -> None:
        for size in self.sizes:
            codec = self.make()
            parts = codec.encode(KEY, torch.zeros(size))
            assert size_of(parts) <= codec.encoded_bytes(size)
            assert not self.make().decode(KEY, parts, size).any()

    def test_shapes_alone_give_payloads_of_the_same_size(self) -> None:
        for size in self.sizes:
            real, shapes, server = self.make(), self.make(), self.make()
            for seed in range(3):
                honest = real.encode(KEY, numbers(size, seed))
                parts = shapes.encode(KEY, torch.empty(size, device="meta"))
                assert [(p.dtype, p.shape) for p in parts] == [(p.dtype, p.shape) for p in honest]
                arrived = server.decode(KEY, parts, size)
                assert arrived.is_meta
                assert arrived.shape == (size,)

    def test_encoding_changes_neither_its_input_nor_earlier_payloads(self) -> None:
        for size in self.sizes:
            codec, tensor = self.make(), numbers(size)
            first = codec.encode(KEY, tensor)
            copies = [part.clone() for part in first]
            codec.encode(KEY, numbers(size, 1))
            assert torch.equal(tensor, numbers(size))
            assert all(torch.equal(part, copy) for part, copy in zip(first, copies, strict=True))

    def test_decoding_does_not_change_the_payload(self) -> None:
        for size in self.sizes:
            parts = self.make().encode(KEY, numbers(size))
            copies = [part.clone() for part in parts]
            self.make().decode(KEY, parts, size)
            assert all(torch.equal(part, copy) for part, copy in zip(parts, copies, strict=True))

    def test_the_same_numbers_give_the_same_bytes(self) -> None:
        size = max(self.sizes)
        one, other = self.make(), self.make()
        for seed in range(4):
            pair = one.encode(KEY, numbers(size, seed)), other.encode(KEY, numbers(size, seed))
            assert all(torch.equal(a, b) for a, b in zip(*pair, strict=True))

    def test_keys_do_not_share_memory(self) -> None:
        size = max(self.sizes)
        alone, both = self.make(), self.make()
        for seed in range(3):
            both.encode(KEY + 1, numbers(size, seed + 10))
            pair = alone.encode(KEY, numbers(size, seed)), both.encode(KEY, numbers(size, seed))
            if not self.draws_by_chance:
                assert all(torch.equal(a, b) for a, b in zip(*pair, strict=True))

    draws_by_chance: ClassVar[bool] = False

    def test_a_slice_of_a_larger_tensor_is_encoded_like_a_tensor_of_its_own(self) -> None:
        size = max(self.sizes)
        whole = numbers(3 * size)
        piece = whole[size : 2 * size]
        pair = self.make().encode(KEY, piece), self.make().encode(KEY, piece.clone())
        assert all(torch.equal(a, b) for a, b in zip(*pair, strict=True))

    def test_payloads_travel_in_messages(self) -> None:
        for size in self.sizes:
            parts = self.make().encode(KEY, numbers(size))
            message = Message(MessageKind.PUSH, KEY, parts=parts)
            _, received = decode_header(encode_header(message), message.payload_bytes)
            assert [(p.dtype, p.shape) for p in received] == [(p.dtype, p.shape) for p in parts]
            assert all(part.is_contiguous() for part in parts)

    @pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
    def test_numbers_that_are_not_finite_are_refused_and_leave_no_trace(self, bad: float) -> None:
        if not self.checks_finite:
            pytest.skip("sends what it is given, and remembers nothing")
        size = max(self.sizes)
        codec, innocent = self.make(), self.make()
        for end in (codec, innocent):
            end.encode(KEY, numbers(size))
        poisoned = numbers(size, 1)
        poisoned[[5, 700]] = bad
        with pytest.raises(NonFiniteNumbers, match=f"2 of {size} elements of the .* of key {KEY} are NaN or infinite"):
            codec.encode(KEY, poisoned)
        pair = codec.encode(KEY, numbers(size, 2)), innocent.encode(KEY, numbers(size, 2))
        assert all(torch.equal(a, b) for a, b in zip(*pair, strict=True))

    # ---- hostile peers --------------------------------------------------------------------------------------------

    @given(st.data())
    def test_hostile_contributions_raise_value_errors_only(self, data: st.DataObject) -> None:
        size = data.draw(st.sampled_from(self.sizes))
        parts = data.draw(hostile_parts(self.make().encode(KEY, numbers(size))))
        try:
            arrived = self.make().decode(KEY, parts, size)
        except ValueError:
            return
        assert arrived.shape == (size,)

    @given(st.data())
    def test_hostile_values_raise_value_errors_only(self, data: st.DataObject) -> None:
        size = data.draw(st.sampled_from(self.sizes))
        server, child = self.connected(size)
        parts = data.draw(hostile_parts(server.encode_value(KEY, self.value(size, 1))))
        try:
            arrived = child.decode_value(KEY, parts, size)
        except ValueError:
            return
        assert arrived.shape == (size,)

    def test_payloads_for_another_size_are_refused(self) -> None:
        size = max(self.sizes)
        with pytest.raises(ValueError):
            self.make().decode(KEY, self.make().encode(KEY, numbers(size)), 16)

    # ---- down -----------------------------------------------------------------------------------------------------

    def connected(self, size: int) -> tuple[Codec, Codec]:
        """Server's and child's end; both have the first value."""
        server, child = self.make(), self.make()
        first = self.value(size, 99)
        server.begin(KEY, first)
        child.begin(KEY, first.clone())
        return server, child

    def test_a_value_arrives_with_its_size(self) -> None:
        for size in self.sizes:
            server, child = self.connected(size)
            value = self.value(size)
            arrived = child.decode_value(KEY, server.encode_value(KEY, value), size)
            assert arrived.shape == (size,)
            assert arrived.dtype == torch.float32
            if self.exact_down:
                assert torch.equal(arrived, value)

    def test_values_have_the_predicted_size(self) -> None:
        for size in self.sizes:
            server, _ = self.connected(size)
            assert size_of(server.encode_value(KEY, self.value(size))) <= server.value_bytes(size)
            meta = torch.empty(size, device="meta")
            shapes, child = self.make(), self.make()
            shapes.begin(KEY, meta)
            child.begin(KEY, meta)
            parts = shapes.encode_value(KEY, meta)
            assert size_of(parts) == shapes.value_bytes(size)
            assert child.decode_value(KEY, parts, size).is_meta

    def test_a_value_that_stays_arrives_in_full(self) -> None:
        if not self.settles:
            pytest.skip("values are rounded on the way")
        for size in self.sizes:
            server, child = self.connected(size)
            value = self.value(size)
            for _ in range(600):
                arrived = child.decode_value(KEY, server.encode_value(KEY, value), size)
                if torch.equal(arrived, value):
                    break
            else:
                pytest.fail(f"{size} elements had not arrived after 600 rounds")

    def test_earlier_values_stay_as_they_were(self) -> None:
        size = max(self.sizes)
        server, child = self.connected(size)
        value = self.value(size)
        first = child.decode_value(KEY, server.encode_value(KEY, value), size)
        copy = first.clone()
        child.decode_value(KEY, server.encode_value(KEY, self.value(size, 1)), size)
        assert torch.equal(first, copy)
        assert torch.equal(value, self.value(size))

    def test_first_values_stay_as_they_were(self) -> None:
        for size in self.sizes:
            server, child, first = self.make(), self.make(), self.value(size, 99)
            server.begin(KEY, first)
            child.begin(KEY, first)  # in the virtual world both ends are given the same tensor
            child.decode_value(KEY, server.encode_value(KEY, self.value(size)), size)
            assert torch.equal(first, self.value(size, 99))

    def test_begin_makes_both_ends_agree_again(self) -> None:
        size = max(self.sizes)
        server, child = self.connected(size)
        server.encode_value(KEY, self.value(size))  # lost
        value = self.value(size, 2)
        server.begin(KEY, value)
        child.begin(KEY, value.clone())
        arrived = child.decode_value(KEY, server.encode_value(KEY, value), size)
        assert torch.allclose(arrived, value, rtol=1e-3)
