"""The contract of a synchronisation algorithm: its declarations, its inputs (pushes) and its outputs (effects).

A server makes one policy for its tier. It tells the policy of every push, and carries out the effects that the policy
returns, in order. A policy holds no tensor, clock or socket: it decides the same in every world, and a test drives it
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

    pushes_per_round  how many pushes of this member make a round: more than one if its own workers do not wait for
                      each other, and it passes on each of their contributions separately
    updates           for a member with a model of its own: rounds of workers from one push of the member to the next
    """

    name: str
    workers: tuple[WorkerDevice, ...] = ()
    pushes_per_round: int = 1
    updates: int = 0

    @property
    def worker_rounds(self) -> int:
        """The number of workers' rounds that one push of this member stands for."""
        return self.updates or max(1, len(self.workers)) // self.pushes_per_round


@dataclass(frozen=True, slots=True)
class LocalModel:
    """Settings of a local server that has a model of its own, and replies with it (``engine.local_model``).

    optimizer, options  the optimizer with which the server applies every contribution to its model
    updates             updates of its model from a merge with the global model to the next push to the global server
    merging             share of the global model in a merge
    """

    optimizer: str
    options: dict[str, Any]
    updates: int
    merging: float


@dataclass(frozen=True, slots=True)
class Tier:
    """The tier at which a policy decides.

    members              in rank order
    number               1 (workers and their local server) or 2 (local and global servers)
    top                  whether this server holds the values, so that its policy can end the run
    steps_assigned_above whether the algorithm of the tier above assigns local steps, so that this one must not
    adjustable           whether the share of the elements that the codec over the WAN sends can be set
    """

    members: tuple[Member, ...]
    number: int = 1
    top: bool = True
    steps_assigned_above: bool = False
    adjustable: bool = False

    @classmethod
    def of(cls, *names: str, **others: Any) -> Tier:
        """Return a tier of members with these names and without workers, for tests and examples."""
        return cls(tuple(map(Member, names)), **others)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the members, in rank order."""
        return tuple(member.name for member in self.members)


class SyncPolicy(Remembering, ABC):
    """Decides who waits for whom at one server, and what is applied when. Made as ``cls(tier, cls.Options(...))``.

        >>> from testbed.policy.sync.fsa import Fsa
        >>> policy = Fsa(Tier.of("tokyo", "paris"), Fsa.Options())
        >>> policy.on_push(Push("paris", key=0, round=0))
        []
        >>> aggregate, reply = policy.on_push(Push("tokyo", key=0, round=0))
        >>> aggregate.members, reply.members
        (('tokyo', 'paris'), ('tokyo', 'paris'))

    Declarations, from which compatibility, deadlines, folding and documents follow:

    contribution      what workers push
    waits             a round combines the contributions of all members; if a member is missing, the others count more
    holds             replies may be held back from members that run ahead (bounded staleness)
    tiers             the tiers at which the algorithm may be used
    spans_tiers       it is used at both tiers with the same options, or above or below an algorithm that waits for all
    needs_reports     workers measure their steps and transfers, and send ``WorkerReport`` with their pushes
    assigns_steps     its replies assign local steps to workers
    lags              workers go on while replies to their last pushes are on their way (``staleness``); a reply may set
                      how far, and the share of a contribution that they send (``Pace``)
    supports_failover a replica can take the place of its server in a run in progress
    pauses            all members may stop after the same round, as for a checkpoint: no member needs another member's
                      push to a later round in order to complete that round
    averages          models and deltas of local steps are averaged; otherwise each is applied separately and in full
    chosen            the kind by which the scenario names the algorithm; set by the code that makes the policy
    partner           the kind used at tier 1 when a scenario names this algorithm alone, with the options that both
                      have; empty: this algorithm itself
    presets           named techniques that use this class; a subclass does not inherit them
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
        """Make the policy of one server, with the scenario's options."""

    @classmethod
    def local_steps(cls, options: Any, round_: int) -> int:
        """Return the local steps (at least 1) of ``round_`` (0, 1, …), for a worker to which no reply assigns any."""
        return 1

    @classmethod
    def lan_rounds(cls, options: Any) -> int:
        """Return how many LAN rounds there are per WAN round; at least 1."""
        return 1

    @classmethod
    def local_model(cls, options: Any) -> LocalModel | None:
        """Return the settings of local servers' own models; ``None``: they have none, and pass everything on."""
        return None

    @classmethod
    def moments(cls, options: Any) -> dict[str, int]:
        """Return the period, in rounds, with which each of the workers' optimizer moments (first, second) is averaged.

        Moments that are never averaged are left out. By default, the periods are the options ``first_moments`` and
        ``second_moments``. Parameters travel in every round. DES-LOC (Iacob et al., Desynced low communication adaptive
        optimizers for training foundation models, 2025, arXiv 2505.22549) averages first moments three times, and
        second moments six times as seldom as parameters.
        """
        periods = {name: getattr(options, f"{name}_moments", 0) for name in ("first", "second")}
        return {name: period for name, period in periods.items() if period}

    @classmethod
    def staleness(cls, options: Any) -> int:
        """Return how many rounds a worker may be ahead of its last answer, until a reply changes this (``lags``)."""
        return 0

    @classmethod
    def most_ahead(cls, options: Any) -> int:
        """Return the largest number of rounds that any reply may let a worker be ahead of its last answer."""
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
        """Return the rule for a worker's weight in a mean of models or deltas; by default the option of this name.

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
        """Return the effects to carry out, in order. Pushes of one member and key arrive in the order of rounds."""

    @abstractmethod
    def regroup(self, first: Mapping[str, int]) -> list[Effect]:
        """Set the members that take part from now on: the membership has changed, or the run resumes a checkpoint.

        first  the first round of each member; 0 if it takes part from the start

        If rounds combine the contributions of all members (``waits``), incomplete rounds are repeated: forget their
        pushes. Otherwise all pushes have been aggregated: only stop waiting for lost members. Return the effects to
        carry out now.
        """

    @abstractmethod
    def waiting_for(self, key: int, round_: int) -> tuple[str, ...]:
        """Return the members whose push of ``key`` and ``round_`` is missing while other members wait for it."""

    def on_alarm(self, key: int, number: int, now_s: float) -> list[Effect]:
        """Return the effects to carry out at the time set by ``Alarm(key, number, …)``."""
        return []

    def on_members_left(self, members: Collection[str]) -> list[Effect]:
        """Stop waiting for ``members``, which have ended on purpose. Return the effects that this allows."""
        return []
