"""Checks of an overlay (``docs/axes/overlay.md``): trees that reach every member, or transfers that all complete."""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Mapping

from testbed.policy.overlay.base import ROOT, GroupSetting, Overlay, Rates, ScheduledOverlay, TreeOverlay
from testbed.policy.overlay.events import OverlayTransfer
from testbed.policy.overlay.parents import Parents
from testbed.testing.subject import Subject
from testbed.testing.verdict import CheckFailed, plain_state, require

_NODE = "hub/global0"
_GROUPS = (1, 2, 3, 5, 9)
_CHUNKS = {0: 1000, 4: 250_000, 7: 31, 9: 250_000}
_ROUNDS = 4
_MOST_TRANSFERS = 2000
_SHARE_MEASURED = 0.5  # of pairs in a round: of the others, earlier measurements count


def _rates(members: int, seed: int) -> Rates:
    draw = random.Random(seed)
    ranks = range(ROOT, members)
    return {(one, other): draw.uniform(1e5, 1e7) for one in ranks for other in ranks if one != other}


def _setting(members: int, seed: int = 0) -> GroupSetting:
    names = tuple(f"site{rank}/server0" for rank in range(members))
    return GroupSetting(_NODE, names, seed, lambda: _rates(members, seed))


def it_is_of_one_of_the_two_kinds(subject: Subject) -> None:
    entry: type[Overlay] = subject.entry
    trees, scheduled = issubclass(entry, TreeOverlay), issubclass(entry, ScheduledOverlay)
    require(
        trees != scheduled or not (trees or entry.relays), "a TreeOverlay or a ScheduledOverlay where relays is true",
        str([base.__name__ for base in entry.__bases__]), "derive from one of the two",
    )  # fmt: skip
    require(
        not entry.relays or {"chunk", "merge"} <= set(dir(subject.options)),
        "options chunk and merge where relays is true",
        repr(subject.options), "add fields with the metadata CHUNK and MERGE of testbed.policy.overlay.events",
    )  # fmt: skip


# ---- trees ----------------------------------------------------------------------------------------------------------


def _trees(subject: Subject, members: int, overlay: TreeOverlay) -> dict[int, Parents]:
    trees = overlay.trees(_CHUNKS)
    require(
        set(trees) == set(_CHUNKS), f"a tree for each of the chunks {list(_CHUNKS)}", f"trees for {list(trees)}",
        "return {chunk: Parents(…) for chunk in elements}",
    )  # fmt: skip
    for tree in trees.values():
        _reaches(tree, members)
    return trees


def _reaches(tree: Parents, members: int) -> None:
    parents = tree.parents
    require(
        len(parents) == members and all(ROOT <= above < members for above in parents),
        f"the parent of each of {members} members, −1 for the root", str(parents),
        "return Parents of one rank per member",
    )  # fmt: skip
    reached = {ROOT}
    for _ in range(members):
        reached |= {member for member, above in enumerate(parents) if above in reached}
    missing = sorted(set(range(members)) - reached)
    require(
        not missing, "a tree that joins every member to the root", f"{missing} are not in {parents}", "avoid cycles"
    )


def trees_reach_every_member(subject: Subject) -> None:
    if not issubclass(subject.entry, TreeOverlay):
        return
    for members, seed in itertools.product(_GROUPS, range(4)):
        _trees(subject, members, subject.entry(_setting(members, seed), subject.options))


def every_node_computes_the_same_trees(subject: Subject) -> None:
    if not issubclass(subject.entry, TreeOverlay):
        return
    for members in _GROUPS:
        one, other = (subject.entry(_setting(members, 3), subject.options).trees(_CHUNKS) for _ in range(2))
        require(
            _shape(one) == _shape(other), "equal trees from equal settings", f"{_shape(one)} and {_shape(other)}",
            "compute them from the setting, its seed and the options alone",
        )  # fmt: skip


def _shape(trees: Mapping[int, Parents]) -> dict[int, tuple[int, ...]]:
    return {chunk: tree.parents for chunk, tree in trees.items()}


