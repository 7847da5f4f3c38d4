"""A Slurm batch script around the Megatron-LM launch of a design."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vtrain.formats.megatron.write import argument_arrays, command, environment

if TYPE_CHECKING:
    from vtrain.formats.context import Job


def slurm_script(job: Job, *, name: str = "vtrain") -> str:
    """Return an sbatch script: one torchrun a node, rendezvous on the first.

    Args:
        job: what runs.
        name: name of the job in the queue.

    Raises:
        UserInputError: when Megatron-LM has no argument for a feature of the design.
    """
    whole = job.gpus_per_node == job.cluster.gpus_per_node
    lines = [
        "#!/bin/bash",
        f"#SBATCH --job-name={name}",
        f"#SBATCH --nodes={job.nodes}",
        "#SBATCH --ntasks-per-node=1",
        f"#SBATCH --gpus-per-node={job.gpus_per_node}",
        *(["#SBATCH --exclusive"] if whole else []),
        "# --time, --partition and --account are your site's.",
        f"# Megatron-LM launch, written by vtrain: {job.summary}",
        "set -euo pipefail",
        "",
        *environment(job),
        'MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)',
        "MASTER_PORT=${MASTER_PORT:-6000}",
        "",
        "DISTRIBUTED_ARGS=(",
        f"    --nproc-per-node {job.gpus_per_node}",
        f"    --nnodes {job.nodes}",
        "    --rdzv-backend c10d",
        '    --rdzv-id "$SLURM_JOB_ID"',
        '    --rdzv-endpoint "$MASTER_ADDR:$MASTER_PORT"',
        ")",
        "",
        *argument_arrays(job),
        *command(job, 'srun torchrun "${DISTRIBUTED_ARGS[@]}"'),
    ]
    return "\n".join(lines) + "\n"
