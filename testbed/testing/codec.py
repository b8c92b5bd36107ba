"""The contract of a codec in both directions (``docs/axes/codec.md``): sizes, damage, memory, and decoded numbers.

The sizes of tensors lie around the bounds of bytes, words and options.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from testbed.codec.base import NOTHING, Codec
from testbed.codec.errors import NonFiniteNumbers
from testbed.codec.table import make_codec
from testbed.key_shape import MATRIX, KeyShape
from testbed.messages import Message, MessageKind, decode_header, encode_header
from testbed.testing.requirement import Broken, require, requirement
from testbed.testing.subject import Subject

SIZES = (1, 2, 3, 4, 5, 15, 16, 17, 64, 999, 1000, 1001, 4099)
LARGEST = max(SIZES)
KEY = 3
CONTRIBUTORS = 3

Parts = tuple[Tensor, ...]

_DTYPES = (torch.float32, torch.float16, torch.int32, torch.int64, torch.uint8)
_DAMAGES = 3  # damaged payloads of each size
_CUT = 1000
_FEEDBACK_SIZE = 1024
_FEEDBACK_ROUNDS = (200, 400, 800, 1600, 3200)
_ROUNDS = 64  # over so many rounds, the mean of a random codec comes close to its expectation
# limits for decoded tensors, in comparison with the encoded ones
_LEAST_COSINE = 0.05
_LEAST_SIZE = 0.1
_MOST_SIZE = 1.5
_SETTLING_ROUNDS = 600  # after so many rounds, a constant value has arrived
# numbers of tensors and scales that reveal the memory of a codec that waits for a threshold, or for some rounds
_EARLIER = 12
_SCALES = (1.0, 10.0, 1e-3, 1e-6)


# ---- ends of connections, and tensors -------------------------------------------------------------------------------


def numbers(size: int, seed: int = 0) -> Tensor:
    """Return float32 [size], heavy-tailed, without zeros."""
    generator = torch.Generator().manual_seed(seed)
    tensor = torch.randn(size, generator=generator) / (torch.rand(size, generator=generator) + 0.1)
    return tensor + torch.where(tensor >= 0, 1e-3, -1e-3)


def shape_of(size: int) -> KeyShape:
    """Return the shape of a matrix of ``size`` elements, as square as possible; for a prime size, of a vector."""
    rows = next(each for each in range(math.isqrt(size), 0, -1) if size % each == 0)
    return KeyShape((rows, size // rows), MATRIX) if rows > 1 else KeyShape((size,))


def bytes_of(parts: Parts) -> int:
    """Return the bytes of all parts together."""
    return sum(part.nbytes for part in parts)


def layout(parts: Parts) -> list[tuple[torch.dtype, tuple[int, ...]]]:
    """Return dtype and shape of each part."""
    return [(part.dtype, tuple(part.shape)) for part in parts]


def same(one: Parts, other: Parts) -> bool:
    """Return whether two payloads are equal to the bit."""
    return layout(one) == layout(other) and all(map(torch.equal, one, other))


class Tier:
    """Makes codec objects of one technique on one tier, and values that a server may hold there."""

    def __init__(self, subject: Subject, number: int) -> None:
        self.subject = subject
        self.number = number
        self._sums = subject.entry.pull_on(subject.options, number) == "sparse-sum"

    def make(self, size: int = 0) -> Codec:
        """Return a new end of a connection. With ``size``, the key is declared as a matrix of so many elements."""
        codec = make_codec(self.subject.kind, dict(self.subject.values), self.number, CONTRIBUTORS, seed=7)
        if size and self.subject.entry.by_shape:
            codec.declare(KEY, shape_of(size))
        return codec

    def value(self, size: int, seed: int = 0) -> Tensor:
        """Return a value of a server; with ``sparse-sum``, the sum of the decoded contributions of all contributors."""
        if not self._sums:
            return numbers(size, seed)
        each = [numbers(size, seed * CONTRIBUTORS + rank) for rank in range(CONTRIBUTORS)]
        return torch.stack([self.make().decode(KEY, self.make().encode(KEY, one), size) for one in each]).sum(0)


class Direction:
    """One direction between two new ends that hold the value ``first``: ``up`` for contributions, else for values."""

    def __init__(self, tier: Tier, up: bool, size: int, first: Tensor | None = None) -> None:
        self.tier = tier
        self.up = up
        self.size = size
        self.source = tier.make(size)
        self.target = tier.make(size)
        self.begin(tier.value(size, 99) if first is None else first)

    def begin(self, value: Tensor) -> None:
        """Tell both ends that they hold ``value``. They share one tensor, as in the virtual world."""
        for end in (self.source, self.target):
            end.begin(KEY, value)

    def anew(self, size: int = 0, first: Tensor | None = None) -> Direction:
        """Return the same direction between new ends."""
        return Direction(self.tier, self.up, size or self.size, first)

    def tensor(self, seed: int = 0) -> Tensor:
        """Return a tensor that may travel in this direction."""
        return numbers(self.size, seed) if self.up else self.tier.value(self.size, seed)

    def send(self, tensor: Tensor, key: int = KEY) -> Parts:
        """Encode at the source."""
        return (self.source.encode if self.up else self.source.encode_value)(key, tensor)

    def receive(self, parts: Parts) -> Tensor:
        """Decode at the target."""
        return (self.target.decode if self.up else self.target.decode_value)(KEY, parts, self.size)

    def over(self, tensor: Tensor) -> Tensor:
        """Return the decoded tensor after encoding ``tensor``."""
        return self.receive(self.send(tensor))

    def __str__(self) -> str:
        return f"on the way {'up' if self.up else 'down'}, tier {self.tier.number}"


def tiers(subject: Subject) -> Iterator[Tier]:
    """Yield both tiers."""
    for number in (1, 2):
        yield Tier(subject, number)


def directions(subject: Subject, *sizes: int) -> Iterator[Direction]:
    """Yield both directions of both tiers for each of the sizes (default: all)."""
    for tier in tiers(subject):
        for size in sizes or SIZES:
            for up in (True, False):
                yield Direction(tier, up, size)


# ---- sizes and damage -----------------------------------------------------------------------------------------------


def _require_tensor(arrived: Any, way: Direction, what: str) -> None:
    found = f"{arrived.dtype} {list(arrived.shape)}" if isinstance(arrived, Tensor) else type(arrived).__name__
    expected = f"torch.float32 [{way.size}]"
    require(
        found == expected, f"{way}, {what} is decoded to {found}, not {expected}", "reshape and cast what is decoded"
    )


@requirement("return (part.contiguous(), …), with dtypes of testbed.messages")
def payloads_travel_in_messages(subject: Subject) -> None:
    """A payload is a tuple of contiguous tensors that a message can carry, and arrives as float32 of the same size."""
    for way in directions(subject):
        parts = way.send(way.tensor())
        fits = isinstance(parts, tuple) and all(part.is_contiguous() for part in parts)
        require(fits, f"a {type(parts).__name__} of {layout(tuple(parts))}, not all contiguous")
        message = Message(MessageKind.PUSH, KEY, parts=parts)
        _, received = decode_header(encode_header(message), message.payload_bytes)
        require(layout(tuple(received)) == layout(parts), f"{layout(tuple(received))} of {layout(parts)}")
        _require_tensor(way.receive(parts), way, "a payload")


@requirement("give meta parts the shapes that numbers give, or declare size_only = False where numbers decide them")
def payloads_have_the_declared_size(subject: Subject) -> None:
    """A tensor on the meta device gives parts there, as large as numbers give or, with size_only = False, may give."""
    for way in directions(subject):
        meta = torch.empty(way.size, device="meta")
        shapes = way.anew(first=meta)
        parts = shapes.send(meta)
        zeros = [torch.zeros(way.size)] if way.up else []
        for tensor in [*map(way.tensor, range(4)), *zeros]:
            sent = way.send(tensor)
            same_size = bytes_of(sent) == bytes_of(parts) and (not way.up or layout(sent) == layout(parts))
            fits = same_size if subject.entry.size_only else bytes_of(sent) <= bytes_of(parts)
            require(fits, f"{bytes_of(sent)} bytes {layout(sent)}, but {bytes_of(parts)} on the meta device")
        arrived = shapes.receive(parts)
        _require_tensor(arrived, way, "a payload without numbers")
        without = arrived.is_meta and all(part.is_meta for part in parts)
        require(without, f"{way}, a tensor without numbers gives some", "return torch.empty(…, device=tensor.device)")


@requirement("let a scale of 0 decode to 0")
def zeros_arrive_as_zeros(subject: Subject) -> None:
    """A contribution of zeros is decoded to zeros."""
    for way in directions(subject):
        arrived = way.over(torch.zeros(way.size)) if way.up else torch.zeros(0)
        require(not arrived.any(), f"{int(arrived.count_nonzero())} of {way.size} elements are not 0")


def _damaged(honest: Parts, seed: int) -> Parts:
    """Return the parts with one to three of them removed, doubled, cast, cut, filled, reshaped or reversed."""
    draw = random.Random(seed)
    parts = list(honest)
    for _ in range(draw.randint(1, 3)):
        index = draw.randint(0, len(parts))
        part = parts[index] if index < len(parts) else torch.zeros(draw.randint(0, 20))
        replacements = [
            [],
            [part, part],
            [part.to(draw.choice(_DTYPES))],
            [part.reshape(-1)[: draw.randint(0, 20)]],
            [torch.full_like(part, draw.choice([0, 1, 85, 127]))],
            [part.reshape(-1, 1)],
            [part.reshape(-1).flip(0)],
        ]
        parts[index : index + 1] = draw.choice(replacements)
    return tuple(parts)


@requirement("look at number, dtype and size of the parts before using them")
def damaged_payloads_raise_value_errors_only(subject: Subject) -> None:
    """For a payload that the other end cannot have sent, decoding raises ValueError or gives the right size."""
    for seed in range(_DAMAGES * len(SIZES)):
        for way in directions(subject, SIZES[seed % len(SIZES)]):
            parts = _damaged(way.send(way.tensor(1)), seed)
            what = f"a damaged payload {layout(parts)}, for {way.size} elements,"
            try:
                arrived = way.receive(parts)
            except ValueError:
                continue
            except Exception as error:
                raise Broken(f"{way}, {what} raises {type(error).__name__}: {error}") from error
            _require_tensor(arrived, way, what)
    for tier in tiers(subject):
        larger = tier.make().encode(KEY, numbers(LARGEST))
        try:
            tier.make().decode(KEY, larger, 16)
        except ValueError:
            continue
        raise Broken(f"a payload of {LARGEST} elements is decoded to 16", "compare each part's size with size")


# ---- inputs and memory ----------------------------------------------------------------------------------------------


@requirement("work on new tensors, and copy what is kept, or returned and then changed: tensor.clone()")
def nothing_given_or_returned_is_changed(subject: Subject) -> None:
    """No method changes its inputs, or tensors that it has returned before."""
    for tier in tiers(subject):
        for up in (True, False):
            first = tier.value(LARGEST, 99)
            way = Direction(tier, up, LARGEST, first)
            tensor = way.tensor()
            given = [("the first value", first, first.clone()), ("the tensor to encode", tensor, tensor.clone())]
            parts = way.send(tensor)
            given += [("a payload", part, part.clone()) for part in parts]
            arrived = way.receive(parts)
            given.append(("what was decoded", arrived, arrived.clone()))
            second = way.tensor(1)  # the codec may have something in memory now
            given.append(("the second tensor to encode", second, second.clone()))
            way.over(second)
            for what, now, before in given:
                require(torch.equal(now, before), f"{way}, {what} has changed")


@requirement("draw random numbers from context.seed alone, and keep no state outside the object")
def the_same_numbers_give_the_same_bytes(subject: Subject) -> None:
    """Two ends with equal options, seed and inputs send equal payloads, also for a slice of a larger tensor."""
    for way in directions(subject, LARGEST):
        other = way.anew()
        for seed in range(4):
            tensor = way.tensor(seed)
            piece = torch.cat([tensor, tensor, tensor])[LARGEST : 2 * LARGEST]
            equal = same(way.send(tensor), other.send(piece))
            require(equal, f"{way}, payloads of two equal ends differ in round {seed}")


@requirement("keep memory, and streams of random numbers, in dicts by wire_key")
def keys_share_no_memory(subject: Subject) -> None:
    """The payloads of a key do not depend on which other keys are sent."""
    for way in directions(subject, LARGEST):
        both = way.anew()
        both.source.begin(KEY + 1, way.tensor(9))
        for seed in range(3):
            both.send(way.tensor(seed + 10), KEY + 1)
            equal = same(way.send(way.tensor(seed)), both.send(way.tensor(seed)))
            require(equal, f"{way}, the payload of round {seed} changes when there is another key")


@requirement("call testbed.codec.errors.check_finite(wire_key, tensor) before changing any memory")
def non_finite_numbers_never_travel_later(subject: Subject) -> None:
    """A tensor with NaN or infinity leaves nothing in the memory, or the codec refuses it and all later tensors."""
    for tier in tiers(subject):
        for bad in (math.nan, math.inf, -math.inf):
            codec = tier.make()
            innocent = tier.make()
            for end in (codec, innocent):
                end.encode(KEY, numbers(LARGEST))
            poisoned = numbers(LARGEST, 1)
            poisoned[[5, 700]] = bad
            refused = _refuses(codec, poisoned)
            try:
                later = codec.encode(KEY, numbers(LARGEST, 2))
            except NonFiniteNumbers as error:
                require(refused, f"no error for a tensor with {bad}, but one for the next: {error}")
                continue
            equal = same(later, innocent.encode(KEY, numbers(LARGEST, 2)))
            require(equal, f"after a tensor with {bad} the next payload differs")


def _refuses(codec: Codec, poisoned: Tensor) -> bool:
    try:
        codec.encode(KEY, poisoned)
    except NonFiniteNumbers as error:
        named = (error.key, error.count, error.size) == (KEY, 2, LARGEST)
        require(named, f"for key {KEY}, with 2 such numbers of {LARGEST}, the error is: {error}")
        return True
    return False


@requirement("put all that later payloads and decoding depend on into state(), and take copies in load_state")
def state_is_taken_over(subject: Subject) -> None:
    """Ends that load the states of other ends send the same payloads, and decode them to the same numbers."""
    for old in directions(subject, LARGEST):
        for seed in range(3):
            old.over(old.tensor(seed))
        new = Direction(old.tier, old.up, old.size)
        new.source, new.target = (_with_state_of(end, old) for end in (old.source, old.target))
        for seed in (5, 6):
            before = old.send(old.tensor(seed))
            after = new.send(old.tensor(seed))
            require(same(before, after), f"{old}, payloads differ after load_state(state())")
            equal = same((old.receive(before),), (new.receive(after),))
            require(equal, f"{old}, other numbers are decoded after load_state(state())")


def _with_state_of(old: Codec, way: Direction) -> Codec:
    """Return a new end that has loaded a copy of the state of ``old``."""
    state = old.state()
    for name, content in state.items():
        flat = isinstance(name, str) and isinstance(content, Tensor | int | float | str)
        require(flat, f"{name!r} in the state is a {type(content).__name__}", "flatten it: {f'residual/{key}': tensor}")
    new = way.tier.make(way.size)
    new.load_state({name: each.clone() if isinstance(each, Tensor) else each for name, each in state.items()})
    return new


# ---- declarations ---------------------------------------------------------------------------------------------------


@requirement("declare has_memory as the codec behaves")
def has_memory_is_declared_as_it_behaves(subject: Subject) -> None:
    """With has_memory = True, and only then, payloads depend on earlier tensors, and the state is not empty."""
    declared = subject.entry.has_memory
    ways = [(way, scale) for scale in _SCALES for way in directions(subject, 1000, LARGEST)]
    depend = any(_depends_on_earlier_tensors(way, scale) for way, scale in ways)
    if declared:
        scales = " and ".join(f"{scale:g}" for scale in _SCALES)
        happened = f"none of {_EARLIER} payloads depends on earlier tensors, of numbers times {scales}"
        require(depend, f"has_memory = True, but {happened}", "declare has_memory = False, if it has none")
    require(declared or not depend, "has_memory = False, but payloads depend on earlier tensors")
    for way in directions(subject, 1000) if not declared else ():
        for seed in range(3):
            way.over(way.tensor(seed))
        kept = sorted({*way.source.state(), *way.target.state()})
        require(not kept, f"has_memory = False, but after three tensors the state has {', '.join(map(repr, kept))}")


def _depends_on_earlier_tensors(way: Direction, scale: float) -> bool:
    """Return whether, for any of several tensors, the payload differs from that of an end that has sent nothing."""
    for seed in range(_EARLIER + 1):
        tensor = way.tensor(seed) * scale
        if not same(way.send(tensor), way.anew().send(tensor)):
            return True
    return False


@requirement("declare dense = False")
def dense_is_declared_as_it_behaves(subject: Subject) -> None:
    """With dense = True, the payload is one part, which can be cut anywhere and be summed with other payloads."""
    for tier in tiers(subject) if subject.entry.dense else ():
        one = numbers(LARGEST)
        other = numbers(LARGEST, 1)
        (whole,) = tier.make().encode(KEY, one)
        (second,) = tier.make().encode(KEY, other)
        cut = tier.make().encode(KEY, one[100:900].clone())
        can_be_cut = whole.numel() == LARGEST and same(cut, (whole[100:900],))
        require(can_be_cut, "the payload of elements 100 to 900 is not that part of the whole")
        off = (tier.make().decode(KEY, (whole + second,), LARGEST) - one - other).abs()
        can_be_summed = bool((off <= 1e-2 * (one.abs() + other.abs())).all())
        require(can_be_summed, f"the sum of two payloads is off by up to {float(off.max()):.3g}")


@requirement("declare elementwise = False")
def elementwise_is_declared_as_it_behaves(subject: Subject) -> None:
    """With elementwise = True, pieces of a tensor are decoded to the same numbers as the whole, in each round."""
    for way in directions(subject, LARGEST) if subject.entry.elementwise else ():
        first = way.anew(_CUT)
        last = way.anew(LARGEST - _CUT)
        for seed in range(3):
            tensor = way.tensor(seed)
            arrived = torch.cat([first.over(tensor[:_CUT].clone()), last.over(tensor[_CUT:].clone())])
            equal = same((arrived,), (way.over(tensor),))
            require(equal, f"{way}, other numbers arrive of a tensor that is cut at {_CUT}")


@requirement("declare exact = False")
def exact_is_declared_as_it_behaves(subject: Subject) -> None:
    """With exact = True, a decoded tensor has the bits of the encoded tensor."""
    for way in directions(subject) if subject.entry.exact else ():
        tensor = way.tensor()
        require(same((way.over(tensor),), (tensor,)), f"{way}, other numbers arrive of {way.size} elements")


# ---- accuracy: in each round or, with memory, over the rounds -------------------------------------------------------


@requirement("let decode be the inverse of encode: multiply by the scale that encode has divided by")
def what_is_sent_arrives(subject: Subject) -> None:
    """Without memory, the mean of decoded tensors over some rounds has about the tensor's direction and size."""
    for way in directions(subject, LARGEST) if not subject.entry.has_memory else ():
        tensor = way.tensor()
        arrived = torch.stack([way.over(tensor) for _ in range(_ROUNDS)]).mean(0)
        cosine = float(arrived @ tensor / (arrived.norm() * tensor.norm()).clamp(min=1e-30))
        require(cosine >= _LEAST_COSINE, f"{way}, the cosine of the angle to the tensor is {cosine:.3g}")
        on_average = float(arrived @ tensor / tensor.square().sum())
        met = arrived != 0
        by_element = float((arrived[met] / tensor[met]).median())
        about_as_large = max(on_average, by_element) >= _LEAST_SIZE and on_average <= _MOST_SIZE
        require(about_as_large, f"{way}, what arrives is {on_average:.3g} times as large")


