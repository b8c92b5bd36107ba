"""The contract of a synchronisation algorithm: what it declares, what it is told, what it may answer.

A server makes one policy for its tier. It tells the policy of every push and carries out the effects that it returns,
in order. A policy holds no tensor, clock or socket: the same decisions come out in every world, and a test drives it
with a list of pushes. ``docs/axes/sync.md`` explains the contract with a worked example.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from testbed.policy.events import Contribution, Effect, Push
from testbed.policy.sync.streaming import Streaming
from testbed.preset import Preset
from testbed.state import Remembering

TOKEN = "token"
WEIGHTS: dict[str, Any] = {
    "help": "party: every data centre counts the same; worker: every worker does; sample: every sample of its share; "
    "token: by the samples of this round's steps, times samples per step (Decoupled DiLoCo)",
    "choices": ("party", "worker", "sample", TOKEN),
}


FIRST: dict[str, Any] = {
    "help": "every n-th round the workers' first moments are averaged, too (DES-LOC); 0: never",
    "max": 10**6,
}
SECOND: dict[str, Any] = {**FIRST, "help": "every n-th round their second moments are; 0: never"}


@dataclass(frozen=True, slots=True)
class WorkerDevice:
    """A worker, with the mean duration of a training step on its device in seconds (``None``: not modelled)."""

    name: str
    step_time_s: float | None = None


@dataclass(frozen=True, slots=True)
class Member:
    """A child of the server that contributes to its rounds, with the training workers at or below it.

    pushes_per_round  how many of its pushes make a round: more than one where its own workers do not wait for each
                      other, and each of their rounds is passed on by itself
    updates           of a child with a model of its own: rounds of workers from one of its pushes to the next
    """

    name: str
    workers: tuple[WorkerDevice, ...] = ()
    pushes_per_round: int = 1
    updates: int = 0

    @property
    def worker_rounds(self) -> int:
        """How many rounds of workers one of its pushes stands for."""
        return self.updates or max(1, len(self.workers)) // self.pushes_per_round


@dataclass(frozen=True, slots=True)
class LocalModel:
    """What a local server does that has a model of its own, and answers from it (``engine.local_model``).

    optimizer, options  by which it steps along every contribution
    updates             of that model, from a merging to the next push to the global server
    merging             share of the global model in a merging
    """

    optimizer: str
    options: dict[str, Any]
    updates: int
    merging: float


@dataclass(frozen=True, slots=True)
class Tier:
    """Where a policy stands. ``number``: 1 (workers and their local server) or 2 (local and global servers).

    members              in rank order
    top                  whether values live at this server, so that its decision can end the run
    steps_assigned_above whether the algorithm of the tier above assigns local steps, so that this one leaves it to that
    adjustable           whether the codec over the WAN can be told which share of the elements it is to send
    """

    members: tuple[Member, ...]
    number: int = 1
    top: bool = True
    steps_assigned_above: bool = False
    adjustable: bool = False

    @classmethod
    def of(cls, *names: str, **others: Any) -> Tier:
        """Return a tier of members of these names that have no workers, for tests and examples."""
        return cls(tuple(map(Member, names)), **others)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the members, in rank order."""
        return tuple(member.name for member in self.members)