def trees_change_only_when_revised(subject: Subject) -> None:
    """Measured rates change nothing until ``revise`` is true; afterwards the trees still reach every member."""
    if not issubclass(subject.entry, TreeOverlay):
        return
    members = 5
    overlay: TreeOverlay = subject.entry(_setting(members), subject.options)
    trees = _shape(_trees(subject, members, overlay))
    for round_ in range(_ROUNDS):
        for (source, target), rate in _rates(members, 10 + round_).items() if overlay.adapts else ():
            overlay.measured(source, target, rate, round_)
        revised = overlay.revise(round_)
        now = _shape(_trees(subject, members, overlay))
        require(
            revised or now == trees, "the trees of before while revise returns False", f"{trees}, then {now}",
            "keep the rates behind the trees, and replace them in revise",
        )  # fmt: skip
        require(
            not revised or overlay.adapts, "adapts = True where revise returns True", "adapts = False",
            "declare adapts",
        )  # fmt: skip
        trees = now


def trees_are_taken_over_with_the_state(subject: Subject) -> None:
    """A new overlay with the state of another has its trees, and revises them as that one does."""
    if not issubclass(subject.entry, TreeOverlay):
        return
    members = 5
    old: TreeOverlay = subject.entry(_setting(members), subject.options)
    _measured(old, members, range(_ROUNDS))
    new: TreeOverlay = subject.entry(_setting(members), subject.options)
    new.load_state(plain_state(old))
    for round_ in range(_ROUNDS, 2 * _ROUNDS):
        trees = [_shape(_trees(subject, members, overlay)) for overlay in (old, new)]
        revised = [_measured(overlay, members, range(round_, round_ + 1)) for overlay in (old, new)]
        require(
            trees[0] == trees[1] and revised[0] == revised[1], "equal trees after load_state(state())",
            f"{trees[0]}, then {trees[1]}", "put the rates behind the trees, and those measured since, into state()",
        )  # fmt: skip


def _measured(overlay: TreeOverlay, members: int, rounds: range) -> list[bool]:
    """Tell the overlay of some transfers of these rounds. Return after which of them it has revised its trees."""
    found = []
    for round_ in rounds:
        draw = random.Random(round_)
        for (source, target), rate in _rates(members, 10 + round_).items() if overlay.adapts else ():
            if draw.random() < _SHARE_MEASURED:
                overlay.measured(source, target, rate, round_)
        found.append(overlay.revise(round_))
    return found


# ---- transfers ------------------------------------------------------------------------------------------------------


class _Transfers:
    """A root with members: a transfer takes 1 / rate, and its target then calls ``ready``."""

    def __init__(self, subject: Subject, members: int, seed: int) -> None:
        self.setting = _setting(members, seed)
        self.overlay: ScheduledOverlay = subject.entry(self.setting, subject.options)
        self._random = random.Random(seed)
        self.nodes = (_NODE, *self.setting.members)
        self._now, self._count = 0.0, itertools.count()
        self._under_way: list[tuple[float, int, OverlayTransfer]] = []

    def round(self, round_: int, up: bool) -> list[OverlayTransfer]:
        """Return the transfers of all chunks in one direction, by their ends."""
        self.begin(round_, up)
        done: list[OverlayTransfer] = []
        while self._under_way:
            self._now, _, transfer = heapq.heappop(self._under_way)
            done.append(transfer)
            require(
                len(done) < _MOST_TRANSFERS,
                "an end of the transfers of a round",
                f"{len(done)} transfers",
                "end the round",
            )
            self.overlay.arrived(transfer, self._random.uniform(1e5, 1e7))
            self._begin(self.overlay.ready(up, transfer.chunk, round_, transfer.target))
        return done

    def begin(self, round_: int, up: bool) -> None:
        """Say that all members have their contributions to all chunks, or the root the values."""
        for chunk in _CHUNKS:
            ready = list(self.nodes[1:] if up else (_NODE,))
            self._random.shuffle(ready)
            for node in ready:
                self._begin(self.overlay.ready(up, chunk, round_, node))

    def lose(self, member: str) -> None:
        """End all transfers under way: ``member`` is lost."""
        self._under_way.clear()
        self.overlay.reset()
        self.nodes = tuple(node for node in self.nodes if node != member)
        for chunk in _CHUNKS:
            self.overlay.regroup(chunk, self.nodes[1:])

    def _begin(self, transfers: list[OverlayTransfer]) -> None:
        for transfer in transfers:
            known = transfer.source in self.nodes and transfer.target in self.nodes
            require(
                known and transfer.source != transfer.target, "transfers between two nodes of the group",
                repr(transfer),
                "use the names of setting.root and setting.members",
            )  # fmt: skip
            heapq.heappush(self._under_way, (self._now + self._random.random(), next(self._count), transfer))


