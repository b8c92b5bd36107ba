"""Files with several jobs on one network: what a job is, and what is refused, with its place and its cure."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.errors import ScenarioError
from testbed.plan.build import build_jobs
from testbed.scenario.jobs import ReadJobs, load_jobs
from testbed.scenario.load import load
from testbed.shipped import path_of
from tests.for_each import for_each

HEAD = """\
version: 1
name: two
seed: 1
run: {on: simulate}
"""
NETWORK = """\
topology:
  data_centers:
    - {name: virginia, central: true, workers: 2}
    - {name: tokyo, workers: 1}
    - {name: paris, workers: 1}
  links:
    - {between: [virginia, tokyo], rate: 20 Mbit/s, delay: 50 ms}
    - {between: [virginia, paris], rate: 20 Mbit/s, delay: 30 ms}
"""
OWN = "{training: {model: mlp, data: digits, split: iid, batch: 8, rounds: 3}}"


def read(folder: Path, text: str, *overrides: str, on: str | None = None) -> ReadJobs:
    file = folder / "jobs.yaml"
    file.write_text(text, encoding="utf-8")
    return load_jobs(file, overrides, on=on, allow_code=True)


def test_a_job_of_a_scenario_is_that_scenario(tmp_path: Path) -> None:
    read_ = read(tmp_path, "version: 1\nname: one\nseed: 1\njobs: {quickstart: {scenario: quickstart}}\n")
    (job,) = read_.jobs
    assert read_.are_several
    assert job.scenario.to_yaml() == load("quickstart").to_yaml()
    assert not load_jobs("quickstart").are_several
    assert load_jobs("quickstart").jobs[0].scenario == load("quickstart")


def test_what_a_job_says_wins_over_its_scenario_and_options_of_the_same_kind_are_merged(tmp_path: Path) -> None:
    text = f"{HEAD}{NETWORK}jobs:\n"
    text += "  a: {scenario: quickstart, seed: 7, training: {rounds: 19}, optimizer: {at: worker}}\n"
    text += "  b: {scenario: quickstart, technique: hfa, optimizer: sgd}\n"
    a, b = (job.scenario for job in read(tmp_path, text).jobs)
    assert (a.name, a.seed, a.training.rounds, a.training.batch_size) == ("a", 7, 19, 32)
    assert (a.optimizer.kind, a.optimizer.options.learning_rate, a.optimizer.options.at) == ("adam", 0.002, "worker")
    assert (b.seed, b.sync.tier2.kind, b.optimizer.kind) == (1, "hfa", "sgd")
    assert [site.name for site in b.topology.data_centers] == ["virginia", "tokyo", "paris"]  # and not quickstart's


def test_a_job_takes_its_place_on_the_network_and_the_others_stay_on_its_ways(tmp_path: Path) -> None:
    place = "{sites: [tokyo, paris], central: tokyo, workers: 3, data_centers: [{name: paris, device: {speed: 0.5}}]}"
    text = f"{HEAD}{NETWORK}jobs:\n  a: {OWN}\n  b: {{scenario: quickstart, start: 30 s, topology: {place}}}\n"
    a, b = read(tmp_path, text).jobs
    assert b.start_s == 30
    topology = b.scenario.topology
    assert topology.routers == ("virginia",)
    assert topology.links == a.scenario.topology.links
    tokyo, paris = topology.data_centers
    assert (tokyo.central, tokyo.workers, paris.workers, paris.device.speed) == (True, 3, 3, 0.5)


def test_overrides_reach_jobs_and_the_network(tmp_path: Path) -> None:
    text = f"{HEAD}{NETWORK}jobs: {{a: {OWN}}}\n"
    found = read(tmp_path, text, "jobs.a.training.rounds=8", "links[0].rate=5 Mbit/s", on="emulate")
    scenario = found.jobs[0].scenario
    assert scenario.training.rounds == 8
    assert scenario.run.on == "emulate"
    assert scenario.topology.links[0].rate_bps == 5e6


def test_background_and_faults_of_links_are_the_network_s(tmp_path: Path) -> None:
    shared = "background: [{kind: constant, from: tokyo, to: paris, rate: 1 Mbit/s}]\n"
    shared += "faults: [{kind: down, link: 'virginia<>tokyo', at: 5 s, for: 2 s}]\n"
    slow = "{kind: slow, node: '*/worker0', at: 1 s, for: 1 s, factor: 2}"
    own = f"{{scenario: quickstart, faults: [{slow}], topology: {{sites: [virginia, tokyo]}}}}"
    found = read(tmp_path, f"{HEAD}{NETWORK}{shared}jobs: {{a: {OWN}, b: {own}}}\n")
    a, b = (job.scenario for job in found.jobs)
    assert [fault.kind for fault in a.faults] == ["down"]
    assert [fault.kind for fault in b.faults] == ["down", "slow"]
    assert [fault.kind for fault in found.network.faults] == ["down"]
    assert len(a.background) == len(found.network.background) == 1
    assert not b.background  # one of its ends is no data centre of this job


WRONG = {
    "shared settings at a job": (
        "jobs: {a: {scenario: quickstart, run: {on: local}}}",
        "jobs.a.run: is the same for all jobs (write 'run' beside 'jobs', for all of them)",
    ),
    "a job's sections beside it": (
        f"training: {{rounds: 3}}\njobs: {{a: {OWN}}}",
        "training: belongs to a job (write it at a job: 'jobs: {NAME: {training: …}}')",
    ),
    "an unknown section": (f"tranport: {{}}\njobs: {{a: {OWN}}}", "tranport: unknown key (did you mean 'transport'?)"),
    "an unknown data centre": (
        "jobs: {a: {scenario: quickstart, topology: {sites: [virginia, tokio]}}}",
        "jobs.a.topology.sites[1]: no data centre named 'tokio' (did you mean 'tokyo'?)",
    ),
    "no workers in a data centre": (
        "jobs: {a: {scenario: quickstart, topology: {data_centers: [{name: paris, workers: 0}]}}}",
        "jobs.a.topology.data_centers[0].workers: 0 is outside [1, 1000] (only the central data centre may have none)",
    ),
    "a data centre twice": (
        "jobs: {a: {scenario: quickstart, topology: {sites: [virginia, virginia]}}}",
        "jobs.a.topology.sites[1]: 'virginia' is there already (name each data centre once)",
    ),
    "jobs as a list": ("jobs: [{name: a}]", "jobs: expected a mapping by name, got a list (write 'jobs: {NAME:"),
    "faults that are no list": (f"faults: 5\njobs: {{a: {OWN}}}", "faults: expected a list"),
    "faults of a job that are no list": (
        "jobs: {a: {scenario: quickstart, faults: 5}}",
        "jobs.a.faults: expected a list",
    ),
    "background that is no list": (f"jobs: {{a: {OWN}}}\nbackground: 3", "background: expected a list"),
    "no central one": (
        "jobs: {a: {scenario: quickstart, topology: {sites: [tokyo, paris]}}}",
        "jobs.a.topology.sites: 'virginia', where the network has its global servers, is not among them "
        "(write 'central: tokyo', or another of them)",
    ),
    "links at a job": (
        "jobs: {a: {scenario: quickstart, topology: {links: []}}}",
        "jobs.a.topology.links: unknown key (allowed: sites, central, workers, data_centers)",
    ),
    "faults of links at a job": (
        "jobs: {a: {scenario: quickstart, faults: [{kind: down, link: '*', at: 1 s, for: 1 s}]}}",
        "jobs.a.faults: 'down' hits links, which jobs share (write it in 'faults' beside 'jobs')",
    ),
    "faults of nodes beside jobs": (
        f"faults: [{{kind: kill, node: tokyo/worker0, at: 1 s}}]\njobs: {{a: {OWN}}}",
        "faults: 'kill' hits nodes, which belong to a job (write it in 'faults' of a job)",
    ),
    "a scenario that is none": (
        "jobs: {a: {scenario: quikstart}}",
        "jobs.a.scenario: 'quikstart' is neither a file beside this one nor a shipped scenario "
        "(did you mean 'quickstart'?)",
    ),
    "a scenario from elsewhere": (
        "jobs: {a: {scenario: ../other.yaml}}",
        "jobs.a.scenario: '../other.yaml' lies outside the folder of this file (copy it into that folder)",
    ),
    "a mistake in a section": (
        "jobs: {a: {scenario: quickstart, training: {rounds: many}}}",
        "jobs.a.training.rounds: expected an integer, got 'many'",
    ),
    "a rule of a scenario": (
        "jobs: {a: {scenario: quickstart, sync: hfa, order: {kind: p3, overlap: backward}}}",
        "jobs.a.",
    ),
    "a bad name": (
        "jobs: {A/b: {scenario: quickstart}}",
        "jobs.A/b: 'A/b' is not a valid name (write 'a-b', of 1-32 characters: a-z first, then a-z 0-9 '-')",
    ),
    "no job": ("jobs: {}", "jobs: has no job (write 'jobs: {NAME: {scenario: quickstart}}')"),
    "checkpoints beside others": (
        f"jobs: {{a: {{scenario: quickstart, checkpoint: {{every: 2}}}}, b: {OWN}}}",
        "jobs.a.checkpoint.every: is not possible with several jobs "
        "(leave it out: a checkpoint waits until no message is on its way, but other jobs keep sending)",
    ),
    "restarts beside others": (
        f"jobs: {{a: {{scenario: quickstart, recovery: {{on_failure: restart}}}}, b: {OWN}}}",
        "jobs.a.recovery.on_failure: 'restart' is not possible with several jobs",
    ),
    "a start without a unit": (
        "jobs: {a: {scenario: quickstart, start: 30}}",
        "jobs.a.start: 30 has no unit (write a unit, e.g. '50 ms')",
    ),
}


@for_each("name", list(WRONG))
def test_what_is_wrong_is_told_with_its_place_and_cure(name: str, tmp_path: Path) -> None:
    text, told = WRONG[name]
    with pytest.raises(ScenarioError) as error:
        read(tmp_path, f"{HEAD}{NETWORK}{text}\n")
    assert any(told in problem for problem in error.value.problems), error.value.problems
    assert all(f"{tmp_path}/jobs.yaml:" in problem for problem in error.value.problems), error.value.problems


def test_name_and_seed_of_the_file_are_checked(tmp_path: Path) -> None:
    text = HEAD.replace("name: two", "name: ../two").replace("seed: 1", "seed: many")
    with pytest.raises(ScenarioError) as error:
        read(tmp_path, f"{text}{NETWORK}jobs: {{a: {{scenario: quickstart, seed: 3}}}}\n")
    told = "\n".join(error.value.problems)
    assert "name: '../two' is not a valid name" in told
    assert "seed: expected an integer, got 'many'" in told


def test_scenarios_with_different_networks_share_none(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError) as error:
        read(tmp_path, f"{HEAD}jobs: {{a: {{scenario: quickstart}}, b: {{scenario: topologies/gaia-pair}}}}\n")
    (problem,) = error.value.problems
    assert "jobs: 'a' and 'b' have different sections 'topology', but jobs share it (write 'topology' beside" in problem


def test_all_mistakes_are_told_at_once(tmp_path: Path) -> None:
    kills = "faults: [{kind: down, link: '*', at: 1 s, for: 1 s}]"
    text = f"{HEAD.replace('seed: 1', 'tranport: 3')}{NETWORK}jobs:\n"
    text += "  a: {scenario: quickstart, topology: {sites: [virginia, tokio]}, strat: 3 s}\n"
    text += f"  b: {{scenario: quickstart, training: {{rounds: 0}}, {kills}}}\n"
    text += "  c: {scenario: quickstrat}\n"
    with pytest.raises(ScenarioError) as error:
        read(tmp_path, text)
    told = {problem.partition(".yaml:")[2].split(": ")[1] for problem in error.value.problems}
    assert told == {
        "tranport",
        "seed",
        "jobs.a.topology.sites[1]",
        "jobs.a.strat",
        "jobs.b.training.rounds",
        "jobs.b.faults",
        "jobs.c.scenario",
    }


def test_faults_are_told_where_the_file_has_them_and_once(tmp_path: Path) -> None:
    faults = "faults: [{kind: down, link: virginia-tokio, at: 1 s, for: 1 s}]\n"
    own = "{scenario: quickstart, faults: [{kind: kill, node: tokyo/worker9, at: 1 s}]}"
    with pytest.raises(ScenarioError) as error:
        build_jobs(read(tmp_path, f"{HEAD}{NETWORK}{faults}jobs: {{a: {own}, b: {own}}}\n"))
    told = [problem.partition(".yaml:")[2].split(": ")[1] for problem in error.value.problems]
    assert sorted(told) == ["faults[0].link", "jobs.a.faults[0].node", "jobs.b.faults[0].node"]


@for_each(
    "override, told",
    [
        ("jobs.xx.training.rounds=3", "no job 'xx' (one of a, bob)"),
        ("jobs.bbo.training.rounds=3", "no job 'bbo' (did you mean 'bob'?)"),
        ("jobs[*].training.rounds=3", "name one job (jobs.NAME.…, NAME one of a, bob)"),
        ("jobs.*.training.rounds=3", "name one job (jobs.NAME.…, NAME one of a, bob)"),
        ("jobs.a.strat=3", "jobs.a.strat: unknown key (did you mean 'start'?)"),
        ("jobs.a.zzz=3", "jobs.a.zzz: unknown key (allowed: scenario, start, topology, seed, training,"),
    ],
)
def test_overrides_of_no_job_or_of_no_key_of_jobs_are_refused(override: str, told: str, tmp_path: Path) -> None:
    with pytest.raises(ScenarioError) as error:
        read(tmp_path, f"{HEAD}{NETWORK}jobs: {{a: {OWN}, bob: {OWN}}}\n", override)
    (problem,) = error.value.problems
    assert problem.startswith(f"--set {override}: {told}")


def test_jobs_are_not_deployed_by_one_run(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match=r"run\.on: several jobs cannot be deployed by one run \(deploy each job"):
        read(tmp_path, f"{HEAD}{NETWORK}jobs: {{a: {OWN}, b: {OWN}}}\n", on="cluster")


def test_what_takes_one_scenario_refuses_several() -> None:
    told = r"this command needs a scenario without 'jobs' \(`testbed run FILE` runs its jobs; for one"
    with pytest.raises(ScenarioError, match=told):
        load(path_of("shared/two-jobs"))
