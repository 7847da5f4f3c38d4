"""`vtrain simulate`: one plan, its step time and memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import rich_click as click

from vtrain.cli_options import memory_limit_option, plan_options, setting_options
from vtrain.design_option import design_option, read_request

if TYPE_CHECKING:
    from vtrain.cli_options import Setting
    from vtrain.plan import Plan


@click.command("simulate")
@setting_options
@memory_limit_option
@plan_options
@design_option
@click.option("--explain", is_flag=True, help="Say where time and memory go.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@click.pass_context
def simulate_command(
    ctx: click.Context,
    /,
    design_file: str | None,
    explain: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Predict step time, utilisation and memory of one plan."""
    import json

    from vtrain.errors import InfeasibleError
    from vtrain.memory import VERDICTS
    from vtrain.units import GIB

    setting, plan = read_request(ctx, design_file, options)
    document = simulation_document(setting, plan)
    if as_json:
        click.echo(json.dumps(document, indent=2))
    else:
        click.echo(_text(document))
        if explain:
            from vtrain.explain import explain_plan

            click.echo(explain_plan(setting, plan))
    if document["verdict"] == VERDICTS[-1]:
        raise InfeasibleError(
            f"the plan needs {document['mem_peak_bytes'] / GIB:.1f} GiB of "
            f"{document['mem_limit_bytes'] / GIB:.1f} GiB on the heaviest rank",
            hint=None if explain else "--explain names the nearest changes that fit",
        )


def simulation_document(setting: Setting, plan: Plan) -> dict[str, Any]:
    """Return what `--json` prints for one plan."""
    from dataclasses import asdict

    from vtrain.estimate import estimate
    from vtrain.memory import reliable_limit_share, verdict
    from vtrain.plan import PlanTable

    result = estimate(
        setting.architecture, setting.cluster, setting.stack, PlanTable.from_plans([plan]),
        seq_length=setting.seq_length, site=setting.site,
        memory_limit_share=setting.memory_limit_share,
    )  # fmt: skip
    device_bytes = setting.cluster.device.memory_bytes
    fit = verdict(
        float(result.mem_peak_bytes[0]), device_bytes, setting.stack,
        limit_share=setting.memory_limit_share,
    )  # fmt: skip
    arch = setting.architecture
    low_s, high_s = result.step_time_interval_s
    return {
        "schema_version": 1,
        "model": arch.name or None,
        "parameters": arch.parameters,
        "cluster": setting.cluster.name,
        "stack": setting.stack.name,
        "seq_length": setting.seq_length,
        "gpus": plan.gpus,
        **asdict(plan),
        "num_micro_batches": plan.num_micro_batches,
        "step_time_s": float(result.step_time_s[0]),
        "step_time_low_s": float(low_s[0]),
        "step_time_high_s": float(high_s[0]),
        "time_unreliable": bool(result.time_unreliable[0]),
        "tokens_per_s": float(result.tokens_per_s[0]),
        "tokens_per_s_per_gpu": float(result.tokens_per_s[0]) / plan.gpus,
        "mfu": float(result.mfu[0]),
        "mem_peak_bytes": float(result.mem_peak_bytes[0]),
        "mem_limit_bytes": float(result.mem_limit_bytes),
        "mem_limit_share": setting.memory_limit_share,
        "mem_reliable_share": reliable_limit_share(device_bytes, setting.stack),
        "verdict": fit.verdict,
        "fit_probability": fit.probability,
        "fragmentation_risk": fit.fragmentation_risk,
        "breakdown_s": {
            "pipeline": float(result.pipeline_s[0]),
            "bubble_in_pipeline": float(result.bubble_s[0]),
            "data_parallel_exposed": float(result.data_parallel_s[0]),
            "optimizer": float(result.optimizer_s[0]),
            "host": float(result.host_s),
        },
    }


def _text(document: dict[str, Any]) -> str:
    """Return the human reading of a simulation document."""
    gib = 2.0**30
    parts = document["breakdown_s"]
    lines = [
        f"{document['model'] or 'model'}  {document['parameters'] / 1e9:.2f}B parameters on "
        f"{document['gpus']} GPUs of {document['cluster']} ({document['stack']}), sequences of "
        f"{document['seq_length']:,}",
        f"plan       tp {document['tp']}  cp {document['cp']}  pp {document['pp']}  "
        f"dp {document['dp']}  virtual stages {document['virtual_stages']}  "
        f"micro-batch {document['micro_batch_size']} x {document['num_micro_batches']}  "
        f"recompute {document['recompute']}  {document['sharding']}",
        f"step       {document['step_time_s']:.4g} s (90 %: {document['step_time_low_s']:.4g} to "
        f"{document['step_time_high_s']:.4g})   MFU {100 * document['mfu']:.1f} %   "
        f"{document['tokens_per_s_per_gpu']:.0f} tokens/s/GPU",
        f"of it      (closed form, busiest pipeline rank) bubble {parts['bubble_in_pipeline']:.3g} "
        f"s, exposed data-parallel {parts['data_parallel_exposed']:.3g} s, optimizer "
        f"{parts['optimizer']:.3g} s",
        f"memory     {document['mem_peak_bytes'] / gib:.1f} GiB allocated on the heaviest rank; "
        f"limit {document['mem_limit_bytes'] / gib:.1f} GiB: {document['verdict']} "
        f"(P = {document['fit_probability']:.2f})",
    ]
    if document["time_unreliable"] and document["verdict"] != "does not fit":
        lines.append(
            "warning    memory is so full that the allocator may stall: measured runs of this kind "
            "were up to 8 times slower than predicted\n           "
            f"with `vtrain plans --memory-limit {document['mem_reliable_share']:g}` what fits "
            "keeps clear of it"
        )
    return "\n".join(lines)