@requirement("add what was not sent to the next tensor of that key: residual = tensor + residual − decoded")
def what_is_held_back_is_sent_later(subject: Subject) -> None:
    """With memory, the part of a constant tensor that has not arrived stays bounded over the rounds.

    A codec whose residual fades is tested with the options of to_add_up.
    """
    kept = _adding_up(subject) if subject.entry.fades else subject
    for tier in tiers(kept) if subject.entry.has_memory else ():
        missing = _growing_difference(tier, only_missing=True)
        require(not missing, f"what has not arrived grows: {missing}")


@requirement("take what was sent off the residual as it is decoded, and name options that multiply in to_add_up")
def nothing_is_sent_twice(subject: Subject) -> None:
    """With memory and the options of to_add_up, no more of a constant tensor arrives than was sent."""
    for tier in tiers(_adding_up(subject)) if subject.entry.has_memory else ():
        off = _growing_difference(tier, only_missing=False)
        require(not off, f"what arrived and what was sent differ more and more: {off}")


def _adding_up(subject: Subject) -> Subject:
    return replace(subject, values={**subject.values, **subject.entry.to_add_up(subject.options)})


def _growing_difference(tier: Tier, *, only_missing: bool) -> str:
    """Return a text if the difference between the sums of sent and decoded tensors grows with the rounds.

    The difference is given in tensors: 1 is a whole tensor. With ``only_missing``, only what is lacking counts.
    """
    tensor = torch.randn(_FEEDBACK_SIZE, generator=torch.Generator().manual_seed(0))
    tensor *= 0.5 / float(tensor.norm())  # below every bound on norms
    codec = tier.make()
    server = tier.make()
    arrived = torch.zeros(_FEEDBACK_SIZE)
    off = [math.inf]
    before = 0
    for rounds in _FEEDBACK_ROUNDS:
        for _ in range(before, rounds):
            arrived += server.decode(KEY, codec.encode(KEY, tensor), _FEEDBACK_SIZE)
        before = rounds
        lacking = rounds * tensor.abs() - arrived * tensor.sign()
        off.append(float((lacking.clamp(min=0) if only_missing else lacking.abs()).mean() / tensor.abs().mean()))
        if rounds > _FEEDBACK_ROUNDS[0] and math.isfinite(off[-1]) and off[-1] <= 1.5 * off[-2] + 1:
            return ""
    return f"{off[-2]:.4g} tensors after {_FEEDBACK_ROUNDS[-2]} rounds, {off[-1]:.4g} after {_FEEDBACK_ROUNDS[-1]}"


