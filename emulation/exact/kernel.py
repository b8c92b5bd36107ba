"""The user-mode kernel of exact runs: pinned source, patches and configuration, built once per user.

The source is Debian's package of Linux 7.3.4, the first kernel line here whose user-mode port runs guests by seccomp
(twice as fast as ptrace) and in virtual time. The patches and the kernel built with them are under the kernel's own
licence, GPL-2.0; the testbed starts that kernel as a program.

The configuration has IPIP as a module, which is neither built nor loaded. With this option, the kernel reserves as much
room for headers as kernels of distributions do, and so counts 4352 bytes for a segment, not 2304
(``tcp_sndbuf_expand``). Without it, TCP's send buffers would be half as large as elsewhere.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import urllib.request
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from testbed.errors import CapabilityError
from testbed.processes.child import run_to_its_end

VERSION = "7.3.4"
PACKAGE = "linux-source-7.3_7.3.4-1~bpo13+1_all.deb"
PACKAGE_SHA256 = "703e369ddd4cce971452f5a593ee55df3a5c10c83caf0fa0df039633ed181ee3"
MIRRORS = (
    "https://deb.debian.org/debian/pool/main/l/linux/",
    "http://deb.debian.org/debian/pool/main/l/linux/",
    "https://snapshot.debian.org/archive/debian/20261122T000000Z/pool/main/l/linux/",
)
CURE = "testbed exact build (about 10 minutes of processor time, once)"
APT_LINE = "sudo apt-get install --no-install-recommends build-essential flex bison bc patch xz-utils"

_HERE = Path(__file__).parent
_PATCHES = ("rngseed.patch", "tt-syscall.patch", "host-cputime.patch")
_TOOLS = ("gcc", "make", "flex", "bison", "bc", "patch", "xz", "tar", "dpkg-deb")
_FREE_BYTES = 4 << 30  # the source takes 2 GB, objects 0.4 GB
# The kernel's banner names who built it, where and when. Fixed values let one source give one binary.
_ANONYMOUS = {"KBUILD_BUILD_USER": "testbed", "KBUILD_BUILD_HOST": "exact", "KBUILD_BUILD_TIMESTAMP": "2026-01-01"}


@dataclass(frozen=True, slots=True)
class Kernel:
    """A built kernel: its path, and the SHA-256 digests of its sources and its binary."""

    path: str
    version: str
    source_sha256: str
    patches_sha256: str
    configuration_sha256: str
    binary_sha256: str

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON-ready values, without the path, which differs between users."""
        return {name: value for name, value in asdict(self).items() if name != "path"}


def find() -> Kernel | None:
    """Return the kernel that this user has built from today's source, patches and configuration; ``None`` if none."""
    try:
        return msgspec.json.decode((_place() / "kernel.json").read_bytes(), type=Kernel)
    except (OSError, msgspec.DecodeError):  # OSError also if HOME is not a folder, or belongs to another user
        return None


def require() -> Kernel:
    """Return the built kernel. Raise ``CapabilityError`` with the cure if there is none, or it was changed."""
    kernel = find()
    if kernel is None:
        raise CapabilityError(f"'on: exact' needs a user-mode kernel, which is not built yet; cure: {CURE}")
    if not _intact(kernel):
        raise CapabilityError(f"{kernel.path}: missing, or changed since it was built; cure: {CURE}")
    return kernel


