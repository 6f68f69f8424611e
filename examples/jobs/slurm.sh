#!/usr/bin/env bash
#SBATCH --job-name=train
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=8
#SBATCH --mem=32G
#SBATCH --time=24:00:00
#SBATCH --requeue
#SBATCH --open-mode=append
#
# Two nodes of a Slurm cluster train examples/train_fsdp.py, one torchrun on each; see docs/RECIPES.md.
#     RUN=gs://BUCKET/fsdp sbatch examples/jobs/slurm.sh
# A job that Slurm takes off its nodes, or that fails, is queued again, and resumes from the last complete checkpoint.
set -euo pipefail

: "${RUN:?names where data and checkpoints are: RUN=gs://BUCKET/PREFIX}"
restarts_max=20

# What works, but worse than it should, is in the job's output.
export RINGEST_LOG=warn
# Of each process. Without it a quarter of the node's memory, 1 GiB at most, whatever --mem says.
export RINGEST_MEMORY=512MiB

nodes=$(scontrol show hostnames "$SLURM_JOB_NODELIST")
export RUN STEPS=${STEPS-1000} MASTER_ADDR=${nodes%%$'\n'*}
# Jobs that share a node need ports of their own.
export MASTER_PORT=$((20000 + SLURM_JOB_ID % 10000))

# Each task puts in its own SLURM_NODEID.
# shellcheck disable=SC2016
srun --kill-on-bad-exit=1 bash -c '
    exec torchrun --nnodes "$SLURM_NNODES" --node-rank "$SLURM_NODEID" --nproc-per-node 2 \
        --master-addr "$MASTER_ADDR" --master-port "$MASTER_PORT" \
        examples/train_fsdp.py "$RUN" --steps "$STEPS"' && exit

if [ "${SLURM_RESTART_COUNT-0}" -lt "$restarts_max" ]; then
    scontrol requeue "$SLURM_JOB_ID"
fi
exit 1
