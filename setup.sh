#!/usr/bin/env bash
# Install everything on a fresh Debian 12 or Ubuntu 24.04 machine, and create .venv/bin/testbed. Idempotent, and quick if
# everything is installed. Without root (or sudo) everything but emulation is set up. With --tests, also get Triton, in
# whose interpreter the tests run the kernels of GPUs (250 MB), and Playwright, which drives a browser that is installed
# (53 MB). With --exact, also build the kernel of exact runs (once per user, about 10 minutes of processor time).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

exact=
tests=
for option in "$@"; do
  case "$option" in
    --exact) exact=yes ;;
    --tests) tests=" with tests" ;;
    *) printf 'usage: ./setup.sh [--tests] [--exact]\n' >&2; exit 2 ;;
  esac
done

say() { printf 'setup: %s\n' "$*"; }
fail() { printf 'setup: %s\n' "$*" >&2; exit 1; }

# --- system packages: Mininet and the tools that shape and measure links -------------------------------------------
declare -A provides=(
  [mnexec]=mininet [ip]=iproute2 [tc]=iproute2 [iperf3]=iperf3
  [nft]=nftables [iptables]=iptables [ping]=iputils-ping [unshare]=util-linux [git]=git
  [tcpdump]=tcpdump
)
have() { command -v "$1" >/dev/null 2>&1 || [ -x "/usr/sbin/$1" ] || [ -x "/sbin/$1" ]; }

if [ -n "$exact" ]; then
  provides+=([gcc]=build-essential [make]=build-essential [flex]=flex [bison]=bison [bc]=bc [patch]=patch [xz]=xz-utils)
fi
missing=()
for tool in "${!provides[@]}"; do have "$tool" || missing+=("${provides[$tool]}"); done
have python3 || missing+=(python3)
python3 -c 'import ensurepip' 2>/dev/null || missing+=(python3-venv)

if [ "${#missing[@]}" -gt 0 ]; then
  mapfile -t missing < <(printf '%s\n' "${missing[@]}" | sort -u)
  as_root=()
  if [ "$(id -u)" -ne 0 ]; then as_root=(sudo -n); fi
  if command -v apt-get >/dev/null 2>&1 && "${as_root[@]}" true 2>/dev/null; then
    say "installing ${missing[*]}"
    export DEBIAN_FRONTEND=noninteractive
    "${as_root[@]}" apt-get update -qq
    "${as_root[@]}" apt-get install -qq -y --no-install-recommends "${missing[@]}" >/dev/null
  else
    say "no root (or no apt): not installed: ${missing[*]}. Simulation and local runs work; for emulation run:"
    say "  sudo apt-get install --no-install-recommends ${missing[*]}"
  fi
fi

# --- Python environment ---------------------------------------------------------------------------------------------
python=""
for candidate in python3 python3.13 python3.12 python3.11; do
  if "$candidate" -c 'import sys, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
    python=$candidate
    break
  fi
done
[ -n "$python" ] || fail "Python 3.11 or newer with venv is needed (apt-get install python3 python3-venv)"

stamp=.venv/.ready
wanted="$(cat setup.sh pyproject.toml constraints.txt | sha256sum | cut -d' ' -f1)$tests"
if [[ "$(cat "$stamp" 2>/dev/null)" = "$wanted"* ]] && .venv/bin/testbed --version >/dev/null 2>&1; then
  .venv/bin/python -m testbed.simulation.precompile
  say "ready (.venv/bin/testbed)"
  if [ -n "$exact" ]; then .venv/bin/testbed exact build; fi
  exit 0
fi

[ -x .venv/bin/python ] || { say "making .venv with $("$python" --version)"; "$python" -m venv .venv; }
pip() { .venv/bin/python -m pip --disable-pip-version-check -q "$@" 2> >(grep -v '^WARNING: Location' >&2); }
# pip compiles on one core, after everything is there: half of its time. Some packages have templates that are no Python.
packages=$(.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
compile() { .venv/bin/python -m compileall -qq -j "$@" >/dev/null 2>&1 || true; }

# PyTorch and all others are unpacked side by side, on a core each; constraints.txt has all that they need. Without an
# NVIDIA GPU the CPU build of PyTorch saves gigabytes. It comes from pip's configured folder of wheels (find-links) if
# there is one, else from PyTorch's index or TORCH_INDEX_URL.
torch=$(grep '^torch==' constraints.txt)
same='import sys, torch; sys.exit(torch.__version__.split("+")[0] != sys.argv[1])'
if ! .venv/bin/python -c "$same" "${torch#torch==}" 2>/dev/null; then
  index=()
  if ! have nvidia-smi && [[ "$(.venv/bin/python -m pip config list 2>/dev/null)" != *find-links* ]]; then
    torch+=+cpu
    index=(--extra-index-url "${TORCH_INDEX_URL:-https://download.pytorch.org/whl/cpu}")
  fi
  say "installing $torch (the largest part)"
  {
    pip install --no-compile --no-deps "${index[@]}" "$torch" || {
      say "no CPU build of PyTorch could be downloaded; taking the default one, with 5 GB of CUDA"
      pip install --no-compile --no-deps "${torch%+cpu}"
    }
    compile 1 "$packages/torch"
  } &
fi
say "installing the testbed and its Python packages"
# setuptools builds the testbed, so that no environment is made for that; what cannot be had is told by the last step
pip install --no-compile --no-deps 'setuptools>=77' -r <(grep -vE '^(torch|triton|playwright)==' constraints.txt) || true
# On the core that has nothing more to unpack, numba compiles what simulations load
.venv/bin/python -m testbed.simulation.precompile || say "numba did not compile the simulator; long runs will try again"
wait
pip install --no-compile --no-build-isolation -c constraints.txt -e '.[mpi,dev]'
# In a folder of its own: where it is installed, PyTorch imports it, which costs each process a second
[ -z "$tests" ] || pip install --no-compile --no-deps --upgrade --target .venv/triton "$(grep '^triton==' constraints.txt)"
[ -z "$tests" ] || pip install --no-compile --no-deps "$(grep '^playwright==' constraints.txt)"
compile 0 "$packages" testbed emulation topologies analysis scenarios

.venv/bin/testbed --version >/dev/null || fail "the testbed command does not start"
printf '%s' "$wanted" > "$stamp"
say "ready (.venv/bin/testbed). What this machine supports: .venv/bin/testbed doctor"
if [ -n "$exact" ]; then .venv/bin/testbed exact build; fi
