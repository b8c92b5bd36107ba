"""A few of the random schedules, and those that once broke something."""

from __future__ import annotations

import pytest

from tests.faults.schedules import TWO_KEYS, Case, case
from tests.faults.search import Calm, broken, search

# what broke an invariant, and does not any more
FOUND = (
    Case(  # what its predecessor had pushed was answered to it
        ("codec=twobit",),
        "continue",
        0,
        (
            "kind: pause, data_center: west, at: 334 ms, for: 466 ms",
            "kind: kill, node: hub/worker0, at: 547 ms, for: 335 ms",
        ),
        exact=False,
    ),
    Case(  # it died while its first words were on their way, and was taken for alive again
        ("codec=bisparse",),
        "continue",
        0,
        ("kind: join, node: west/worker0, at: 417 ms", "kind: kill, node: west/worker0, at: 645 ms"),
        exact=False,
    ),
    Case(  # its workers were there before the server knew that they were
        ("codec=bisparse",),
        "continue",
        0,
        (
            "kind: kill, data_center: east, at: 337 ms, for: 520 ms",
            "kind: rate, link: hub<>east, at: 411 ms, for: 635 ms, rate: 200 kbit/s",
        ),
        exact=False,
    ),
    Case(  # it registered when the scheduler had just ended, and waited for an answer
        ("sync=mixedsync", "codec=randomk", "shard=multigps"),
        "continue",
        0,
        (
            "kind: kill, data_center: west, at: 408 ms, for: 738 ms",
            "kind: slow, node: '*/worker*', pick: 2, at: 78 ms, for: 238 ms, factor: 5",
        ),
        exact=False,
    ),
    Case(  # it came back and died before its first words were there, which were then taken for those of a living one
        ("sync=bsp", TWO_KEYS),
        "continue",
        0,
        (
            "kind: kill, node: east/worker1, at: 127 ms",
            "kind: kill, node: east/worker0, at: 383 ms, for: 128 ms",
            "kind: kill, data_center: east, at: 513 ms",
        ),
        exact=True,
    ),
    Case(  # it was back before the news of its death was there, and got an answer to what its predecessor had pushed
        ("sync=hfa", "optimizer.at=worker", "sync.k1=2", "sync.k2=3", TWO_KEYS),
        "continue",
        0,
        (
            "kind: delay, link: hub<>east, at: 587 ms, for: 282 ms, delay: 200 ms",
            "kind: kill, node: east/worker0, at: 663 ms, for: 56 ms",
        ),
        exact=True,
    ),
    Case(  # it had registered anew before the news of its death was there, which was then taken for its own
        (TWO_KEYS,),
        "continue",
        0,
        (
            "kind: kill, node: east/worker1, at: 858 ms, for: 126 ms",
            "kind: delay, link: hub<>east, at: 256 ms, for: 705 ms, delay: 200 ms",
        ),
        exact=True,
        replicas=1,
    ),
    Case(  # it died while it waited for its server to be back, and its successor was let in twice
        ("sync=diloco", "optimizer.at=worker", "sync.h=2"),
        "continue",
        0,
        (
            "kind: leave, data_center: east, at: 128 ms",
            "kind: join, node: east/worker1, at: 315 ms",
            "kind: kill, data_center: east, at: 508 ms, for: 666 ms",
        ),
        exact=True,
    ),
    Case(  # a server had joined whose only worker died before it was there: it held nothing, and gave that a hash
        (TWO_KEYS,),
        "continue",
        0,
        ("kind: join, node: west/worker0, at: 886 ms", "kind: kill, node: west/worker0, at: 911 ms, for: 630 ms"),
        exact=True,
    ),
    Case(  # two came back in one round, and the replica's answer was waited for once too often
        ("paradigm=ps",),
        "continue",
        0,
        ("kind: kill, data_center: east, at: 36 ms, for: 445 ms",),
        exact=True,
        replicas=1,
    ),
    Case(  # the replica that had taken the server's place died as well, and nobody said so
        (TWO_KEYS,),
        "continue",
        0,
        ("kind: kill, node: hub/global0, at: 85 ms", "kind: kill, node: hub/replica0, at: 886 ms"),
        exact=True,
        replicas=1,
    ),
    Case(  # what its lost process had sent over the cut link came after its new process' first words
        (),
        "continue",
        0,
        (
            "kind: kill, node: west/worker0, at: 324 ms, for: 101 ms",
            "kind: down, link: west>hub, at: 295 ms, for: 294 ms",
        ),
        exact=True,
    ),
    Case(  # pauses that overlapped handed over the news of its loss after the news of its return
        ("paradigm=gossip", "sync=diloco", "codec=mstopk", "optimizer.at=worker", "sync.h=2", TWO_KEYS),
        "continue",
        1,
        (
            "kind: kill, node: east/worker1, at: 770 ms, for: 57 ms",
            "kind: pause, data_center: east, at: 402 ms, for: 579 ms",
            "kind: pause, data_center: east, at: 879 ms, for: 519 ms",
        ),
        exact=False,
    ),
    Case(  # it joined when the last of the others had died with half of its gradient sent, and waited for the rest
        ("order=p3",),
        "continue",
        0,
        (
            "kind: kill, node: hub/worker0, at: 601 ms",
            "kind: join, node: west/worker0, at: 293 ms",
            "kind: leave, node: east/worker1, at: 374 ms",
            "kind: kill, node: east/worker0, at: 128 ms, for: 615 ms",
        ),
        exact=True,
    ),
    Case(  # what it had sent through another was there, and counted again when it was sent once more
        ("paradigm=ps", "sync=bsp", "overlay=tsengine"),
        "continue",
        0,
        (
            "kind: leave, data_center: west, at: 747 ms",
            "kind: delay, link: hub>west, at: 675 ms, for: 359 ms, delay: 200 ms",
            "kind: rate, link: hub>west, at: 916 ms, for: 528 ms, rate: 200 kbit/s",
        ),
        exact=True,
    ),
    Case(  # of two keys that a relay above wanted together one waited for the answer to the other
        ("sync=esync", "overlay=tsengine", "optimizer.at=worker", TWO_KEYS),
        "continue",
        0,
        ("kind: kill, node: east/worker0, at: 70 ms",),
        exact=False,
    ),
    Case(  # its predecessor had registered, too, before the scheduler read either, and it got both answers
        ("paradigm=allreduce", "codec=dgc"),
        "continue",
        1,
        (
            "kind: kill, node: hub/worker0, at: 584 ms, for: 173 ms",
            "kind: pause, node: hub/worker0, at: 186 ms, for: 772 ms",
            "kind: kill, node: hub/worker0, at: 830 ms, for: 123 ms",
        ),
        exact=False,
    ),
    Case(  # who had not heard of its death sent it a model, before it could register
        ("paradigm=gossip", "training.model={kind: mlp, layers: 0}"),
        "continue",
        1,
        (
            "kind: down, link: west>hub, at: 534 ms, for: 792 ms",
            "kind: kill, data_center: west, at: 734 ms, for: 53 ms",
            "kind: down, link: hub<>east, at: 463 ms, for: 552 ms",
        ),
        exact=False,
    ),
    Case(  # its worker was let in at a server that did not know yet how far the others were, and then pushed that round
        ("sync={tier1: {kind: ssp, staleness: 1}, tier2: tap}", TWO_KEYS),
        "continue",
        0,
        ("kind: kill, data_center: west, round: 2, for: 140 ms",),
        exact=False,
    ),
)


@pytest.fixture(scope="module")
def calm() -> Calm:
    return {}


@pytest.mark.sample(4)  # of 8, which take 3 s
@pytest.mark.parametrize("seed", range(8))
def test_no_invariant_is_broken(calm: Calm, seed: int) -> None:
    assert search([case(seed)], calm) == []


@pytest.mark.sample(4)  # of 19, which take 4 s
@pytest.mark.parametrize("found", FOUND)
def test_nor_where_one_once_was(calm: Calm, found: Case) -> None:
    assert broken(found, calm) == ""
