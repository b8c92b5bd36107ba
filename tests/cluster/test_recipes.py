"""The recipes of docs/how-to/cluster start clusters as they say: on machines over ssh, under Slurm, on Kubernetes."""

from __future__ import annotations

import importlib.util
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from testbed.cli.main import main
from tests.cluster.raylets import ROOT, Machine, bare_machines, needs_raylets
from tests.cluster.sweeping import GRID, SMALL, places

RECIPES = ROOT / "docs" / "how-to" / "cluster"
BIN = Path(sys.executable).parent


@pytest.mark.parametrize("name", ["ssh.sh", "slurm.sh"])
def test_scripts_are_bash(name: str) -> None:
    subprocess.run(["bash", "-n", RECIPES / name], check=True)


def test_without_hosts_and_command_the_usage_is_told() -> None:
    ended = subprocess.run([RECIPES / "ssh.sh", "host"], capture_output=True, text=True, check=False)
    assert ended.returncode == 2 and "usage:" in ended.stderr


def containers(group: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = group["template"]["spec"]["containers"]
    return found


def test_the_manifest_has_what_kuberay_asks_for() -> None:
    """Fields of RayCluster in ray.io/v1, their types, and pods as the operator needs them."""
    claim, cluster = YAML(typ="safe").load_all((RECIPES / "kuberay.yaml").read_text())
    assert (cluster["apiVersion"], cluster["kind"]) == ("ray.io/v1", "RayCluster")
    head, (workers,) = cluster["spec"]["headGroupSpec"], cluster["spec"]["workerGroupSpecs"]
    assert set(cluster["spec"]) == {"headGroupSpec", "workerGroupSpecs"}
    assert set(head) == {"rayStartParams", "template"}
    assert set(workers) == {"groupName", "replicas", "minReplicas", "maxReplicas", "rayStartParams", "template"}
    assert 0 < workers["minReplicas"] <= workers["replicas"] <= workers["maxReplicas"]
    for group in (head, workers):
        assert all(isinstance(value, str) for value in group["rayStartParams"].values())
        (container,) = containers(group)
        assert container["resources"]["limits"] == container["resources"]["requests"], "Ray reads the limits"
        assert {"name": "RAY_worker_niceness", "value": "0"} in container["env"]
    (volume,) = head["template"]["spec"]["volumes"]
    assert volume["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]
    assert containers(head)[0]["volumeMounts"][0]["name"] == volume["name"]
    assert shlex.split(workers["rayStartParams"]["resources"]) == ['{"emulate": 1}']


@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="needs Ray: pip install 'testbed[cluster]'")
def test_parameters_of_the_manifest_are_options_of_ray() -> None:
    from ray.scripts.scripts import start

    known = {option.lstrip("-") for parameter in start.params for option in parameter.opts}
    _, cluster = YAML(typ="safe").load_all((RECIPES / "kuberay.yaml").read_text())
    for group in (cluster["spec"]["headGroupSpec"], *cluster["spec"]["workerGroupSpecs"]):
        assert set(group["rayStartParams"]) <= known


def test_commands_of_the_recipes_are_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "my.yaml").write_text(SMALL)
    for path in RECIPES.iterdir():
        (line,) = (line for line in path.read_text().splitlines() if "testbed sweep" in line)
        words = shlex.split(line.partition("testbed sweep")[2])
        words = [word.replace("/results", str(tmp_path)).replace("my.yaml", f"{tmp_path}/my.yaml") for word in words]
        words[0] = str(tmp_path / "my.yaml")
        assert main(["sweep", *words, "--dry-run"]) == 0
        assert "20 runs" in capsys.readouterr().out


# ---- executed, with namespaces as machines --------------------------------------------------------------------------


@contextmanager
def hosts(folder: Path) -> Iterator[tuple[list[Machine], dict[str, str]]]:
    """Make three machines that run each other's commands by ``ssh`` and ``srun``; yield them, and an environment."""
    folder.mkdir()
    path = f"{folder}:{BIN}:/usr/sbin:/usr/bin:/sbin:/bin"
    with bare_machines(3) as machines:
        addresses = ",".join(machine.address for machine in machines)
        scripts = {
            name: f'exec {sys.executable} -m tests.cluster.remote {name} {addresses} "$@"' for name in ("ssh", "srun")
        }
        scripts["scontrol"] = '[[ "$1 $2" == "show hostnames" ]] && tr , "\\n" <<< "$3"'
        scripts["hostname"] = f"echo {machines[0].address}"
        for name, text in scripts.items():
            (folder / name).write_text(f"#!/bin/bash\n{text}\n")
            (folder / name).chmod(0o755)
        env = {"PATH": path, "RAY_TMPDIR": "/mnt/ray"}
        for machine in machines:
            machine.popen([sys.executable, "-m", "tests.cluster.remote", "serve"], env=env)
        yield machines, env


def sweep_of(tmp_path: Path) -> list[str]:
    (tmp_path / "small.yaml").write_text(SMALL)
    return ["testbed", "sweep", str(tmp_path / "small.yaml"), "--out", str(tmp_path / "out"), *GRID]


def check(tmp_path: Path, machines: list[Machine]) -> None:
    """The sweep is done, on several machines, and Ray has ended on all of them."""
    assert len((tmp_path / "out" / "sweep.csv").read_text().splitlines()) == 13
    assert len(set(places(tmp_path / "out").values())) > 1
    left = [text for machine in machines for text in machine.processes().values() if "tests.cluster.remote" not in text]
    assert not [text for text in left if "ray" in text or "sweep" in text], left


@needs_raylets
@pytest.mark.slow  # 60 s
@pytest.mark.timeout(500)
def test_a_cluster_over_ssh(tmp_path: Path) -> None:
    with hosts(tmp_path / "bin") as (machines, env):
        others = [machine.address for machine in machines[1:]]
        machines[0].run([str(RECIPES / "ssh.sh"), *others, "--", *sweep_of(tmp_path)], 400, env)
        check(tmp_path, machines)


@needs_raylets
@pytest.mark.slow  # 75 s
@pytest.mark.timeout(500)
def test_a_cluster_under_slurm(tmp_path: Path) -> None:
    with hosts(tmp_path / "bin") as (machines, env):
        names = ",".join(machine.address for machine in machines)
        slurm = {"SLURM_JOB_NODELIST": names, "SLURM_JOB_NUM_NODES": "3", "SLURM_CPUS_PER_TASK": "1"}
        machines[0].run([str(RECIPES / "slurm.sh"), *sweep_of(tmp_path)], 400, {**env, **slurm})
        check(tmp_path, machines)
