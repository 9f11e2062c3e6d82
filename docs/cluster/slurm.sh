#!/bin/bash
# Pong on 4 workers, one on each node: sbatch docs/cluster/slurm.sh
# The run folder must be on a file system that all nodes share: after a requeue the chief may be on another one.
#SBATCH --job-name=pong
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=4
#SBATCH --mem=4G
#SBATCH --time=04:00:00
# Five minutes before the end, SIGTERM to all workers: they stop after the same update, and the chief saves.
#SBATCH --signal=TERM@300
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=pong-%j.log

# If one worker dies, the others end by themselves within a minute; if all are stopped, the chief may be the last, since
# it saves: so no task is killed at the first bad exit code, but only 10 minutes after the first end.
# env.num_envs is per worker: 4 x 8 environments make a batch four times that of the preset pong.
srun --kill-on-bad-exit=0 --wait=600 --cpus-per-task="$SLURM_CPUS_PER_TASK" \
  a2c train --env Pong --strategy multiworker --auto-resume --run-dir runs/pong \
  --set env.num_envs=8 --set env.threads="$SLURM_CPUS_PER_TASK"
code=$?

# 0: done. 2: a mistake in the command, or numbers that are not finite; another start does not mend it. All other codes:
# stopped before the end of the time, or a worker has died; resume from the last checkpoint.
if ((code != 0 && code != 2 && ${SLURM_RESTART_COUNT:-0} < 50)); then
  scontrol requeue "$SLURM_JOB_ID"
fi
exit "$code"
