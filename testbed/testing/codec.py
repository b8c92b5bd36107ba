"""Checks of a codec in both directions: sizes, damage, and what is remembered (``docs/axes/codec.md``).

The sizes of tensors lie around the bounds of bytes, words and options.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from testbed.codec.base import NOTHING, Codec
from testbed.codec.errors import NonFiniteNumbers
from testbed.codec.table import make_codec
from testbed.messages import Message, MessageKind, decode_header, encode_header
from testbed.testing.subject import Subject
from testbed.testing.verdict import CheckFailed, require

SIZES = (1, 2, 3, 4, 5, 15, 16, 17, 64, 999, 1000, 1001, 4099)
LARGEST = max(SIZES)
KEY = 3
CONTRIBUTORS = 3
_DTYPES = (torch.float32, torch.float16, torch.int32, torch.int64, torch.uint8)

Parts = tuple[Tensor, ...]

DAMAGES = 120
_CUT = 1000
_CURE = "call testbed.codec.errors.check_finite(wire_key, tensor) before changing any memory"
_FEEDBACK_SIZE, _FEEDBACK_ROUNDS = 1024, (200, 400, 800, 1600, 3200)
_ROUNDS = 64  # over which a codec that draws by chance comes close to its mean
_LEAST_COSINE, _LEAST_SIZE, _MOST_SIZE = 0.05, 0.1, 1.5  # of what arrives, and what was sent
_SETTLING_ROUNDS = 600  # of a value


# ---- ends of connections, and tensors -------------------------------------------------------------------------------


def numbers(size: int, seed: int = 0) -> Tensor:
    """Return float32 [size], heavy-tailed, without zeros."""
    generator = torch.Generator().manual_seed(seed)
    tensor = torch.randn(size, generator=generator) / (torch.rand(size, generator=generator) + 0.1)
    return tensor + torch.where(tensor >= 0, 1e-3, -1e-3)


class CodecEnds:
    """Makes codec objects of one technique on one tier."""

    def __init__(self, subject: Subject, tier: int) -> None:
        self.subject, self.tier = subject, tier
        self._sums = subject.entry.pull_on(subject.options, tier) == "sparse-sum"

    def make(self, seed: int = 7) -> Codec:
        """Return a new end of a connection."""
        return make_codec(self.subject.kind, dict(self.subject.values), self.tier, CONTRIBUTORS, seed)

    def connected(self, size: int) -> tuple[Codec, Codec]:
        """Return the server's and the child's end; both hold the first value."""
        server, child, first = self.make(), self.make(), self.value(size, 99)
        server.begin(KEY, first)
        child.begin(KEY, first.clone())
        return server, child

    def value(self, size: int, seed: int = 0) -> Tensor:
        """Return a value that a server may hold: with ``sparse-sum`` the sum of what all contributors have sent."""
        if not self._sums:
            return numbers(size, seed)
        each = [numbers(size, seed * CONTRIBUTORS + rank) for rank in range(CONTRIBUTORS)]
        return torch.stack([self.make().decode(KEY, self.make().encode(KEY, one), size) for one in each]).sum(0)

    @property
    def draws(self) -> bool:
        """Whether payloads depend on the seed."""
        tensor = numbers(LARGEST)
        return not same(self.make(1).encode(KEY, tensor), self.make(2).encode(KEY, tensor))


@dataclass(frozen=True, slots=True)
class Direction:
    """One direction between two new ends that hold the first value: contributions ``up``, or values down."""

    ends: CodecEnds
    up: bool
    source: Codec
    target: Codec
    size: int

    def tensor(self, seed: int = 0) -> Tensor:
        """Return numbers that may travel this way."""
        return numbers(self.size, seed) if self.up else self.ends.value(self.size, seed)

    def send(self, tensor: Tensor) -> Parts:
        """Encode at the source."""
        return (self.source.encode if self.up else self.source.encode_value)(KEY, tensor)

    def receive(self, parts: Parts) -> Tensor:
        """Decode at the target."""
        return (self.target.decode if self.up else self.target.decode_value)(KEY, parts, self.size)

    @property
    def modelled(self) -> Parts:
        """What new ends send of a tensor without numbers: the size of a payload, or its upper bound."""
        source, meta = self.ends.make(), torch.empty(self.size, device="meta")
        if self.up:
            return source.encode(KEY, meta)
        source.begin(KEY, meta)
        return source.encode_value(KEY, meta)

    def __str__(self) -> str:
        return f"{'decode' if self.up else 'decode_value'} on tier {self.ends.tier}"


def directions(subject: Subject, *sizes: int) -> Iterator[Direction]:
    """Yield both directions of both tiers for each of the sizes (default: all)."""
    for ends in tiers(subject):
        for size in sizes or SIZES:
            for up in (True, False):
                yield Direction(ends, up, *ends.connected(size), size)


def tiers(subject: Subject) -> Iterator[CodecEnds]:
    """Yield the makers for both tiers."""
    for tier in (1, 2):
        yield CodecEnds(subject, tier)


def bytes_of(parts: Parts) -> int:
    """Return the bytes of all parts together."""
    return sum(part.nbytes for part in parts)


def same(one: Parts, other: Parts) -> bool:
    """Return whether two payloads are equal to the bit."""
    return len(one) == len(other) and all(
        a.dtype == b.dtype and a.shape == b.shape and torch.equal(a, b) for a, b in zip(one, other, strict=True)
    )


def layout(parts: Parts) -> list[tuple[torch.dtype, tuple[int, ...]]]:
    """Return dtype and shape of each part."""
    return [(part.dtype, tuple(part.shape)) for part in parts]


def require_tensor(arrived: object, size: int, what: str) -> Tensor:
    """Return ``arrived`` if it is a float32 tensor [size]."""
    if not isinstance(arrived, Tensor):
        raise CheckFailed(f"{what} to return a tensor", type(arrived).__name__, "return a flat float32 tensor")
    require(
        arrived.shape == (size,) and arrived.dtype == torch.float32, f"{what} to return float32 [{size}]",
        f"{arrived.dtype} {list(arrived.shape)}", "reshape and cast what is decoded",
    )  # fmt: skip
    return arrived


def damaged(honest: Parts, seed: int) -> Parts:
    """Return the parts with some replaced, reordered, cut, cast, or filled with other numbers."""
    draw = random.Random(seed)
    parts = list(honest)
    for _ in range(draw.randint(1, 3)):
        index = draw.randint(0, len(parts))
        part = parts[index] if index < len(parts) else torch.zeros(draw.randint(0, 20))
        damage = draw.choice(["drop", "copy", "cast", "cut", "fill", "shape", "reverse"])
        if damage == "cast":
            part = part.to(draw.choice(_DTYPES))
        elif damage == "cut":
            part = part.reshape(-1)[: draw.randint(0, 20)]
        elif damage == "fill":
            part = torch.full_like(part, draw.choice([0, 1, 85, 127]))
        elif damage == "shape":
            part = part.reshape(-1, 1)
        elif damage == "reverse":
            part = part.reshape(-1).flip(0)
        parts[index : index + (damage != "copy")] = [] if damage == "drop" else [part]
    return tuple(parts)


# ---- sizes, damage and memory ---------------------------------------------------------------------------------------


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
        alone, both = ends.make(), ends.make()
        for seed in range(3):
            both.encode(KEY + 1, numbers(LARGEST, seed + 10))
            require(
                same(alone.encode(KEY, numbers(LARGEST, seed)), both.encode(KEY, numbers(LARGEST, seed))),
                "payloads of a key that do not depend on other keys", f"they do in round {seed}",
                "keep memory, and streams of random numbers, in dicts by wire_key",
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


def non_finite_numbers_never_travel_later(subject: Subject) -> None:
    """A NaN in a residual would stay in the model for ever: remember nothing of it, or refuse all that follows."""
    for ends in tiers(subject):
        for bad in (math.nan, math.inf, -math.inf):
            codec, innocent = ends.make(), ends.make()
            for end in (codec, innocent):
                end.encode(KEY, numbers(LARGEST))
            poisoned = numbers(LARGEST, 1)
            poisoned[[5, 700]] = bad
            refused = _refused(codec, poisoned)
            try:
                later = codec.encode(KEY, numbers(LARGEST, 2))
            except NonFiniteNumbers as error:
                require(refused, f"an error for the tensor with {bad}, or none", f"one for the next: {error}", _CURE)
                continue
            require(
                same(later, innocent.encode(KEY, numbers(LARGEST, 2))),
                f"no trace of a tensor with {bad} in later payloads", "the next payload differs", _CURE,
            )  # fmt: skip


def _refused(codec: Codec, poisoned: Tensor) -> bool:
    try:
        codec.encode(KEY, poisoned)
    except NonFiniteNumbers as error:
        require(
            (error.key, error.count, error.size) == (KEY, 2, LARGEST),
            f"an error that names key {KEY} and 2 of {LARGEST} elements", str(error), _CURE,
        )  # fmt: skip
        return True
    return False


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


# ---- how much arrives: in each round, or, with memory, over the rounds ----------------------------------------------


def what_is_sent_arrives(subject: Subject) -> None:
    """Without memory, over some rounds: in the direction of the tensor, and about as large."""
    if subject.entry.has_memory:
        return  # see the following checks, and ``a_value_that_stays_arrives``
    for way in directions(subject, LARGEST):
        tensor, arrived = way.tensor(), torch.zeros(way.size)
        for _ in range(_ROUNDS):
            arrived += way.receive(way.send(tensor)) / _ROUNDS
        cosine = _cosine(arrived, tensor)
        require(
            cosine >= _LEAST_COSINE, "a mean of what arrives that points where the tensor does",
            f"{way}: the cosine of the angle between them is {cosine:.3g}", "let decode be the inverse of encode",
        )  # fmt: skip
        on_average = float(arrived @ tensor / tensor.square().sum())
        met = arrived != 0
        by_element = float((arrived[met] / tensor[met]).median())
        require(
            max(on_average, by_element) >= _LEAST_SIZE and on_average <= _MOST_SIZE,
            "a mean of what arrives that is about as large as the tensor", f"{way}: {on_average:.3g} times as large",
            "multiply by the scale in decode that encode has divided by",
        )  # fmt: skip


def _cosine(one: Tensor, other: Tensor) -> float:
    norms = float(one.norm() * other.norm())
    return float(one @ other) / norms if norms > 0 else 0.0


def exact_is_declared_as_it_behaves(subject: Subject) -> None:
    for way in directions(subject) if subject.entry.exact else ():
        tensor = way.tensor()
        require(
            same((way.receive(way.send(tensor)),), (tensor,)), "exact = True: the bits of what was encoded",
            f"other numbers {way}, {way.size} elements", "declare exact = False",
        )  # fmt: skip


def what_is_held_back_is_sent_later(subject: Subject) -> None:
    """With memory, the part of a constant tensor that has not arrived stays bounded; without feedback it grows."""
    for ends in tiers(subject) if subject.entry.has_memory else ():
        missing = _parts_off(ends, only_missing=True)
        require(
            not missing, "a residual that stays bounded over the rounds of a constant tensor",
            f"what has not arrived: {missing}",
            "add what was not sent to the next tensor of that key: residual = tensor + residual − decoded",
        )  # fmt: skip


def nothing_is_sent_twice(subject: Subject) -> None:
    """With memory, and the options with which it adds up: of a constant tensor no more arrives than was sent."""
    if not subject.entry.has_memory:
        return
    plain = Subject(
        subject.axis, subject.kind, {**subject.values, **subject.entry.to_add_up(subject.options)}, subject.file
    )
    for ends in tiers(plain):
        off = _parts_off(ends, only_missing=False)
        require(
            not off, "what arrived and what is kept back to add up to the tensors that were sent",
            f"off by {off}",
            "take what was sent off the residual as it is decoded: residual = tensor + residual − decoded; "
            "name options that multiply tensors in to_add_up",
        )  # fmt: skip


def _parts_off(ends: CodecEnds, *, only_missing: bool) -> str:
    """Return by how many tensors the sum of what arrived is off, in words, if that grows with the rounds."""
    tensor = torch.randn(_FEEDBACK_SIZE, generator=torch.Generator().manual_seed(0))
    tensor *= 0.5 / float(tensor.norm())  # below every bound on norms
    codec, server, arrived = ends.make(), ends.make(), torch.zeros(_FEEDBACK_SIZE)
    size, off, before = float(tensor.abs().mean()), [math.inf], 0
    for rounds in _FEEDBACK_ROUNDS:
        for _ in range(before, rounds):
            arrived += server.decode(KEY, codec.encode(KEY, tensor), _FEEDBACK_SIZE)
        before = rounds
        lacking = rounds * tensor.abs() - arrived * tensor.sign()
        off.append(float((lacking.clamp(min=0) if only_missing else lacking.abs()).mean()) / size)
        if rounds > _FEEDBACK_ROUNDS[0] and math.isfinite(off[-1]) and off[-1] <= 1.5 * off[-2] + 1:
            return ""
    return f"{off[-2]:.4g} tensors after {_FEEDBACK_ROUNDS[-2]} rounds, {off[-1]:.4g} after {_FEEDBACK_ROUNDS[-1]}"


# ---- values, which a child receives, and which both ends may mirror -------------------------------------------------


def a_value_that_stays_arrives(subject: Subject) -> None:
    """With memory, differences that were left out follow later."""
    if not subject.entry.has_memory:
        return
    for ends in tiers(subject):
        for size in (17, 1001, LARGEST):
            server, child = ends.connected(size)
            value = ends.value(size)
            for _ in range(_SETTLING_ROUNDS):
                arrived = child.decode_value(KEY, server.encode_value(KEY, value), size)
                if float((arrived - value).norm()) <= 1e-2 * float(value.norm()):
                    break
            else:
                raise CheckFailed(
                    f"a value within 1 % after {_SETTLING_ROUNDS} rounds in which it stayed the same",
                    f"off by {float((arrived - value).norm() / value.norm()):.1%} of its norm, {size} elements",
                    "send what the child still lacks: value − mirror, and add what was sent to the mirror",
                )  # fmt: skip


def values_change_nothing_that_was_given_or_returned(subject: Subject) -> None:
    for ends in tiers(subject):
        server, child = ends.make(), ends.make()
        begin, value = ends.value(LARGEST, 99), ends.value(LARGEST)
        for end in (server, child):
            end.begin(KEY, begin)  # in the virtual world both ends are given one tensor
        first = child.decode_value(KEY, server.encode_value(KEY, value), LARGEST)
        copy = first.clone()
        child.decode_value(KEY, server.encode_value(KEY, ends.value(LARGEST, 1)), LARGEST)
        for tensor, original, what in (
            (begin, ends.value(LARGEST, 99), "the first value"),
            (value, ends.value(LARGEST), "the encoded value"),
            (first, copy, "a decoded value"),
        ):
            require(
                torch.equal(tensor, original), f"{what} as it was", "it has changed",
                "copy what is kept or returned: value.clone()",
            )  # fmt: skip


def ends_in_equal_states_send_equal_values(subject: Subject) -> None:
    """One end encodes for others in its state, which follow it. An end that encodes for itself is the reference."""
    for ends in tiers(subject):
        encoder, follower, alone = (ends.make() for _ in range(3))
        begin = ends.value(LARGEST, 99)
        for end in (encoder, follower, alone):
            end.begin(KEY, begin)
        for seed in range(3):
            value, state = ends.value(LARGEST, seed), encoder.value_state(KEY, LARGEST)
            if state in (None, NOTHING):
                break
            parts = encoder.encode_value(KEY, value)
            follower.follow_value(KEY, value, parts)
            require(
                same(parts, alone.encode_value(KEY, value)), "equal payloads of ends in equal states", "they differ",
                "let value_state return all that a payload depends on beside the value",
            )  # fmt: skip
            require(
                encoder.value_state(KEY, LARGEST) == follower.value_state(KEY, LARGEST) != state,
                "a new state, the same at the end that encodes and at the one that follows", "another one",
                "let encode_value and follow_value bring both into the state that the parts lead to",
            )  # fmt: skip
        else:
            last = ends.value(LARGEST, 3)
            require(
                same(follower.encode_value(KEY, last), alone.encode_value(KEY, last)),
                "the payload of an end that has encoded all values itself", "another one",
                "let follow_value remember all that encode_value does",
            )  # fmt: skip


def begin_makes_both_ends_agree_again(subject: Subject) -> None:
    for ends in tiers(subject):
        server, child = ends.connected(LARGEST)
        server.encode_value(KEY, ends.value(LARGEST))  # lost with its connection
        begin, value = ends.value(LARGEST, 2), ends.value(LARGEST, 3)
        arrived = []
        for pair in ((server, child), (ends.make(), ends.make())):
            for end in pair:
                end.begin(KEY, begin.clone())
            arrived.append(pair[1].decode_value(KEY, pair[0].encode_value(KEY, value), LARGEST))
        require(
            torch.equal(*arrived) or ends.draws, "after begin, values as between new ends",
            "what was sent before begin still shows", "let begin replace all that is remembered of the key's value",
        )  # fmt: skip
