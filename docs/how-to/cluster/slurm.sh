#!/usr/bin/env bash
#SBATCH --job-name=testbed
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=16
#SBATCH --time=04:00:00
#
# Run a testbed command on the nodes of a Slurm job:  sbatch slurm.sh testbed sweep my.yaml --seeds 20
#
# testbed[cluster] is installed where all nodes find it. When the time is over, submit the same job again: finished runs
# are kept. Compute nodes rarely permit emulation: add --resources='{"emulate": 1}' before the two dashes where they do.
set -euo pipefail

export RAY_worker_niceness=0 RAY_SYMMETRIC_RUN_CLUSTER_WAIT_TIMEOUT=300
head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
address=$(getent ahostsv4 "$head" | awk 'NR == 1 { print $1 }'):6379

srun --nodes="$SLURM_JOB_NUM_NODES" --ntasks="$SLURM_JOB_NUM_NODES" \
    ray symmetric-run --address "$address" --min-nodes "$SLURM_JOB_NUM_NODES" \
    --num-cpus "$SLURM_CPUS_PER_TASK" --disable-usage-stats -- \
    "$@" --cluster "$address"
