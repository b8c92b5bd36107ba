"""Turns the faults of a scenario into data of the Plan: which nodes or links each fault hits, and when."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from itertools import count

from testbed.errors import ScenarioError
from testbed.plan.model import FaultPlan, NetworkPlan, NodePlan
from testbed.scenario import Scenario
from testbed.settings.faults import MEMBER_KINDS, Fault
from testbed.suggest import nearest, nearest_or_all

_SHOWN = 8  # names shown in a hint


def build_faults(scenario: Scenario, network: NetworkPlan, nodes: tuple[NodePlan, ...]) -> tuple[FaultPlan, ...]:
    """Return every fault with its targets and times, in order of time. Raise ``ScenarioError`` for invalid faults."""
    problems: list[str] = []
    found: list[FaultPlan] = []
    for index, fault in enumerate(scenario.faults):
        targets, problem = _targets(fault, network, nodes)
        key, problem = _key(fault), problem or _indispensable(scenario, fault, nodes, targets)
        if not problem and fault.pick is not None and fault.pick > len(targets):
            key = "pick"
            problem = f"{fault.pick} of the {len(targets)} that match (write at most {len(targets)})"
        if problem:
            problems.append(_at(scenario, index, key, problem))
        else:
            found += _times(fault, targets, _draws(f"{scenario.seed}/faults/{index}"))
    if problems:
        raise ScenarioError(problems)
    return by_time(found)


def by_time(faults: Iterable[FaultPlan]) -> tuple[FaultPlan, ...]:
    """Return the faults in order of time, followed by those that begin with a round, in order of rounds."""
    return tuple(sorted(faults, key=lambda fault: (fault.at_s is None, fault.at_s or 0.0, fault.round or 0)))


def refuse_late_faults(scenario: Scenario, deadline_s: float) -> None:
    """Raise ``ScenarioError`` for faults that begin after the run's last round or its deadline.

    Call this after deriving the deadlines, which are longer if faults slow links and devices down.
    """
    rounds: float = scenario.training.rounds
    if scenario.workload is not None and scenario.is_program:  # the number of its rounds is not known
        rounds = math.inf
        deadline_s = scenario.workload.timeout_s
    found = ((index, *_too_late(fault, rounds, deadline_s)) for index, fault in enumerate(scenario.faults))
    if problems := [_at(scenario, index, key, problem) for index, key, problem in found if problem]:
        raise ScenarioError(problems)


def _at(scenario: Scenario, index: int, key: str, problem: str) -> str:
    path = scenario.path_in_file(f"faults[{index}].{key}")
    return f"{scenario.place_of('faults', index, key)}: {path}: {problem}"


def _too_late(fault: Fault, rounds: float, deadline_s: float) -> tuple[str, str]:
    """Return (key, problem) if the fault would begin after the end of the run; else two empty texts."""
    if fault.round is not None and fault.round >= rounds:
        return "round", f"{fault.round} is not before training.rounds ({rounds}); the fault would never happen"
    key, begins_s = ("at", fault.at_s) if fault.sometime is None else ("sometime", fault.sometime.start_s)
    if begins_s is not None and begins_s >= deadline_s:
        return key, f"{begins_s:g} s is not before the run's deadline ({deadline_s:g} s); the fault would never happen"
    return "", ""


def _key(fault: Fault) -> str:
    return next(key for key in ("node", "data_center", "link") if getattr(fault, key) is not None)


def _targets(fault: Fault, network: NetworkPlan, nodes: tuple[NodePlan, ...]) -> tuple[tuple[str, ...], str]:
    """Return the names of the targets, and a problem if there are none."""
    sites = [site.name for site in network.sites]
    if fault.data_center is not None and fault.data_center not in sites:
        return (), f"no data centre named '{fault.data_center}' ({nearest_or_all(fault.data_center, sites, _SHOWN)})"
    if fault.hits_links:
        able = [link.name for link in network.links]
        found = _links(fault, able)
    else:
        able_nodes = _able(fault, nodes)
        able = [node.name for node in able_nodes]
        found = _leaving(fault, nodes) if fault.kind == "leave" else _named(fault, able_nodes)
    if found:
        return found, ""
    what = "link" if fault.hits_links else "node"
    if not able:
        return (), f"this run has no {what} that a fault of kind '{fault.kind}' can hit (remove it)"
    if fault.data_center is not None:
        shown = f"{', '.join(able[:_SHOWN])}{', …' if len(able) > _SHOWN else ''}"
        return (), f"'{fault.data_center}' has no {what} that a fault of kind '{fault.kind}' can hit ({shown} can be)"
    wanted = str(fault.node or fault.link)
    hint = _link_meant(wanted, able) if fault.hits_links else nearest_or_all(wanted, able, _SHOWN)
    return (), f"no {what} matches '{wanted}' ({hint})"


def _link_meant(wanted: str, able: Sequence[str]) -> str:
    """Return a hint at the link that may be meant: for one direction (``a>b``), for both (``a<>b``), or both forms."""
    both = [name.replace(">", "<>") for name in able]
    if ">" in wanted:
        return nearest_or_all(wanted, both if "<>" in wanted else able, _SHOWN)
    if not nearest(wanted, both):
        return f"{nearest_or_all(wanted, able, _SHOWN)}; '{both[0]}' is both directions"
    return f"did you mean '{nearest(wanted, both)}', both directions, or '{nearest(wanted, able)}'?"


def _indispensable(scenario: Scenario, fault: Fault, nodes: tuple[NodePlan, ...], targets: tuple[str, ...]) -> str:
    first = next((node.name for node in nodes if node.role == "worker" and node.trains), "")
    if fault.kind == "leave":
        return f"{first} evaluates, so it cannot leave" if first in targets else ""
    if fault.kind == "join":
        master = next((node.name for node in nodes if node.role == "worker"), "")
        early = {first: "evaluates", master: "provides the first values"}
        late = {
            *targets,
            *(child for node in nodes if node.role == "server" and node.name in targets for child in node.children),
        }
        return "; ".join(
            f"{name} {why}, so it must be present from the start" for name, why in early.items() if name in late
        )
    if fault.kind != "kill" or scenario.recovery.on_failure == "restart":
        return ""
    if fault.at_s == 0 and len(targets) == len(nodes) and fault.pick is None:
        return "kills every node before the run has begun (write a later 'at', or 'recovery: {on_failure: restart}')"
    return _needed_to_continue(scenario, fault, nodes, targets) if scenario.recovery.on_failure == "continue" else ""


def _needed_to_continue(scenario: Scenario, fault: Fault, nodes: tuple[NodePlan, ...], targets: tuple[str, ...]) -> str:
    followed = scenario.recovery.replicas > 0
    chain = [node.name for node in nodes if node.name in targets and node.role in ("global_server", "replica")]
    if followed and fault.duration_s is not None and chain:
        return f"{chain[0]} does not come back: a returning server would lack the updates in between (leave 'for' out)"
    roles = ("scheduler",) if followed else ("global_server", "scheduler")
    tops = [node.name for node in nodes if node.name in targets and node.role in roles]
    return f"the run cannot continue without {tops[0]} (write 'recovery: {{on_failure: restart}}')" if tops else ""


def _links(fault: Fault, names: list[str]) -> tuple[str, ...]:
    if fault.data_center is not None:
        return tuple(name for name in names if fault.data_center in name.split(">"))
    wanted = str(fault.link)
    first, both, second = wanted.partition("<>")
    patterns = (f"{first}>{second}", f"{second}>{first}") if both else (wanted,)
    return tuple(name for name in names if any(fnmatchcase(name, pattern) for pattern in patterns))


def _able(fault: Fault, nodes: tuple[NodePlan, ...]) -> list[NodePlan]:
    """Return the nodes that a fault of this kind can hit.

    Only workers that train have gradients and devices; all nodes but the scheduler write checkpoints.
    """
    if fault.kind in ("nan", "attack", "slow"):
        return [node for node in nodes if node.role == "worker" and node.trains]
    if fault.kind in MEMBER_KINDS:
        return [node for node in nodes if node.role in ("worker", "server")]
    return [node for node in nodes if fault.kind != "disk_full" or node.role != "scheduler"]


def _named(fault: Fault, nodes: Sequence[NodePlan]) -> tuple[str, ...]:
    return tuple(
        node.name for node in nodes if node.data_center == fault.data_center or fnmatchcase(node.name, str(fault.node))
    )


def _leaving(fault: Fault, nodes: tuple[NodePlan, ...]) -> tuple[str, ...]:
    """Return the workers that leave. If the fault names a local server, all its workers leave, and it with the last."""
    named = set(_named(fault, _able(fault, nodes)))
    trains = [node for node in nodes if node.role == "worker" and node.trains]
    return tuple(node.name for node in trains if node.name in named or named.intersection(node.parents))


def _draws(seed: str) -> Iterator[float]:
    """Yield pseudo-random numbers in [0, 1) that depend only on ``seed`` and on their position."""
    for number in count(1):
        digest = hashlib.sha256(f"{seed}/{number}".encode()).digest()
        yield int.from_bytes(digest[:8], "big") / 2**64


def _picked(names: tuple[str, ...], most: int | None, draws: Iterator[float]) -> tuple[str, ...]:
    """Return ``most`` names drawn at random (``None``: all names), in the order of ``names``."""
    if most is None:
        return names
    ranked = sorted((next(draws), name) for name in names)
    chosen = {name for _, name in ranked[:most]}
    return tuple(name for name in names if name in chosen)


def _times(fault: Fault, targets: tuple[str, ...], draws: Iterator[float]) -> Iterator[FaultPlan]:
    start_s = fault.at_s
    if fault.sometime is not None:
        span_s = fault.sometime.end_s - fault.sometime.start_s
        start_s = round(fault.sometime.start_s + next(draws) * span_s, 6)
    for number in range(fault.times or 1):
        yield FaultPlan(
            kind=fault.kind,
            targets=_picked(targets, fault.pick, draws),
            round=fault.round,
            value=fault.value,
            at_s=None if start_s is None else start_s + number * (fault.every_s or 0.0),
            for_s=math.inf if fault.duration_s is None else fault.duration_s,
            burst=fault.burst or 0.0,
            attack=fault.attack or "",
        )
