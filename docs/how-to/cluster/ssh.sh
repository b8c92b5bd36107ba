#!/usr/bin/env bash
# Run a testbed command on machines that ssh reaches, and end the cluster with it.
#
#   ./ssh.sh HOST… -- testbed sweep my.yaml --seeds 20
#
# This machine works, too. testbed[cluster] is installed in the same place on all machines. At the end `ray stop` ends
# every Ray process of this user on them. PORT: of the cluster, 6379 by default. EMULATE=0: no emulated runs.
set -euo pipefail

hosts=()
while [[ $# -gt 0 && $1 != -- ]]; do
    hosts+=("$1")
    shift
done
[[ $# -gt 1 ]] || { echo "usage: $0 HOST… -- COMMAND…" >&2; exit 2; }
shift

here=$(hostname -I | cut -d ' ' -f 1)
address=$here:${PORT:-6379}
ray=$(command -v ray)
start=(env RAY_worker_niceness=0 "$ray" start --disable-usage-stats "--resources={\"emulate\":${EMULATE:-1}}")
started=()

finish() {
    for host in ${started[@]+"${started[@]}"}; do
        ssh "$host" "$ray" stop --force || echo "$host: Ray may still run there" >&2
    done
    "$ray" stop --force
}
trap finish EXIT

"${start[@]}" --head --node-ip-address="$here" --port="${address##*:}" --include-dashboard=false
for host in ${hosts[@]+"${hosts[@]}"}; do # one after the other: many that join at once may time out
    started+=("$host")
    ssh "$host" "${start[*]@Q}" --address="$address"
done
"$@" --cluster "$address"
