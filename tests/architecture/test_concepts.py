"""The command that measures concepts counts what its table says, in a small tree that has each of them."""

from __future__ import annotations

from pathlib import Path

from tests.architecture.concepts import CONCEPTS, read

WORKER = """\
import os
class Worker:
    async def run(self, plan, joins):
        for round_ in range(self.first_round, 9):
            await self.evaluation.before_push(round_)
            self.world.record("round", t0=0.0)
    def load_state(self, state):
        self.epoch, self.state = state.epoch, state
        a, b = b, a
        start() if self.joins else stop()
        plan.memory[self] = getattr(self, state)()
"""
LINK = """\
import os
TABLE = {"a": 1,
         "b": 2}  # fmt: skip
class Link:
    rate_bps: float
    delay_s: float
    queue_bytes: int = asked(
        "back_end", plan.back_end)  # fmt: skip
os.kill = cast(Any, os.kill)
"""
TEST = "link._queue = self._queue\nmonkeypatch.setattr(link, '_rate', 1)\n"


def test_each_concept_is_counted(tmp_path: Path) -> None:
    for path, text in {"testbed/engine/worker.py": WORKER, "emulation/link.py": LINK, "tests/test_it.py": TEST}.items():
        (tmp_path / path).parent.mkdir(parents=True)
        (tmp_path / path).write_text(text)
    checkout = read(tmp_path)
    found = {count.__name__: count(checkout) for _, count, _, _ in CONCEPTS}
    assert found == {
        "training_loops": 1,
        "files_of_epochs": 1,
        "definitions_of_load_state": 1,
        "link_classes": 1,
        "lines_about_processes": 9,
        "files_that_ask_back_end": 1,
        "private_attributes_in_tests": 2,
        "memos_on_the_plan": 1,
        "patches_at_run_time": 1,
        "calls_by_name": 1,
        "format_skips": 2,
        "tuple_assignments": 1,
        "conditional_statements": 1,
        "lines_of_product": 26,
        "lines_of_tests": 2,
    }