# ---- values, which children receive, and of which both ends may keep a mirror ---------------------------------------


@requirement("send what the child still lacks: value − mirror, and add what was sent to the mirror")
def a_value_that_stays_arrives(subject: Subject) -> None:
    """With memory, a value that stays the same arrives to within 1 % of its norm after some rounds."""
    for way in directions(subject, 17, 1001, LARGEST) if subject.entry.has_memory else ():
        value = way.tensor()
        off = (float((way.over(value) - value).norm() / value.norm()) for _ in range(_SETTLING_ROUNDS))
        settled = way.up or any(share <= 1e-2 for share in off)
        require(settled, f"{way.size} elements are off by more after {_SETTLING_ROUNDS} rounds")


@requirement(
    "let value_state return all that a payload depends on, and follow_value remember all that encode_value does"
)
def ends_in_equal_states_send_equal_values(subject: Subject) -> None:
    """An end that follows the payloads of another end in an equal state continues as if it had encoded them itself."""
    for tier in tiers(subject):
        encoder, follower, alone = (Direction(tier, False, LARGEST).source for _ in range(3))
        for seed in range(3):
            value = tier.value(LARGEST, seed)
            state = encoder.value_state(KEY, LARGEST)
            if state in (None, NOTHING):
                break
            parts = encoder.encode_value(KEY, value)
            follower.follow_value(KEY, value, parts)
            require(same(parts, alone.encode_value(KEY, value)), "ends in equal states send different payloads")
            agree = encoder.value_state(KEY, LARGEST) == follower.value_state(KEY, LARGEST) != state
            require(agree, "ends that encode and follow are in different states, or in that of before")
        else:
            last = tier.value(LARGEST, 3)
            equal = same(follower.encode_value(KEY, last), alone.encode_value(KEY, last))
            require(equal, "after following, the payload is not that of an end that has encoded all values itself")


@requirement("let begin replace all that is remembered of the key's value")
def begin_makes_both_ends_agree_again(subject: Subject) -> None:
    """After begin, the decoded value does not depend on payloads sent before."""
    for tier in tiers(subject):
        arrived = []
        for seed in (0, 1):
            way = Direction(tier, False, LARGEST)
            way.send(way.tensor(seed))  # lost with its connection
            way.begin(way.tensor(2))
            arrived.append(way.over(way.tensor(3)))
        require(torch.equal(*arrived), "what was sent before begin still shows")