def scheduled_transfers_complete(subject: Subject) -> None:
    """Up: every contribution reaches the root once. Down: every member gets the values once, from a node with them."""
    if not issubclass(subject.entry, ScheduledOverlay):
        return
    for members, seed in itertools.product(_GROUPS, range(4)):
        transfers = _Transfers(subject, members, seed)
        _follow_rounds(transfers, range(_ROUNDS))
        for up in (True, False) if subject.entry.regroups and members > 2 else ():
            first = _ROUNDS * (2 - up)  # a loss in the middle of this round, which then ends without the overlay
            transfers.begin(first, up)
            transfers.lose(transfers.nodes[-1])
            _follow_rounds(transfers, range(first + 1, first + _ROUNDS))


def _follow_rounds(transfers: _Transfers, rounds: range) -> None:
    for round_, (up, follow) in itertools.product(rounds, ((True, _gathered), (False, _spread))):
        done = transfers.round(round_, up)
        for chunk in _CHUNKS:
            follow([each for each in done if each.chunk == chunk and each.round == round_], transfers.nodes)


def _gathered(done: list[OverlayTransfer], nodes: tuple[str, ...]) -> None:
    held = {node: {node} - {_NODE} for node in nodes}
    for transfer in done:
        moved = held[transfer.source]
        require(
            transfer.up and moved, "a node sends what it has gathered once", f"{transfer} a second time",
            "forget a node when it has sent",
        )  # fmt: skip
        held[transfer.target] = held[transfer.target] | moved
        held[transfer.source] = set()
    missing = sorted(set(nodes) - {_NODE} - held[_NODE])
    require(not missing, "every contribution at the root", f"those of {missing} did not arrive", "pair who is ready")


def _spread(done: list[OverlayTransfer], nodes: tuple[str, ...]) -> None:
    holders = {_NODE}
    for transfer in done:
        require(
            not transfer.up and transfer.source in holders and transfer.target not in holders,
            "a node without the values receives them from one that holds them", repr(transfer),
            "keep who holds the values of each chunk and round",
        )  # fmt: skip
        holders.add(transfer.target)
    missing = sorted(set(nodes) - holders)
    require(not missing, "the values at every member", f"{missing} did not receive them", "serve who is left")


def equal_events_give_equal_transfers(subject: Subject) -> None:
    if not issubclass(subject.entry, ScheduledOverlay):
        return
    both = (_Transfers(subject, 5, 2) for _ in range(2))
    one, other = ([each.round(round_, up) for round_ in range(2) for up in (True, False)] for each in both)
    if one != other:
        raise CheckFailed("equal transfers for equal events", "two objects differ", "draw from setting.seed alone")


def transfers_are_taken_over_with_the_state(subject: Subject) -> None:
    """A new overlay with the state of another makes the transfers that it would."""
    if not issubclass(subject.entry, ScheduledOverlay):
        return
    for seed in range(4):
        old, new = _Transfers(subject, 5, seed), _Transfers(subject, 5, seed)
        for round_, up, each in itertools.product(range(_ROUNDS), (True, False), (old, new)):
            each.round(round_, up)
        state = plain_state(new.overlay)
        new.overlay = subject.entry(new.setting, subject.options)
        new.overlay.load_state(state)
        for round_, up in itertools.product(range(_ROUNDS, 2 * _ROUNDS), (True, False)):
            require(
                old.round(round_, up) == new.round(round_, up), "equal transfers after load_state(state())",
                f"others in round {round_ - _ROUNDS} after it",
                "put what was measured, and the positions of streams of random numbers, into state()",
            )  # fmt: skip
