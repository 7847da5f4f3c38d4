"""Assumptions with their sources, and the command that reproduces a report."""

from __future__ import annotations

import shlex
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from vtrain.errors import UserInputError
from vtrain_search.html_report.content import Section, Table
from vtrain_search.report.table import assumption_words

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from vtrain_search.build import Request
    from vtrain_search.case_search import Settings
    from vtrain_search.problem import Problem

_CHANGED_WITH = {
    "sequence": "--seq-length",
    "vocabulary": "--vocab-size",
    "block": "--fix, --range, --arch",
    "precision": "--stack",
    "stack": "--stack",
    "deadline_days": "--deadline",
    "memory_limit": "--memory-limit",
    "sanity": "fixed",
    "law": "--law",
    "loss_terms": "--law",
    "unique_tokens": "--unique-tokens",
    "interval": "fixed",
    "mfu_convention": "vtrain mfu shows the others",
}
_FLAGS = {
    "budgets": "--budget", "clusters": "--cluster", "prices": "--price", "fixed": "--fix",
    "ranged": "--range", "deadline": "--deadline", "max_gpus": "--max-gpus", "stack": "--stack",
    "law": "--law", "unique_tokens": "--unique-tokens", "seq_length": "--seq-length",
    "vocab_size": "--vocab-size", "arch": "--arch", "site": "--site",
    "target_losses": "--target-loss", "objective": "--objective",
    "tokens_per_parameter_min": "--tokens-per-parameter-min", "memory_limit": "--memory-limit",
}  # fmt: skip
_SETTINGS = {"sampler": "--sampler", "space": "--space", "max_trials": "--trials"}
_NO_SOURCES = ("ours",)


def command_line(
    request: Request, settings: Settings, *, why_not: Sequence[str] = (), focus: str = ""
) -> str:
    """Return the shortest `vtrain-search` command that asks the same question.

    Args:
        request: the question in words.
        settings: sampler, seed, number of trials.
        why_not: alternatives that were explained.
        focus: budget whose design is shown, where it is not the last.
    """
    words = ["vtrain-search"]
    for item in fields(request):
        value = getattr(request, item.name)
        flag = _FLAGS.get(item.name)
        if flag is None or value == item.default:
            continue
        for one in value if isinstance(value, tuple) else (value,):
            words += [flag, str(one)]
    for item in fields(settings):
        value = getattr(settings, item.name)
        if item.name in _SETTINGS and value != item.default:
            words += [_SETTINGS[item.name], str(value)]
    words += [word for text in why_not for word in ("--why-not", text)]
    words += ["--focus", focus] if focus else []
    return shlex.join([*words, "--seed", str(settings.seed)])


def assumption_section(problem: Problem, assumed: Mapping[str, Any]) -> Section:
    """Return what the answer takes for granted, where it comes from, and how to change it."""
    law = problem.loss.law
    rows = []
    for name, c in assumed["clusters"].items():
        listed = c.get("hyperscaler_price_usd_per_gpu_hour")
        beside = f"; hyperscaler list ${listed:.2f}" if listed else ""
        size = f"{c['gpus_per_node']} GPUs a node, at most {c['max_gpus']:,}"
        rows.append(("cluster", f"{name}: {size}", "--cluster, --max-gpus"))
        price = f"${c['price_usd_per_gpu_hour']:.2f} a GPU-hour"
        source = c["price_source"].removeprefix(price).strip()
        rows.append(("price", f"{price} {source}{beside}", "--price"))
    for key, value in assumed.items():
        if key == "clusters":
            continue
        rows.append(
            (key.replace("_", " "), assumption_words(key, value), _CHANGED_WITH.get(key, ""))
        )
    facts = law.facts
    law_rows = [
        ("formula", facts.formula), ("N counts", law.n_convention), ("source", law.citation),
    ]  # fmt: skip
    if facts.caveat:
        law_rows.append(("caveat", facts.caveat))
    terms = sorted(problem.loss.active_terms.items())
    law_rows += [(f"term: {name}", _first_line(term)) for name, term in terms]
    tables = [
        Table(heads=("assumed", "value", "changed with"), rows=tuple(rows),
              left=("assumed", "value", "changed with")),
        Table(title=f"loss law {law.name}", heads=("", "what"), rows=tuple(law_rows),
              left=("", "what")),
    ]  # fmt: skip
    sourced = _stack_sources(problem)
    if sourced:
        tables.append(
            Table(title=f"sources of the software model {problem.stack.name}",
                  heads=("value", "source"), rows=tuple(sourced), left=("value", "source"),
                  html_only=True)
        )  # fmt: skip
    for name, found in _hardware_sources(problem).items():
        tables.append(
            Table(title=f"sources of the hardware model {name}", heads=("value", "source", "date"),
                  rows=tuple(found), left=("value", "source", "date"), html_only=True)
        )  # fmt: skip
    return Section(key="assumptions", title="Assumptions and sources", tables=tuple(tables))


def _first_line(term: object) -> str:
    return (type(term).__doc__ or "").strip().split("\n\n")[0].replace("\n", " ")


def _stack_sources(problem: Problem) -> list[tuple[str, str]]:
    return [(str(key), str(text)) for key, text in problem.stack.sources.items()]


def _hardware_sources(problem: Problem) -> dict[str, list[tuple[str, str, str]]]:
    """Return the sources of every shipped cluster and its device; a user's own file has none."""
    from vtrain.presets import cluster_table, device_table

    found: dict[str, list[tuple[str, str, str]]] = {}
    clusters = {o.cluster.name: o.cluster for case in problem.cases for o in case.offers}
    for name, cluster in clusters.items():
        rows = []
        for table_of, key in ((cluster_table, name), (device_table, cluster.device.name)):
            try:
                sources = table_of(key).get("sources", {})
            except UserInputError:
                continue
            rows += [
                (value, str(entry["source"]), str(entry.get("date", "")))
                for value, entry in sources.items()
                if entry["source"] not in _NO_SOURCES
            ]
        if rows:
            found[name] = rows
    return found
