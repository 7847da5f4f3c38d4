"""`--design`: a setting and plan from a file, for commands that also take them as options."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import click

from vtrain.cli_options import build_plan, load_setting

if TYPE_CHECKING:
    from collections.abc import Callable

    from vtrain.cli_options import Setting
    from vtrain.plan import Plan

    F = TypeVar("F", bound=Callable[..., Any])

_SETTING = ("model", "cluster", "stack", "seq_length", "site", "memory_limit")
_BESIDE = ("site", "memory_limit")


def design_option(function: F) -> F:
    """Add --design."""
    return click.option(
        "--design",
        "design_file",
        metavar="FILE",
        help="A best.toml, or a row (or document) of `vtrain-search --json`; - reads stdin.",
    )(function)


def read_request(
    ctx: click.Context, design_file: str | None, options: dict[str, Any]
) -> tuple[Setting, Plan]:
    """Return setting and plan from a design file or from the options.

    Args:
        ctx: of the command, which knows the options that were given.
        design_file: the file, None without.
        options: those of `setting_options` and `plan_options`, --memory-limit where there is one.

    Raises:
        UserInputError: unreadable values, options beside a design that settles them, or a plan
            that its framework refuses.
    """
    if design_file is None:
        named = {key: options[key] for key in _SETTING if key in options}
        rest = {key: value for key, value in options.items() if key not in named}
        setting = load_setting(**named)
        return setting, build_plan(setting, **rest)
    _refuse_beside_design(ctx, options)
    from vtrain.cli_options import Setting, read_site
    from vtrain.design import Design
    from vtrain.design_file import read_design_row
    from vtrain.memory_limit import parse_memory_limit
    from vtrain.presets import load_cluster, load_stack
    from vtrain.validity import Context, check_plan

    row = read_design_row(design_file)
    design = Design.from_row(row)
    setting = Setting(
        architecture=design.architecture,
        cluster=load_cluster(design.cluster),
        stack=load_stack(design.stack),
        site=read_site(options["site"]),
        seq_length=design.seq_length,
        memory_limit_share=parse_memory_limit(
            options.get("memory_limit") or row.get("mem_limit_share")
        ),
    )
    context = Context(
        architecture=setting.architecture, cluster=setting.cluster, stack=setting.stack,
        seq_length=setting.seq_length,
    )  # fmt: skip
    check_plan(context, design.plan)
    return setting, design.plan


def _refuse_beside_design(ctx: click.Context, options: dict[str, Any]) -> None:
    """Refuse options that a design file settles.

    Raises:
        UserInputError: naming them.
    """
    from click.core import ParameterSource

    from vtrain.errors import UserInputError

    stated = [
        name
        for name in options
        if name not in _BESIDE and ctx.get_parameter_source(name) is not ParameterSource.DEFAULT
    ]
    if stated:
        raise UserInputError(
            f"--design settles {', '.join(stated)}", hint="drop them, or drop --design"
        )
