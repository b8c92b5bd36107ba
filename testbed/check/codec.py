"""Checks of a codec in both directions: sizes, damage, and what is remembered (``docs/axes/codec.md``)."""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor

from testbed.check.codec_ends import (
    KEY,
    LARGEST,
    SIZES,
    CodecEnds,
    Direction,
    Parts,
    bytes_of,
    damaged,
    directions,
    layout,
    numbers,
    require_tensor,
    same,
    tiers,
)
from testbed.check.subject import Subject
from testbed.check.verdict import CheckFailed, require
from testbed.codec.base import Codec
from testbed.codec.errors import NonFiniteNumbers
from testbed.messages import Message, MessageKind, decode_header, encode_header

DAMAGES = 120
_CUT = 1000


def what_is_sent_arrives_with_its_size(subject: Subject) -> None:
    for way in directions(subject):
        require_tensor(way.receive(way.send(way.tensor())), way.size, str(way))


def payloads_have_the_declared_size(subject: Subject) -> None:
    for way in directions(subject):
        for tensor in (*(way.tensor(seed) for seed in range(4)), *([torch.zeros(way.size)] if way.up else [])):
            _sized(subject, way, way.send(tensor))


def _sized(subject: Subject, way: Direction, parts: Parts) -> None:
    exactly, sent, modelled = subject.entry.size_only, bytes_of(parts), bytes_of(way.modelled)
    require(
        sent == modelled if exactly else sent <= modelled,
        f"a payload of {'' if exactly else 'at most '}{modelled} bytes for {way.size} elements, as on the meta device",
        f"{sent} bytes",
        "give meta parts the sizes that numbers give, or declare size_only = False where sizes depend on the numbers",
    )  # fmt: skip


def shapes_alone_give_payloads_of_the_same_size(subject: Subject) -> None:
    for way in directions(subject):
        honest, meta = layout(way.send(way.tensor())), torch.empty(way.size, device="meta")
        shapes = Direction(way.ends, way.up, way.ends.make(), way.ends.make(), way.size)
        for end in (shapes.source, shapes.target) if not way.up else ():
            end.begin(KEY, meta)
        parts = shapes.send(meta)
        require(
            all(part.is_meta for part in parts), "parts on the meta device for a meta tensor", str(layout(parts)),
            "return torch.empty(…, device=tensor.device) if tensor.is_meta",
        )  # fmt: skip
        require(
            layout(parts) == honest or not subject.entry.size_only or not way.up,
            f"parts as for real numbers, {honest}", str(layout(parts)), "give meta parts the same shapes",
        )  # fmt: skip
        arrived = require_tensor(shapes.receive(parts), way.size, f"{way} of meta parts")
        require(arrived.is_meta, "a meta tensor from meta parts", str(arrived.device), "decode to parts[0].device")


def zeros_arrive_as_zeros(subject: Subject) -> None:
    for ends in tiers(subject):
        for size in SIZES:
            arrived = ends.make().decode(KEY, ends.make().encode(KEY, torch.zeros(size)), size)
            require(
                not arrived.any(), "zeros for zeros", f"{int(arrived.count_nonzero())} of {size} elements are not 0",
                "let a scale of 0 decode to 0",
            )  # fmt: skip


def encoding_changes_neither_input_nor_earlier_payloads(subject: Subject) -> None:
    for ends in tiers(subject):
        codec, tensor = ends.make(), numbers(LARGEST)
        first = codec.encode(KEY, tensor)
        copies = tuple(part.clone() for part in first)
        codec.encode(KEY, numbers(LARGEST, 1))
        require(
            torch.equal(tensor, numbers(LARGEST)), "the tensor as it was after encode", "it has changed",
            "work on tensor.clone(), or on new tensors",
        )  # fmt: skip
        require(
            same(first, copies), "payloads that stay as they were returned", "the next encode changed an earlier one",
            "return new tensors, or clones of memory that is used again",
        )  # fmt: skip


def decoding_changes_no_payload(subject: Subject) -> None:
    for ends in tiers(subject):
        parts = ends.make().encode(KEY, numbers(LARGEST))
        copies = tuple(part.clone() for part in parts)
        ends.make().decode(KEY, parts, LARGEST)
        require(same(parts, copies), "parts as they were after decode", "they have changed", "decode into new tensors")


def the_same_numbers_give_the_same_bytes(subject: Subject) -> None:
    for one, other in zip(directions(subject, LARGEST), directions(subject, LARGEST), strict=True):
        for seed in range(4):
            require(
                same(one.send(one.tensor(seed)), other.send(one.tensor(seed))),
                "equal payloads from two ends of equal options, seed and inputs", f"they differ in round {seed}",
                "draw random numbers from context.seed alone, and keep no state outside the object",
            )  # fmt: skip


