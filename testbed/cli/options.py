"""Arguments that several verbs share, functions that write files where the user asks, and the outcome of a verb.

A verb is a module with ``HELP``, ``execute`` and, if it has arguments of its own, ``add_arguments``. Its docstring is
the text of ``testbed VERB --help``. Plain argparse is enough: click or typer would take as many lines, and a verb would
need a parameter for each option.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from testbed.errors import ScenarioError
from testbed.facilities import BACK_ENDS
from testbed.target import Target
from testbed.units import UnitError, parse_float, parse_whole

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from testbed.plan.model import Plan
    from testbed.scenario.jobs import ReadJobs
    from testbed.scenario.schema import Scenario

PICTURES = (".png", ".svg", ".pdf")
# the exit code; with --json, the object to print (exit code 0), or a pair of exit code and object
Outcome = int | dict[str, Any] | tuple[int, dict[str, Any]]


def whole(text: str) -> int:
    """Parse the whole number of an option. Unlike ``int``, refuse ``1_0`` and digits of other scripts."""
    try:
        return parse_whole(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"'{text}' is not a whole number") from None


def seed(text: str) -> int:
    """Parse the seed of a run. If there are several, the error names the verb that takes them."""
    if "," in text:
        raise argparse.ArgumentTypeError(
            f"'{text}' is a list, but this takes one seed; write `testbed sweep … --seeds {text}`"
        )
    return whole(text)


def seeds(text: str) -> int | tuple[int, ...]:
    """Parse a number of seeds, or a list of seeds separated by commas."""
    if "," not in text:
        return whole(text)
    return tuple(whole(each.strip()) for each in text.removesuffix(",").split(","))


def decimal(text: str) -> float:
    try:
        return parse_float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number") from None


def measured(text: str | None, option: str, parse: Callable[[str], float]) -> float | None:
    """Return the value of an option with a unit; ``None`` if the option is not given. Raise ``ScenarioError``."""
    try:
        return None if text is None else parse(text)
    except UnitError as error:
        raise ScenarioError(f"{option}: {error}") from error


def scenario_file(text: str) -> Path:
    """Parse the path of a scenario. The content of a pipe replaces the pipe, so that verbs can read it again."""
    path = Path(text)
    if (path == Path("/dev/stdin") or path.parent == Path("/dev/fd")) and not path.is_file():
        from testbed.scenario.reading.document import MAX_BYTES

        with suppress(OSError):  # reading the scenario later reports the problem
            with path.open("rb") as pipe:
                content = pipe.read(MAX_BYTES + 1)
            kept = os.memfd_create("scenario")
            os.write(kept, content)
            os.dup2(kept, 0 if path.name == "stdin" else int(path.name))
            os.close(kept)
    return path


def add_scenario(parser: argparse.ArgumentParser) -> None:
    """Add the scenario file, and the options that change the scenario without editing the file."""
    parser.add_argument("scenario", type=scenario_file, help="scenario file (YAML), or the name of a shipped scenario")
    parser.add_argument("--on", choices=BACK_ENDS, help="back end, instead of the scenario's own")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="PATH=VALUE",
        dest="overrides",
        help="change one value, e.g. --set links[*].rate='5 Mbit/s'; may be repeated",
    )
    parser.add_argument("--seed", type=seed, help="short for --set seed=SEED")
    add_allow_code(parser)


def add_allow_code(parser: argparse.ArgumentParser) -> None:
    """Add the option that lets a scenario from elsewhere name code."""
    about = "import code that the file names, even from outside the working directory"
    parser.add_argument("--allow-code", action="store_true", help=about)


def add_cluster(
    parser: argparse.ArgumentParser, about: str = "run on the Ray cluster at HOST:PORT; auto: the one of this machine"
) -> None:
    parser.add_argument("--cluster", default="", metavar="ADDRESS", help=about)


def add_log(parser: argparse.ArgumentParser) -> None:
    """Add ``--log``, a tuple of experiment trackers."""
    parser.add_argument(
        "--log",
        type=_trackers,
        default=(),
        metavar="TRACKER[,…]",
        help="write to tensorboard, wandb or mlflow during a run, in its directory",
    )


def _trackers(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(word for word in text.split(",") if word))


def add_runs(parser: argparse.ArgumentParser) -> None:
    """Add an argument for run directories, or the directory of a sweep."""
    about = "run directories, the first is the base; or the directory of a sweep"
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN", help=about)


def add_base(parser: argparse.ArgumentParser) -> None:
    """Add ``--base``, which names a point of a sweep."""
    parser.add_argument(
        "--base",
        action="append",
        default=[],
        metavar="PATH=VALUE",
        help="in a sweep, the point that others are compared with, e.g. sync=fsa; default: the first; may be repeated",
    )


def add_target(parser: argparse.ArgumentParser) -> None:
    """Add ``--target``, the accuracy or loss for times to target."""
    parser.add_argument(
        "--target",
        metavar="TARGET",
        help="accuracy or loss to which times are compared: '95 %%', 0.95 or loss=2.5; default: the first run's",
    )


def target_of(text: str | None) -> Target | None:
    """Return the target of ``--target``. Raise ``ScenarioError``."""
    try:
        return None if text is None else Target.parsed(text)
    except ValueError as error:
        raise ScenarioError(f"--target: {error}") from error


def base_of(texts: Sequence[str]) -> dict[str, str]:
    """Return the settings of ``--base``. Raise ``ScenarioError``."""
    from testbed.scenario.sweep import settings_of

    return settings_of(texts)


def sweep_among(paths: Sequence[Path], base: Sequence[str]) -> Path | None:
    """Return the directory of the sweep if ``paths`` is one; ``None`` for runs.

    Raise ``ScenarioError`` if a sweep is given with other paths, or a base with runs.
    """
    from testbed.results.sweep_index import is_sweep

    sweep = next((path for path in paths if is_sweep(path)), None)
    if sweep is not None and len(paths) > 1:
        raise ScenarioError(
            f"{sweep}: a sweep cannot be compared with others; give it alone, or name single runs of it"
        )
    if sweep is None and base:
        raise ScenarioError("--base: is only for a sweep; among runs, the first one given is the base")
    return sweep


def read_scenario(arguments: argparse.Namespace) -> Scenario:
    """Load and validate the scenario with its overrides. Raise ``ScenarioError``."""
    from testbed.scenario.load import load

    seed = [] if arguments.seed is None else [f"seed={arguments.seed}"]
    overrides = [*arguments.overrides, *seed]
    return load(arguments.scenario, overrides, on=arguments.on, allow_code=arguments.allow_code)


def read_jobs(arguments: argparse.Namespace) -> ReadJobs:
    """Do as ``read_scenario`` with a scenario file that may have jobs."""
    from testbed.scenario.jobs import load_jobs

    seed = [] if arguments.seed is None else [f"seed={arguments.seed}"]
    overrides = [*arguments.overrides, *seed]
    return load_jobs(arguments.scenario, overrides, on=arguments.on, allow_code=arguments.allow_code)


def read_plan(arguments: argparse.Namespace) -> tuple[Scenario, Plan]:
    """Return the scenario and its Plan on the chosen back end. Raise ``ScenarioError``."""
    from testbed.plan.build import build_plan

    scenario = read_scenario(arguments)
    return scenario, build_plan(scenario)


def check_jobs(jobs: int | None) -> None:
    """Raise ``ScenarioError`` unless ``--jobs`` is at least 1."""
    if jobs is not None and jobs < 1:
        raise ScenarioError(f"--jobs {jobs}: at least 1")


def make_folder(folder: Path) -> None:
    """Make the folder for results before minutes of work. Raise ``ScenarioError`` if it cannot be written to."""
    folder.mkdir(parents=True, exist_ok=True)
    if not os.access(folder, os.W_OK | os.X_OK):
        raise ScenarioError(f"{folder}: cannot be written; give another place")


def save(figure: Figure, path: Path) -> None:
    """Write a picture in the format of the path's suffix. Raise ``ScenarioError``."""
    if path.suffix.lower() not in PICTURES:
        raise ScenarioError(f"{path}: a picture ends in one of {', '.join(PICTURES)}")
    with _replacing(path) as temporary:
        figure.savefig(temporary, format=path.suffix.lower()[1:])


def write(path: Path, text: str) -> None:
    """Write a text in UTF-8. Raise ``ScenarioError``."""
    with _replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


@contextmanager
def _replacing(path: Path) -> Iterator[Path]:
    from testbed.results.atomic import replacing

    try:
        with replacing(path) as temporary:
            yield temporary
    except OSError as error:
        raise ScenarioError(f"{path}: {error.strerror}") from error
