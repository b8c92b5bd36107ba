"""Checks of a codec on the way down: values, which a child receives, and which both ends may mirror."""

from __future__ import annotations

import torch

from testbed.check.codec_ends import KEY, LARGEST, same, tiers
from testbed.check.subject import Subject
from testbed.check.verdict import CheckFailed, require
from testbed.codec.base import NOTHING

_SETTLING_ROUNDS = 600


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
