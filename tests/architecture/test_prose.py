"""Plain technical English: words and sentences of a private vocabulary, none of which may come back.

Counted in code, messages and documents of the product; ``prose.txt`` lists what is left, file by file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from tests.architecture.ratchet import PACKAGES, ROOT, Violation, above_allowed, product_files
from tests.architecture.test_names import CLASS

# Whole words, as they stand, to what they are called now.
NAMES = {
    "Letter": "Envelope", "Letters": "Envelopes", "letter": "envelope", "Crew": "WorkerGroup", "crew": "worker group",
    "crews": "worker groups", "Lane": "FlowGroup", "lane": "flow group", "lanes": "flow groups",
    "Crowd": "ConnectionGroup", "crowd": "connection group", "News": "FailureNotifier", "news": "failure notice",
    "Fiber": "Task", "fiber": "task", "fibers": "tasks", "Advice": "ReplyControl", "advice": "reply control",
    "Keeper": "Checkpointer", "keeper": "checkpointer", "Birth": "Launch", "birth": "launch",
    "Standing": "FleetStatus", "Verdict": "HandshakeResult", "Speedometer": "ThroughputMeter",
    "Tapped": "InterceptedMail", "OwnUpdate": "LocalOptimizerWork", "TopKey": "ParameterState", "Said": "CodecChoice",
    "Presence": "MembershipView", "Inherits": "SupportsFailover", "handed_out": "on_value_sent",
    "go_to": "fail_over_to", "go_on": "resume_member", "party_weight": "aggregation_weights",
    "worker_weight": "aggregation_weights", "goodbye": "unexpectedly", "vouch": "report", "nobody": "no node, no one",
    "Nobody": "no node, no one", "everybody": "every node", "Everybody": "every node", "whoever": "the node that",
    "Whoever": "the node that",
}  # fmt: skip
# Words that are names of the field elsewhere, and are not to be the name of a class here.
CLASSES = {
    "Phase": "PredictedTransfer", "Starts": "FlowArrivals", "Store": "SolverState", "Port": "ReservableLink",
    "Way": "PushRoute", "Assigned": "OverwriteUpdate", "Top": "RootStore", "Total": "Aggregate",
    "Epochs": "MembershipLedger", "Answer": "Reply", "Combine": "Aggregate", "Bounded": "BoundedStaleness",
    "Above": "ParentOverlay", "Below": "ChildOverlay", "Found": "Violation", "Leaf": "FieldType",
}  # fmt: skip
SENTENCES = {
    "without a goodbye": "closed unexpectedly",
    "the same at every holder": "identical on all workers",
    "holders differ": "workers differ",
    r"\bon \d+ more ways": "on 5 other link directions",
    "more ways?\\)": "on 5 other link directions",
    "shares are believed": "sharing not validated below 16 BDP",
    "cannot vouch": "every run reports its fidelity limits",
    "hold the simulator against": "validate the simulator against",
    "held against": "validated against",
    "is no column of": "unknown column",
    "found out unless": "auto-detected",
    "said in the Plan": "with a warning in the Plan",
    r"\b[Mm]ended\b": "repaired",
    "all happen that is to happen": "run until the queue is empty",
    "[Ww]ho hears from whom": "failure-notification ordering",
    "nor does anybody": "no active flows and no reservation",
    "told apart from an attacker": "rejected like any stranger",
    "what there is": "the available …",
    "neither know nor can ask": "do not depend on",
}
WORDS = re.compile(r"(?<![A-Za-z0-9])(" + "|".join(map(re.escape, NAMES)) + r")(?![A-Za-z0-9])")
PHRASES = re.compile("|".join(SENTENCES))
DOCUMENTS = ("docs", "scenarios", *PACKAGES)


def documents() -> Iterator[Path]:
    yield from sorted(ROOT.glob("*.md"))
    for folder in DOCUMENTS:
        for pattern in ("*.md", "*.yaml"):
            yield from sorted(set((ROOT / folder).rglob(pattern)) - {ROOT / "docs" / "renames.md"})


def odd_in(text: str) -> Iterator[tuple[int, str]]:
    """Lines with a word or phrase of the list, each with it. A sentence may go over the end of a line."""
    for found in (*WORDS.finditer(text), *PHRASES.finditer(re.sub(r"\n[ #]*", lambda gap: " " * len(gap[0]), text))):
        yield text.count("\n", 0, found.start()) + 1, found[0]


def odd_classes_in(text: str) -> Iterator[tuple[int, str]]:
    for found in CLASS.finditer(text):
        if found[1] in CLASSES:
            yield text.count("\n", 0, found.start(1)) + 1, found[1]


def violations() -> list[Violation]:
    found = []
    for path in (*product_files(), *documents()):
        text = path.read_text(encoding="utf-8")
        place = path.relative_to(ROOT).as_posix()
        classes = odd_classes_in(text) if path.suffix == ".py" else ()
        found += [(place, line, what) for line, what in (*odd_in(text), *classes)]
    return found


def test_no_odd_words_or_sentences() -> None:
    found = above_allowed("prose", violations())
    better = {**NAMES, **CLASSES}
    assert [f"{line} ({better.get(line.rpartition(' ')[2], 'reword')})" for line in found] == []


def test_the_rule_sees_what_it_forbids() -> None:
    text = 'x = Letter()\n# it closed the connection without\n# a goodbye\nletter_box = "Letterhead"\n'
    assert sorted(odd_in(text)) == [(1, "Letter"), (3, "goodbye"), (4, "letter")]
    assert list(odd_classes_in("class Phase:\n    port = 1\n")) == [(1, "Phase")]