def build(say: Callable[[str], None], source: Path | None = None, jobs: int | None = None) -> Kernel:
    """Return the kernel, built first if this user has none, or its file was changed.

    say     called with one line per step
    source  the package ``PACKAGE``, if it is not to be downloaded
    jobs    compilers at a time; default: one per usable core

    Raise ``CapabilityError`` if a tool, space, the source or the network is missing, or the build fails.
    """
    place = _place()
    place.parent.mkdir(parents=True, exist_ok=True)
    with (place.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # waits for another build of this user; the lock ends with its process
        if (kernel := find()) is not None and _intact(kernel):
            return kernel
        _require_tools(place.parent)
        work = place.with_suffix(".building")
        shutil.rmtree(work, ignore_errors=True)  # of a build that was killed
        work.mkdir()
        try:
            kernel = _build_in(work, place, _package(source, work, say), jobs or len(os.sched_getaffinity(0)), say)
        finally:
            shutil.rmtree(work, ignore_errors=True)
    return kernel


def _intact(kernel: Kernel) -> bool:
    path = Path(kernel.path)
    return path.is_file() and _sha256(path) == kernel.binary_sha256


def _place() -> Path:
    """Return the directory of the kernel that is built from the present source, patches and configuration."""
    cache_home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    parts = (PACKAGE_SHA256, *_identity())
    return cache_home / "testbed" / "exact" / hashlib.sha256(" ".join(parts).encode()).hexdigest()[:16]


@cache
def _identity() -> tuple[str, str]:
    """Return the digests of the patches and of the configuration."""
    patches = b"".join((_HERE / name).read_bytes() for name in _PATCHES)
    return hashlib.sha256(patches).hexdigest(), _sha256(_HERE / "kernel.config")


def _require_tools(folder: Path) -> None:
    missing = [tool for tool in _TOOLS if shutil.which(tool) is None]
    if missing:
        raise CapabilityError(f"building the kernel needs {', '.join(missing)}; cure: {APT_LINE}")
    free = shutil.disk_usage(folder).free
    if free < _FREE_BYTES:
        raise CapabilityError(
            f"{folder}: {free / 1e9:.1f} GB are free, building the kernel takes {_FREE_BYTES / 1e9:.1f} GB for a while;"
            " make room, or set XDG_CACHE_HOME to another file system"
        )


def _package(given: Path | None, work: Path, say: Callable[[str], None]) -> Path:
    """Return the package with the source, by default by download. Raise ``CapabilityError`` if its digest is wrong."""
    if given is not None:
        _verify(given)
        return given
    path = work / "source.deb"
    problems = []
    for mirror in MIRRORS:
        say(f"downloading {mirror}{PACKAGE} (167 MB)")
        try:
            with urllib.request.urlopen(mirror + PACKAGE, timeout=60) as answer, path.open("wb") as file:
                shutil.copyfileobj(answer, file)
            _verify(path)
            return path
        except (OSError, CapabilityError) as error:
            problems.append(f"{mirror}: {error}")
    cure = f"download {PACKAGE} elsewhere and give it: testbed exact build --source FILE"
    raise CapabilityError("\n  ".join(["the kernel's source could not be downloaded:", *problems, f"cure: {cure}"]))


def _verify(package: Path) -> None:
    try:
        found = _sha256(package)
    except OSError as error:
        raise CapabilityError(f"{package}: {error.strerror}; give the file {PACKAGE}") from error
    if found != PACKAGE_SHA256:
        raise CapabilityError(f"{package}: SHA-256 is {found}, that of {PACKAGE} is {PACKAGE_SHA256}")


def _build_in(work: Path, place: Path, package: Path, jobs: int, say: Callable[[str], None]) -> Kernel:
    log = work.with_suffix(".log")
    log.unlink(missing_ok=True)

    def run(*command: str, where: Path = work) -> None:
        _run(command, where, log)

    say("unpacking the source")
    run("dpkg-deb", "-x", str(package), "package")
    (archive,) = (work / "package/usr/src").glob("linux-source-*.tar.xz")
    run("tar", "-xf", str(archive))
    (tree,) = (path for path in work.glob("linux-source-*") if path.is_dir())
    for name in _PATCHES:
        run("patch", "-p1", "-i", str(_HERE / name), where=tree)
    make = ("make", "ARCH=um", f"-j{jobs}", *(f"{name}={value}" for name, value in _ANONYMOUS.items()))
    say(f"building Linux {VERSION} for user mode with {jobs} processes")
    run(*make, f"KCONFIG_ALLCONFIG={_HERE / 'kernel.config'}", "alldefconfig", where=tree)
    run(*make, "linux", where=tree)
    place.mkdir(exist_ok=True)
    shutil.copy2(tree / "linux", place / "linux")
    log.replace(place / "build.log")
    patches, configuration = _identity()
    binary = place / "linux"
    kernel = Kernel(str(binary), VERSION, PACKAGE_SHA256, patches, configuration, _sha256(binary))
    (place / "kernel.json").write_bytes(msgspec.json.encode(kernel))
    say(f"ready: {binary}")
    return kernel


def _run(command: tuple[str, ...], where: Path, log: Path) -> None:
    environment = {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C"}
    with log.open("ab") as output:
        # an interrupt also ends the processes that make has started, as the folder is removed then
        code = run_to_its_end(command, cwd=where, stdout=output, stderr=output, env=environment)
    if code:
        lines = log.read_text(errors="replace").splitlines()
        wrong = [line for line in lines if "error" in line.lower()] or lines
        raise CapabilityError(
            f"`{' '.join(command[:3])} …` failed with {code}: {wrong[-1] if wrong else ''} (see {log})"
        )


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