def keys_share_no_memory(subject: Subject) -> None:
    for ends in tiers(subject):
        if ends.draws:
            continue  # one stream of random numbers may serve all keys
        alone, both = ends.make(), ends.make()
        for seed in range(3):
            both.encode(KEY + 1, numbers(LARGEST, seed + 10))
            require(
                same(alone.encode(KEY, numbers(LARGEST, seed)), both.encode(KEY, numbers(LARGEST, seed))),
                "payloads of a key that do not depend on other keys", f"they do in round {seed}",
                "keep memory in a dict by wire_key",
            )  # fmt: skip


def a_slice_is_encoded_like_a_tensor_of_its_own(subject: Subject) -> None:
    for ends in tiers(subject):
        piece = numbers(3 * LARGEST)[LARGEST : 2 * LARGEST]
        require(
            same(ends.make().encode(KEY, piece), ends.make().encode(KEY, piece.clone())),
            "equal payloads of a slice and of its copy", "they differ", "do not read the tensor's storage beyond it",
        )  # fmt: skip


def payloads_travel_in_messages(subject: Subject) -> None:
    for ends in tiers(subject):
        for size in SIZES:
            parts = ends.make().encode(KEY, numbers(size))
            require(
                isinstance(parts, tuple) and all(part.is_contiguous() for part in parts),
                "a tuple of contiguous tensors",
                f"{type(parts).__name__} of {layout(tuple(parts))}", "return (part.contiguous(), …)",
            )  # fmt: skip
            message = Message(MessageKind.PUSH, KEY, parts=parts)
            _, received = decode_header(encode_header(message), message.payload_bytes)
            require(
                layout(tuple(received)) == layout(parts), f"parts that messages can carry, {layout(parts)}",
                str(layout(tuple(received))), "use dtypes of testbed.messages",
            )  # fmt: skip


def damaged_payloads_raise_value_errors_only(subject: Subject) -> None:
    """``ValueError``, or a tensor of the right size."""
    for number in range(DAMAGES):
        for way in directions(subject, SIZES[number % len(SIZES)]):
            parts = damaged(way.send(way.tensor(1)), number)
            try:
                arrived = way.receive(parts)
            except ValueError:
                continue
            except Exception as error:
                raise CheckFailed(
                    "ValueError for a damaged payload",
                    f"{type(error).__name__}: {error} for parts {layout(parts)}, {way.size} elements",
                    "look at number, dtype and size of the parts before using them",
                ) from error  # fmt: skip
            require_tensor(arrived, way.size, f"{way} of damaged parts {layout(parts)}")
    for ends in tiers(subject):
        with_another_size = ends.make().encode(KEY, numbers(LARGEST))
        try:
            ends.make().decode(KEY, with_another_size, 16)
        except ValueError:
            continue
        raise CheckFailed(
            f"ValueError for a payload of {LARGEST} elements where 16 are expected", "it was decoded",
            "compare the number of elements of each part with size",
        )  # fmt: skip


def non_finite_numbers_leave_no_trace(subject: Subject) -> None:
    """A NaN in a residual would stay in the model for ever: refuse it, or remember nothing."""
    for ends in tiers(subject):
        for bad in (math.nan, math.inf, -math.inf):
            codec, innocent = ends.make(), ends.make()
            for end in (codec, innocent):
                end.encode(KEY, numbers(LARGEST))
            poisoned = numbers(LARGEST, 1)
            poisoned[[5, 700]] = bad
            try:
                codec.encode(KEY, poisoned)
            except NonFiniteNumbers as error:
                require(
                    (error.key, error.count, error.size) == (KEY, 2, LARGEST),
                    f"an error that names key {KEY} and 2 of {LARGEST} elements", str(error),
                    "call testbed.codec.errors.check_finite(wire_key, tensor)",
                )  # fmt: skip
            require(
                same(codec.encode(KEY, numbers(LARGEST, 2)), innocent.encode(KEY, numbers(LARGEST, 2))),
                f"no trace of a tensor with {bad} in later payloads", "the next payload differs",
                "call testbed.codec.errors.check_finite(wire_key, tensor) before changing any memory",
            )  # fmt: skip


# ---- declarations ---------------------------------------------------------------------------------------------------