class SyncPolicy(Remembering, ABC):
    """Who waits for whom at one server, and what is applied when. Made as ``cls(tier, cls.Options(...))``.

        >>> from testbed.policy.sync.fsa import Fsa
        >>> policy = Fsa(Tier.of("tokyo", "paris"), Fsa.Options())
        >>> policy.on_push(Push("paris", key=0, round=0))
        []
        >>> aggregate, reply = policy.on_push(Push("tokyo", key=0, round=0))
        >>> aggregate.members, reply.members
        (('tokyo', 'paris'), ('tokyo', 'paris'))

    Declarations, from which compatibility, deadlines, folding and documents follow:

    contribution      what workers push
    waits             a round combines the contributions of all members; without one of them the others count for more
    holds             replies may be held back from members that run ahead (bounded staleness)
    tiers             the tiers on which it may stand
    spans_tiers       it stands on both tiers, with the same options, or above or below an algorithm that waits for all
    needs_reports     workers measure their steps and transfers, and send ``WorkerReport`` with their pushes
    assigns_steps     its replies assign local steps to workers
    lags              workers go on while answers to their last pushes are on their way (``staleness``), and may be told
                      in replies how far, and which share of a contribution to send (``Pace``)
    supports_failover a replica can take the place of its server in a run in progress
    pauses            members may stop after a round, all after the same one, as for a checkpoint: none needs another
                      one's push to a later round to come that far
    averages          models and deltas of local steps are averaged; otherwise each is applied by itself, undivided
    chosen            the kind by which a scenario names it; set by what makes it
    partner           the kind that stands on tier 1 when a scenario names this one alone, with the options that both
                      have; empty: itself
    presets           techniques by name that this class carries; those of a base class are not its own
    """

    contribution: ClassVar[Contribution] = Contribution.GRADIENT
    waits: ClassVar[bool] = True
    holds: ClassVar[bool] = False
    tiers: ClassVar[tuple[int, ...]] = (1, 2)
    spans_tiers: ClassVar[bool] = False
    needs_reports: ClassVar[bool] = False
    assigns_steps: ClassVar[bool] = False
    lags: ClassVar[bool] = False
    supports_failover: ClassVar[bool] = False
    pauses: ClassVar[bool] = True
    averages: ClassVar[bool] = True
    partner: ClassVar[str] = ""
    presets: ClassVar[tuple[Preset, ...]] = ()
    chosen: str = ""

    @dataclass(frozen=True, slots=True)
    class Options:
        """No options."""

    @abstractmethod
    def __init__(self, tier: Tier, options: Any) -> None:
        """Stand at one server, with the options that the scenario gives."""

    @classmethod
    def local_steps(cls, options: Any, round_: int) -> int:
        """Return the local steps of ``round_`` (0, 1, …) of a worker to which no reply has assigned any; at least 1."""
        return 1

    @classmethod
    def lan_rounds(cls, options: Any) -> int:
        """Return how many rounds inside a data centre there are to one that crosses the WAN; at least 1."""
        return 1

    @classmethod
    def local_model(cls, options: Any) -> LocalModel | None:
        """Return what local servers do with models of their own; ``None``: they have none, and pass everything on."""
        return None

    @classmethod
    def moments(cls, options: Any) -> dict[str, int]:
        """Return in every how many rounds moments of the workers' optimizers are averaged; those never are left out.

        By default the options ``first_moments`` and ``second_moments`` (Iacob et al., DES-LOC: Desynced low
        communication adaptive optimizers for training foundation models, 2025, arXiv 2505.22549: three and six times as
        seldom as parameters). Parameters travel in every round.
        """
        periods = {name: getattr(options, f"{name}_moments", 0) for name in ("first", "second")}
        return {name: period for name, period in periods.items() if period}

    @classmethod
    def staleness(cls, options: Any) -> int:
        """Return of how many rounds a worker has no values yet, at most, until a reply says otherwise (``lags``)."""
        return 0

    @classmethod
    def most_ahead(cls, options: Any) -> int:
        """Return of how many rounds a worker may have no values yet, whatever replies say."""
        return cls.staleness(options)

    @classmethod
    def slack_s(cls, options: Any) -> float:
        """Return how many seconds a round may last beyond the slowest worker's local steps; deadlines allow for it."""
        return 0.0

    @classmethod
    def streaming(cls, options: Any) -> Streaming | None:
        """Return how fragments of the model take turns; ``None``: every round sends all of it."""
        return None

    @classmethod
    def weights(cls, options: Any) -> str:
        """Return what a worker counts for in a mean of models or deltas; by default the option of this name.

        ``party``: every data centre counts the same; ``worker``: every worker does; ``sample``: by its samples;
        ``token``: by the samples of its local steps in this round.
        """
        return getattr(options, "weights", "worker")

    @classmethod
    def outer_optimizer(cls, options: Any) -> tuple[str, dict[str, Any]] | None:
        """Return kind and options of the optimizer at the top tier, or ``None`` for the scenario's own."""
        return None

    @abstractmethod
    def on_push(self, push: Push) -> list[Effect]:
        """Return what to do, in order. Pushes of one member and key arrive in the order of their rounds."""

    @abstractmethod
    def regroup(self, first: Mapping[str, int]) -> list[Effect]:
        """From now on these members take part: the membership has changed, or the run goes on from a checkpoint.

        first  the first round of each: 0, of one that is there from the start

        Where rounds combine the contributions of all, those that are not complete are made again: forget what was
        pushed of them. Otherwise what was pushed has been aggregated; wait for lost members no more. Return what to do
        now.
        """

    @abstractmethod
    def waiting_for(self, key: int, round_: int) -> tuple[str, ...]:
        """Return the members whose push of (key, round) is missing while others wait for it."""

    def on_alarm(self, key: int, number: int, now_s: float) -> list[Effect]:
        """Return what to do now that the time of ``Alarm(key, number, …)`` has come."""
        return []

    def on_members_left(self, members: Collection[str]) -> list[Effect]:
        """``members`` have ended on purpose: nothing may wait for them any more. Return what that releases."""
        return []
