"""Hierarchical frequency aggregation with a warm-up: five local steps in rounds 0 to 5, then HFA's ``k1``."""

from dataclasses import dataclass, field

from testbed.policy.sync.hfa import Hfa

WARM_ROUNDS, WARM_STEPS = 6, 5


class WarmHfa(Hfa):
    """HFA whose first rounds are longer."""

    @dataclass(frozen=True, slots=True)
    class Options(Hfa.Options):
        """See the module's docstring."""

        k1: int = field(default=3, metadata={"help": "local steps after the warm-up", "min": 1, "max": 10**6})
        k2: int = field(default=2, metadata={"help": "LAN rounds between two WAN rounds", "min": 1, "max": 10**6})

    @classmethod
    def local_steps(cls, options: Options, round_: int) -> int:
        return WARM_STEPS if round_ < WARM_ROUNDS else options.k1