def has_memory_is_declared_as_it_behaves(subject: Subject) -> None:
    remembers = any(_remembers(ends) for ends in tiers(subject))
    declared = subject.entry.has_memory
    require(
        remembers == declared,
        f"has_memory = {declared}: payloads that {'' if declared else 'do not '}depend on earlier tensors",
        "they do" if remembers else "they do not", f"declare has_memory = {remembers}",
    )  # fmt: skip


def _remembers(ends: CodecEnds) -> bool:
    codec, server = ends.make(), ends.connected(LARGEST)[0]
    for seed in range(3):
        codec.encode(KEY, numbers(LARGEST, seed))
        server.encode_value(KEY, ends.value(LARGEST, seed))
    up = same(codec.encode(KEY, numbers(LARGEST, 9)), ends.make().encode(KEY, numbers(LARGEST, 9)))
    fresh = ends.connected(LARGEST)[0]
    value = ends.value(LARGEST, 9)
    return not (up and same(server.encode_value(KEY, value), fresh.encode_value(KEY, value)))


def dense_is_declared_as_it_behaves(subject: Subject) -> None:
    """The payload of a dense codec is one part, element by element: it can be cut, and payloads can be summed."""
    if not subject.entry.dense:
        return
    for ends in tiers(subject):
        one, other = numbers(LARGEST), numbers(LARGEST, 1)
        (whole,), (second,) = ends.make().encode(KEY, one), ends.make().encode(KEY, other)
        cut = ends.make().encode(KEY, one[100:900].clone())
        require(
            whole.numel() == LARGEST and same(cut, (whole[100:900],)),
            "dense = True: a payload that can be cut anywhere",
            f"the payload of elements 100 to 900 is not that part of the whole {layout((whole,))}",
            "declare dense = False",
        )  # fmt: skip
        total = ends.make().decode(KEY, (whole + second,), LARGEST)
        require(
            bool(((total - one - other).abs() <= 1e-2 * (one.abs() + other.abs())).all()),
            "dense = True: payloads whose sum is the sum's payload",
            f"off by up to {float((total - one - other).abs().max()):.3g}", "declare dense = False",
        )  # fmt: skip


def elementwise_is_declared_as_it_behaves(subject: Subject) -> None:
    """The pieces of a tensor that is cut give the numbers that the whole one gives, up and down, round by round."""
    if not subject.entry.elementwise:
        return
    for way in directions(subject, LARGEST):
        first, last = (Direction(way.ends, way.up, *way.ends.connected(size), size) for size in (_CUT, LARGEST - _CUT))
        for seed in range(3):
            tensor = way.tensor(seed)
            whole = way.receive(way.send(tensor))
            pieces = [first.receive(first.send(tensor[:_CUT].clone())), last.receive(last.send(tensor[_CUT:].clone()))]
            require(
                same((torch.cat(pieces),), (whole,)), "elementwise = True: pieces that give the numbers of the whole",
                f"other numbers {way}, cut at element {_CUT}", "declare elementwise = False",
            )  # fmt: skip


def state_is_taken_over(subject: Subject) -> None:
    """Ends with the states of others send what those would, and decode it to the same."""
    for old in directions(subject, LARGEST):
        for seed in range(3):
            old.receive(old.send(old.tensor(seed)))
        fresh = replace(old, source=_with_state_of(old.source, old.ends), target=_with_state_of(old.target, old.ends))
        for seed in (5, 6):
            tensor = old.tensor(seed)
            before, after = old.send(tensor), fresh.send(tensor)
            require(
                same(before, after), "equal payloads after load_state(state())", f"they differ {_way(old)}",
                "put all that the next payload depends on into state(), and take copies in load_state",
            )  # fmt: skip
            require(
                same((old.receive(before),), (fresh.receive(after),)), "equal numbers after load_state(state())",
                f"they differ {_way(old)}",
                "put all that decoding depends on into state(), such as the mirror of the value",
            )  # fmt: skip


def _with_state_of(old: Codec, ends: CodecEnds) -> Codec:
    """Return a new end that has loaded a copy of the state of ``old``."""
    state, new = old.state(), ends.make()
    require(
        all(isinstance(name, str) and isinstance(content, Tensor | int | float | str) for name,
        content in state.items()),
        "a state of tensors, numbers and texts by name",
        str({name: type(each).__name__ for name, each in state.items()}),
        "flatten it: {f'residual/{key}': tensor}",
    )  # fmt: skip
    new.load_state({name: each.clone() if isinstance(each, Tensor) else each for name, each in state.items()})
    return new


def _way(way: Direction) -> str:
    return f"on the way {'up' if way.up else 'down'}, tier {way.ends.tier}"
