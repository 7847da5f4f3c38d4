"""`vtrain-search laws`: what each law says about itself."""

from __future__ import annotations

import json
from typing import Any

import click

from .base import LossLaw
from .registry import DEFAULT_LAW, law_names, load_law
from .rules import AllocationRule, load_rule, rule_names


@click.command("laws")
@click.option(
    "--compute",
    type=click.FloatRange(min=0.0, min_open=True),
    help="Also show each allocation rule's size and tokens at this many FLOP.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def laws_command(compute: float | None, as_json: bool) -> None:
    """List loss laws and allocation rules with formula, convention, range and source."""
    laws = [law_record(load_law(name)) for name in law_names()]
    rules = [rule_record(load_rule(name), compute) for name in rule_names()]
    if as_json:
        click.echo(json.dumps({"schema_version": 1, "loss_laws": laws, "rules": rules}, indent=2))
        return
    blocks = ["Loss laws: L(N, D), chosen with --law NAME or --law FILE"]
    blocks += [_block(record) for record in laws]
    blocks += ["Allocation rules: N and D from compute, for comparison only"]
    blocks += [_block(record) for record in rules]
    click.echo("\n\n".join(blocks))


def law_record(law: LossLaw) -> dict[str, Any]:
    """Return a loss law's facts as plain values."""
    facts = law.facts
    return {
        "name": law.name,
        "default": law.name == DEFAULT_LAW,
        "formula": facts.formula,
        "coefficients": dict(facts.coefficients),
        "n_convention": law.n_convention,
        "vocab_size": facts.vocab_size,
        "unit": facts.unit,
        "data_set": facts.data_set,
        "parameters_range": list(facts.parameters_range),
        "tokens_range": list(facts.tokens_range),
        "compute_max_flop": facts.compute_max_flop,
        "terms_contained": sorted(facts.contains),
        "scatter": law.draws().provenance,
        "citation": facts.citation,
        "verification": facts.verification,
        "caveat": facts.caveat,
    }


def rule_record(rule: AllocationRule, compute_flop: float | None = None) -> dict[str, Any]:
    """Return an allocation rule's facts, and N and D at a compute if one is given."""
    record: dict[str, Any] = {
        "name": rule.name,
        "formula": rule.formula,
        "coefficients": dict(rule.coefficients),
        "n_convention": rule.n_convention,
        "vocab_size": rule.vocab_size,
        "data_set": rule.data_set,
        "compute_range_flop": list(rule.compute_range_flop),
        "citation": rule.citation,
        "verification": rule.verification,
        "caveat": rule.caveat,
    }
    if compute_flop is not None:
        parameters, tokens = rule.allocate(compute_flop)
        record |= {
            "compute_flop": compute_flop,
            "parameters": float(parameters),
            "tokens": float(tokens),
        }
    return record


def _block(record: dict[str, Any]) -> str:
    """Return a record as a name and indented lines; empty values are left out."""
    mark = "  (default)" if record.get("default") else ""
    lines = [f"{record['name']}{mark}"]
    for key, value in record.items():
        if key in {"name", "default"} or value in ("", [], {}):
            continue
        lines.append(f"  {key.replace('_', ' '):<20} {_words(value)}")
    return "\n".join(lines)


def _words(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_words(number)}" for name, number in value.items())
    if isinstance(value, list):
        separator = " to " if all(isinstance(v, float) for v in value) else ", "
        return separator.join(_words(v) for v in value)
    return f"{value:.6g}" if isinstance(value, float) else str(value)
