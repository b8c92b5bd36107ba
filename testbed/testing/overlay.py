"""The contract of an overlay (``docs/axes/overlay.md``): trees that reach every member, or transfers that complete."""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Iterator, Mapping

from testbed.policy.overlay.base import ROOT, GroupSetting, Overlay, Rates, ScheduledOverlay, TreeOverlay
from testbed.policy.overlay.events import OverlayTransfer
from testbed.policy.overlay.parents import Parents
from testbed.testing.requirement import Broken, plain_state, require, requirement
from testbed.testing.subject import Subject

_NODE = "hub/global0"
_GROUPS = (1, 2, 3, 5, 9)
_MEMBERS = 5  # of the group for tests of changes
_CHUNKS = {0: 1000, 4: 250_000, 7: 31, 9: 250_000}
_ROUNDS = 4
_MOST_TRANSFERS = 2000
_SHARE_MEASURED = 0.5  # of the pairs in a round; for the others, earlier measurements count


def _rates(members: int, seed: int) -> Rates:
    draw = random.Random(seed)
    ranks = range(ROOT, members)
    return {(one, other): draw.uniform(1e5, 1e7) for one in ranks for other in ranks if one != other}


def _setting(members: int, seed: int = 0) -> GroupSetting:
    names = tuple(f"site{rank}/server0" for rank in range(members))
    return GroupSetting(_NODE, names, seed, lambda: _rates(members, seed))


@requirement("derive from TreeOverlay or ScheduledOverlay, with options of the metadata CHUNK and MERGE")
def it_is_of_one_of_the_two_kinds(subject: Subject) -> None:
    """An overlay that relays is a TreeOverlay or a ScheduledOverlay, and has the options chunk and merge."""
    entry: type[Overlay] = subject.entry
    trees = issubclass(entry, TreeOverlay)
    scheduled = issubclass(entry, ScheduledOverlay)
    one = trees != scheduled or not (trees or entry.relays)
    require(one, f"it derives from {[base.__name__ for base in entry.__bases__]}")
    require(not entry.relays or {"chunk", "merge"} <= set(dir(subject.options)), f"it has {subject.options!r}")


# ---- trees ----------------------------------------------------------------------------------------------------------


def _trees_of(subject: Subject, members: int = _MEMBERS, seed: int = 0) -> Iterator[TreeOverlay]:
    """Yield a new overlay if it is a TreeOverlay."""
    if issubclass(subject.entry, TreeOverlay):
        yield subject.entry(_setting(members, seed), subject.options)


def _shape(overlay: TreeOverlay, members: int = _MEMBERS) -> dict[int, tuple[int, ...]]:
    """Return the parents in each chunk's tree. Require that each tree reaches every member."""
    trees: Mapping[int, Parents] = overlay.trees(_CHUNKS)
    cure = "return {chunk: Parents(…) for chunk in elements}"
    require(set(trees) == set(_CHUNKS), f"trees for {list(trees)}, but chunks {list(_CHUNKS)}", cure)
    for tree in trees.values():
        parents = tree.parents
        ranks = len(parents) == members and all(ROOT <= above < members for above in parents)
        require(ranks, f"parents {parents} of {members} members", "return one rank per member, −1 for the root")
        reached = {ROOT}
        for _ in range(members):
            reached |= {member for member, above in enumerate(parents) if above in reached}
        missing = sorted(set(range(members)) - reached)
        require(not missing, f"members {missing} are not joined to the root by {parents}", "avoid cycles")
    return {chunk: tree.parents for chunk, tree in trees.items()}


def _measure(overlay: TreeOverlay, round_: int, share: float = _SHARE_MEASURED) -> bool:
    """Tell the overlay the rates of a share of a round's transfers. Return whether it then revises its trees."""
    draw = random.Random(round_)
    for (source, target), rate in _rates(_MEMBERS, 10 + round_).items() if overlay.adapts else ():
        if draw.random() < share:
            overlay.measured(source, target, rate, round_)
    return overlay.revise(round_)


@requirement("compute them from the setting, its seed and the options alone")
def trees_reach_every_member(subject: Subject) -> None:
    """Each chunk has a tree that joins every member to the root, and every node computes the same trees."""
    for members, seed in itertools.product(_GROUPS, range(4)):
        found = [_shape(overlay, members) for _ in range(2) for overlay in _trees_of(subject, members, seed)]
        require(found[:1] == found[1:], f"two overlays of one setting have the trees {found}")


@requirement("keep measured rates behind the trees, replace those in revise, and declare adapts")
def trees_change_only_when_revised(subject: Subject) -> None:
    """Measured rates change no tree until revise returns True, which requires that adapts is declared."""
    for overlay in _trees_of(subject):
        trees = _shape(overlay)
        for round_ in range(_ROUNDS):
            revised = _measure(overlay, round_, share=1.0)
            now = _shape(overlay)
            require(revised or now == trees, f"{trees}, then {now}, while revise returns False")
            require(not revised or overlay.adapts, "revise returns True, but adapts is False")
            trees = now


