"""Of the whole suite: hypothesis' profiles, shared byte and machine code, less garbage collection, no disk waits."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import mmap
import os
import random
import sys
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from testbed.execution import session as host_session
from testbed.execution.compiler import leave_out_compiler
from testbed.garbage import relaxed_garbage_collection


@contextlib.contextmanager
def _byte_code_is_written() -> Iterator[None]:
    """Later processes load what this one compiles, even if ``PYTHONDONTWRITEBYTECODE`` is set."""
    dont_write = sys.dont_write_bytecode
    sys.dont_write_bytecode = False
    try:
        yield
    finally:
        sys.dont_write_bytecode = dont_write


with _byte_code_is_written():  # pytest rewrites the assertions of all modules of hypothesis: two seconds a process
    from hypothesis import HealthCheck, settings

_C_LIBRARY = ctypes.CDLL(None)
_COLLAPSE, _LARGE_PAGE_BYTES = 25, 2 << 20  # MADV_COLLAPSE, of Linux 6.1; others refuse it, and all is as before
_SLOW_TIMEOUT_S = 1200
_memory = {"resident_bytes": 0}  # after it was last given back
_CHECKS = (HealthCheck.too_slow, HealthCheck.function_scoped_fixture, HealthCheck.differing_executors)
# The default suite draws the same few examples every time; ``-m slow`` draws many, other ones each time.
settings.register_profile("ci", max_examples=12, deadline=None, derandomize=True, suppress_health_check=_CHECKS)
settings.register_profile("thorough", max_examples=100, deadline=None, suppress_health_check=_CHECKS)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--shuffle", type=int, metavar="SEED", help="run the files of tests in an order that SEED draws")


def pytest_configure(config: pytest.Config) -> None:
    host_session.IMPORTED_EARLY.clear()  # most tests of `testbed run` need no host process
    if not config.getoption("--hypothesis-profile", default=None):
        settings.load_profile("thorough" if _is_thorough(config) else "ci")


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Workers import the test modules of a whole run, each from another one on: what one has compiled, others load.

    To rewrite the assertions of all test modules takes six seconds of a processor. In the same order, all workers would
    compile each module at the same time.
    """
    number, workers = (os.environ.get(f"PYTEST_XDIST_WORKER{suffix}", "") for suffix in ("", "_COUNT"))
    with _byte_code_is_written():
        if number and session.config.args_source is pytest.Config.ArgsSource.TESTPATHS:
            names = [".".join(path.with_suffix("").parts) for path in _test_modules()]
            first = len(names) * int(number.removeprefix("gw")) // int(workers)
            for name in names[first:] + names[:first]:
                with contextlib.suppress(Exception, pytest.skip.Exception):  # collection reports them with their place
                    importlib.import_module(name)
        return (yield)


def _test_modules() -> list[Path]:
    """Return their paths, from the repository's root."""
    folder = Path(__file__).parent
    return sorted(path.relative_to(folder.parent) for path in folder.rglob("test_*.py"))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """``-m slow`` also runs all property tests, by the thorough profile, and lets each test take twenty minutes.

    One that takes a minute takes more than the default suite's five where other work has most of the machine.
    """
    _sample(items)
    _shuffle(items, config.getoption("--shuffle"))
    if _is_thorough(config):
        for item in items:
            if getattr(getattr(item, "obj", None), "is_hypothesis_test", False):
                item.add_marker(pytest.mark.slow)
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(_SLOW_TIMEOUT_S))


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown() -> None:
    """Give memory back when 100 MB more are in use: a fork of 2 GB takes 0.1 s of the processor, of 0.4 GB 0.02 s.

    What simulations leave is in cycles, and the C library keeps what is freed.
    """
    if _resident_bytes() > _memory["resident_bytes"] + 100e6:
        gc.collect()
        _C_LIBRARY.malloc_trim(0)
        _use_large_pages()
        _memory["resident_bytes"] = _resident_bytes()


def _shuffle(items: list[pytest.Item], seed: int | None) -> None:
    """Order the files anew; within a file, tests keep their order."""
    if seed is None:
        return
    files = sorted({item.path for item in items})
    random.Random(seed).shuffle(files)
    place = {path: number for number, path in enumerate(files)}
    items.sort(key=lambda item: place[item.path])


