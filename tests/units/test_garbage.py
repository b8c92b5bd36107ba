"""The garbage collector around runs."""

from __future__ import annotations

import gc

from testbed.garbage import relaxed_garbage_collection


def test_the_end_of_a_run_does_not_look_at_what_it_has_left() -> None:
    gc.collect()
    before, frozen = gc.get_threshold(), gc.get_freeze_count()
    looked: list[int] = []

    def note(phase: str, about: dict[str, int]) -> None:
        looked.append(about["generation"])

    gc.set_threshold(700, 10, 10)  # whatever the suite has chosen
    try:
        with relaxed_garbage_collection():
            left = [[number] for number in range(20_000)]
            gc.callbacks.append(note)
        more = [[number] for number in range(100)]
        assert gc.get_threshold() == (700, 10, 10)
    finally:
        gc.callbacks.remove(note)
        gc.set_threshold(*before)
        if frozen:  # by the suite
            gc.freeze()
    assert not looked, f"{len(left) + len(more)} objects were looked at"