@requirement("put the rates behind the trees, and those measured since, into state()")
def trees_are_taken_over_with_the_state(subject: Subject) -> None:
    """A new overlay that loads the state of another one has the same trees, and revises them in the same way."""
    for old, new in zip(_trees_of(subject), _trees_of(subject), strict=True):
        for round_ in range(_ROUNDS):
            _measure(old, round_)
        new.load_state(plain_state(old))
        for round_ in range(_ROUNDS, 2 * _ROUNDS):
            before, after = ((_shape(overlay), _measure(overlay, round_)) for overlay in (old, new))
            require(before == after, f"{before}, and {after} after load_state(state())")


# ---- transfers ------------------------------------------------------------------------------------------------------


class _Transfers:
    """A root with members: a transfer takes a random time, and its target then calls ``ready``."""

    def __init__(self, subject: Subject, members: int, seed: int) -> None:
        self.setting = _setting(members, seed)
        self.overlay: ScheduledOverlay = subject.entry(self.setting, subject.options)
        self._random = random.Random(seed)
        self.nodes = (_NODE, *self.setting.members)
        self._now = 0.0
        self._count = itertools.count()
        self._under_way: list[tuple[float, int, OverlayTransfer]] = []

    def round(self, round_: int, up: bool) -> list[OverlayTransfer]:
        """Return the transfers of all chunks in one direction, in the order in which they end."""
        self.begin(round_, up)
        done: list[OverlayTransfer] = []
        while self._under_way:
            self._now, _, transfer = heapq.heappop(self._under_way)
            done.append(transfer)
            require(len(done) < _MOST_TRANSFERS, f"{len(done)} transfers in a round", "end the round")
            self.overlay.arrived(transfer, self._random.uniform(1e5, 1e7))
            self._begin(self.overlay.ready(up, transfer.chunk, round_, transfer.target))
        return done

    def begin(self, round_: int, up: bool) -> None:
        """Tell the overlay that all members have their contributions to all chunks, or that the root has the values."""
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

    def follow(self, rounds: range) -> None:
        """Require that contributions and values of all chunks get where they have to, in each of the rounds."""
        for round_, up, chunk in itertools.product(rounds, (True, False), _CHUNKS):
            if chunk == min(_CHUNKS):
                done = self.round(round_, up)
            mine = [each for each in done if each.chunk == chunk and each.round == round_]
            (_gathered if up else _spread)(mine, self.nodes)

    def _begin(self, transfers: list[OverlayTransfer]) -> None:
        for transfer in transfers:
            known = {transfer.source, transfer.target} <= set(self.nodes) and transfer.source != transfer.target
            require(
                known, f"{transfer} in a group of {self.nodes}", "use the names of setting.root and setting.members"
            )
            heapq.heappush(self._under_way, (self._now + self._random.random(), next(self._count), transfer))


def _gathered(done: list[OverlayTransfer], nodes: tuple[str, ...]) -> None:
    """Require that every contribution reaches the root, and that no node sends one twice."""
    held = {node: {node} - {_NODE} for node in nodes}
    for transfer in done:
        once = transfer.up and held[transfer.source]
        require(once, f"{transfer} sends what its source has sent before", "forget a node when it has sent")
        held[transfer.target] = held[transfer.target] | held[transfer.source]
        held[transfer.source] = set()
    missing = sorted(set(nodes) - {_NODE} - held[_NODE])
    require(not missing, f"the contributions of {missing} do not reach the root", "pair members that are ready")


def _spread(done: list[OverlayTransfer], nodes: tuple[str, ...]) -> None:
    """Require that every member gets the values once, from a node that holds them."""
    holders = {_NODE}
    for transfer in done:
        right = not transfer.up and transfer.source in holders and transfer.target not in holders
        require(right, f"{transfer}, with the values at {holders}", "keep who holds the values of each chunk and round")
        holders.add(transfer.target)
    missing = sorted(set(nodes) - holders)
    require(not missing, f"the values do not reach {missing}", "serve members that are left")


@requirement("keep who has sent, and who holds the values, by chunk and round")
def scheduled_transfers_complete(subject: Subject) -> None:
    """Every contribution reaches the root once, and every member gets the values once, even if a member is lost."""
    for members, seed in itertools.product(_GROUPS, range(4)) if issubclass(subject.entry, ScheduledOverlay) else ():
        transfers = _Transfers(subject, members, seed)
        transfers.follow(range(_ROUNDS))
        for up in (True, False) if subject.entry.regroups and members > 2 else ():
            first = _ROUNDS * (2 - up)  # a member is lost in this round, which then ends without the overlay
            transfers.begin(first, up)
            transfers.lose(transfers.nodes[-1])
            transfers.follow(range(first + 1, first + _ROUNDS))


@requirement("draw from setting.seed alone; put what was measured, and positions of random streams, into state()")
def transfers_follow_from_events_and_state(subject: Subject) -> None:
    """Equal events give equal transfers, also from a new overlay that has loaded the state of another one."""
    for seed in range(4) if issubclass(subject.entry, ScheduledOverlay) else ():
        old = _Transfers(subject, _MEMBERS, seed)
        new = _Transfers(subject, _MEMBERS, seed)
        for round_, up in itertools.product(range(2 * _ROUNDS), (True, False)):
            if (round_, up) == (_ROUNDS, True):
                state = plain_state(new.overlay)
                new.overlay = subject.entry(new.setting, subject.options)
                new.overlay.load_state(state)
            if old.round(round_, up) != new.round(round_, up):
                after = " after load_state(state())" if round_ >= _ROUNDS else ""
                raise Broken(f"other transfers in round {round_}{after}")