def _sample(items: list[pytest.Item]) -> None:
    """Of each test that is marked ``sample(n, *ids)``, mark most parameters as slow: not n of them, which are evenly
    spread, nor those with these ids."""
    tests: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("sample") is not None and item.get_closest_marker("slow") is None:
            tests.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for parameters in tests.values():
        mark = parameters[0].get_closest_marker("sample")
        assert mark is not None
        n, *ids = mark.args
        kept = {number * len(parameters) // n for number in range(n)}
        for number, item in enumerate(parameters):
            if number not in kept and item.name.partition("[")[2].removesuffix("]") not in ids:
                item.add_marker(pytest.mark.slow)


def _use_large_pages() -> None:
    """Make fork cheaper: it copies a page-table entry for every page, so pages of 2 MB cost less than pages of 4 KB."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        ends, rights, _, _, inode, *_ = line.split()
        begin, end = (int(place, 16) // _LARGE_PAGE_BYTES for place in ends.split("-"))
        if rights == "rw-p" and inode == "0" and end > begin + 1:
            size = ctypes.c_size_t((end - begin - 1) * _LARGE_PAGE_BYTES)
            _C_LIBRARY.madvise(ctypes.c_void_p((begin + 1) * _LARGE_PAGE_BYTES), size, _COLLAPSE)


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish() -> None:
    """Nothing is looked for in the objects of thousands of tests: pytest collects garbage once more before it ends."""
    gc.freeze()


def _is_thorough(config: pytest.Config) -> bool:
    return bool(config.getoption("-m") == "slow")


@pytest.fixture(scope="session", autouse=True)
def _no_compiler() -> None:
    """Runs in the process of the tests, and forked from it, leave torch's compiler out as their own process does."""
    leave_out_compiler()


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    """One thread for torch, as every node of a run has: how sums are split decides about their last bits.

    A process forked from one in which torch has started more waits for these for ever.
    """
    import torch

    torch.set_num_threads(1)


@pytest.fixture(scope="session", autouse=True)
def _relaxed_garbage_collection() -> Iterator[None]:
    """A simulation looks through all objects of the process before and after; here, once before the first test.

    Modules of thousands of tests are many objects: 0.2 s a simulation, most of what a small one takes.
    """
    with relaxed_garbage_collection():
        yield


@pytest.fixture(scope="session", autouse=True)
def _no_waits_for_disks() -> Iterator[None]:
    """Files are not forced to disk: 3 ms each, and no test cuts the power. Forked processes have it, too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield


@pytest.fixture(scope="session")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of pictures that all workers, and what they fork, copy instead of making their own."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base) / "pictures"
    folder.mkdir(exist_ok=True)
    return folder


def _keep(content: bytes, path: Path) -> None:
    """Write it at once: others may read it meanwhile."""
    own = path.with_name(f"{path.name}.{os.getpid()}")
    own.write_bytes(content)
    own.replace(path)


@pytest.fixture(scope="session", autouse=True)
def _pictures_are_rendered_once(pictures: Path) -> Iterator[Callable[..., None]]:
    """All figures are made, but only the first PNG and PDF are rendered; later files are copies of these.

    Rendering takes 0.4 and 1 s, most of what the end of a small run takes. See ``rendered`` for tests of what is seen.
    """
    from matplotlib.figure import Figure

    render = Figure.savefig

    def save(figure: Figure, file: Any, **options: Any) -> None:
        form = options.get("format") or getattr(file, "suffix", ".").lower()[1:]
        first = pictures / f"first.{form}"
        if form not in ("png", "pdf") or not isinstance(file, Path):
            render(figure, file, **options)
        elif first.exists():
            file.write_bytes(first.read_bytes())
        else:
            render(figure, file, **options)
            _keep(file.read_bytes(), first)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Figure, "savefig", save)
        yield render


@pytest.fixture
def rendered(_pictures_are_rendered_once: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    """Every picture is rendered."""
    monkeypatch.setattr("matplotlib.figure.Figure.savefig", _pictures_are_rendered_once)


@pytest.fixture(scope="session", autouse=True)
def _figures_of_like_runs_are_drawn_once(pictures: Path) -> Iterator[None]:
    """A run ends with its figure, for a quarter of a second. One of the same back end and paradigm gets a copy.

    ``testbed.launch.finish`` alone does so, not ``testbed show --figure`` or the library.
    """
    from testbed import launch
    from testbed.results import atomic

    draw, finish = launch.draw, launch.finish

    def draw_once(run: Any, stored: Any) -> Path:
        plan = stored.plan
        kind = f"{plan['back_end']}-{plan['technique']['paradigm']['kind']}-{bool(plan.get('program'))}".replace(
            "/", "-"
        )
        drawn = pictures / f"run-{kind}.png"
        if not drawn.exists():
            _keep(draw(run, stored).read_bytes(), drawn)
        else:
            atomic.write_bytes(run.file("figure.png"), drawn.read_bytes())
        return Path(run.file("figure.png"))

    def finish_with_it(*arguments: Any, **options: Any) -> Any:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(launch, "draw", draw_once)
            return finish(*arguments, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(launch, "finish", finish_with_it)
        yield
