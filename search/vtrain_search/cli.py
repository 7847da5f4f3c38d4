"""The `vtrain-search` command: light to start; searches when no sub-command is named."""

from __future__ import annotations

import importlib
import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import rich_click as click
from click.core import ParameterSource

from vtrain import __version__
from vtrain.cli import run

if TYPE_CHECKING:
    from typing import NoReturn

# Sub-command name -> module, attribute and one line of help; imported when asked for, so that
# `--help` loads none of them.
COMMANDS = {
    "verify": (
        "vtrain_search.verify.cli", "verify_command",
        "Enumerate a whole grid and print how far the search's answer is from its best.",
    ),
    "fit-law": (
        "vtrain_search.fit_law.cli", "fit_law_command", "Fit a loss law to your own losses.",
    ),
    "laws": ("vtrain_search.laws.cli", "laws_command", "List the loss laws and their sources."),
}  # fmt: skip


class _LateCommand(click.RichCommand):
    """A name and a line of help; becomes the real command when it is run."""

    def __init__(self, name: str, module: str, attribute: str, text: str) -> None:
        super().__init__(name=name, help=text)
        self._module = module
        self._attribute = attribute

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None,
        **extra: Any,
    ) -> Any:  # fmt: skip
        real: click.Command = getattr(importlib.import_module(self._module), self._attribute)
        return real.make_context(info_name, args, parent, **extra)


class SearchGroup(click.RichGroup):
    """A group that imports its sub-commands late."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a light stand-in for one command."""
        if cmd_name not in COMMANDS:
            return None
        return _LateCommand(cmd_name, *COMMANDS[cmd_name])


@click.group(
    cls=SearchGroup,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, prog_name="vtrain-search")
@click.option("--budget", "budgets", multiple=True, metavar="BUDGET",
              help="What may be spent: 1e6usd, '$250k', 2Mgpuh, 512xH100x30d, 1e24flop, a range "
              "1e4usd..1e7usd:13, or a budget file. Repeatable.")  # fmt: skip
@click.option(
    "--target-loss",
    "target_losses",
    type=float,
    multiple=True,
    metavar="NATS",
    help="Reach this loss instead, within the budget if one is given. Repeatable.",
)
@click.option(
    "--objective",
    type=click.Choice(["cost", "time"]),
    help="With --target-loss: the cheapest or the fastest way. [default: cost]",
)
@click.option("--cluster", "clusters", multiple=True, metavar="NAME|FILE",
              help="Cluster; several are compared. [default: h100-sxm-80g]")  # fmt: skip
@click.option(
    "--price",
    "prices",
    multiple=True,
    metavar="USD",
    help="Price of a GPU-hour, one a cluster or NAME=USD. [default: dated price list]",
)
@click.option("--deadline", metavar="TIME", default="", help="Wall time at most. [default: 30d]")
@click.option("--max-gpus", type=click.IntRange(min=1), metavar="N", help="GPUs at most.")
@click.option("--seq-length", type=click.IntRange(min=1), metavar="N",
              help="Tokens of a sequence. [default: 4096]")  # fmt: skip
@click.option("--vocab-size", type=click.IntRange(min=1), default=128_256, show_default=True,
              metavar="N", help="Vocabulary before padding.")  # fmt: skip
@click.option("--unique-tokens", default="", metavar="N", help="Distinct training tokens.")
@click.option("--tokens-per-parameter-min", type=float, metavar="RATIO",
              help="Over-train: at least so many tokens a parameter. [default: 1]")  # fmt: skip
@click.option("--arch", default="", metavar="NAME|FILE",
              help="A fixed model (name, config.json): search only how to train it.")  # fmt: skip
@click.option("--fix", "fixed", multiple=True, metavar="KEY=VALUE",
              help="Pin a dimension, e.g. tp=8, layers=64, tokens=2e12. Repeatable.")  # fmt: skip
@click.option("--range", "ranged", multiple=True, metavar="KEY=A..B",
              help="Limit a dimension, e.g. hidden_size=4096..8192. Repeatable.")  # fmt: skip
@click.option("--stack", default="megatron-core-2025", show_default=True, metavar="NAME|FILE",
              help="Training software.")  # fmt: skip
@click.option("--site", default="", metavar="FILE",
              help="Site factors written by `vtrain calibrate`.")  # fmt: skip
@click.option("--law", default="", metavar="NAME|FILE", help="Loss law. [default: besiroglu2024]")
@click.option("--memory-limit", default="", metavar="SHARE",
              help="Largest share of what the context leaves that may be allocated, for example "
              "0.85 or 85%. [default: 0.90]")  # fmt: skip
@click.option("--sampler", type=click.Choice(["tpe", "cmaes", "nsga2", "random"]), default="tpe",
              show_default=True, help="Optuna sampler of the outer search.")  # fmt: skip
@click.option(
    "--space",
    type=click.Choice(["bilevel", "joint"]),
    default="bilevel",
    show_default=True,
    help="Search architectures and enumerate plans, or sample all.",
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True,
              help="Seed; the same seed gives the same bytes.")  # fmt: skip
@click.option("--trials", type=click.IntRange(min=1), metavar="N",
              help="Architectures tried for one budget at most. [default: 400]")  # fmt: skip
@click.option("--timeout", metavar="TIME", default="", help="Stop after so long, keep the rest.")
@click.option("--workers", default="auto", show_default=True, metavar="N|auto",
              help="Processes that evaluate; 1 never starts Ray.")  # fmt: skip
@click.option("--ray-address", metavar="ADDRESS", help="Join this Ray cluster, never stop it.")
@click.option("--save-dir", type=click.Path(path_type=Path), metavar="DIR",
              help="Keep the run: journal, trials.csv, best.toml, run.json.")  # fmt: skip
@click.option("--resume", type=click.Path(path_type=Path), metavar="DIR",
              help="Go on with an interrupted run.")  # fmt: skip
@click.option("--force", is_flag=True, help="Replace the run in --save-dir.")
@click.option("--report", type=click.Path(path_type=Path), metavar="FILE",
              help="Write a report: .html or .md.")  # fmt: skip
@click.option("--focus", metavar="BUDGET",
              help="Of several budgets the one that the report and the what-if table are about. "
              "[default: the last]")  # fmt: skip
@click.option("--explain", is_flag=True, help="Say why the usual alternatives lost, and to what.")
@click.option(
    "--why-not",
    multiple=True,
    metavar="WHAT",
    help="Explain one alternative, e.g. tp=4, 70B, 256 GPUs, A100. Repeatable.",
)
@click.option(
    "--compare-laws",
    is_flag=True,
    help="Say what each loss law would pick, and what that costs if another holds.",
)
@click.option("--dry-run", is_flag=True, help="Say what would be searched and how long it takes.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of tables.")
@click.option("-v", "--verbose", is_flag=True, help="Say more on stderr.")
@click.option("-q", "--quiet", is_flag=True, help="No progress on stderr.")
@click.pass_context
def cli(ctx: click.Context, /, **options: Any) -> int:
    """Find the lowest-loss model a budget can train, and how to train it."""
    level = logging.DEBUG if options["verbose"] else (
        logging.ERROR if options["quiet"] else logging.INFO
    )  # fmt: skip
    logging.basicConfig(level=logging.WARNING, format="vtrain-search: %(message)s",
                        stream=sys.stderr)  # fmt: skip
    logging.getLogger("vtrain_search").setLevel(level)
    if ctx.invoked_subcommand is not None:
        return 0
    from vtrain_search.search_cli import search_from_options

    given = {
        name for name in options
        if ctx.get_parameter_source(name) is not ParameterSource.DEFAULT
    }  # fmt: skip
    return search_from_options(options, given)


def main() -> NoReturn:
    """Entry point of the `vtrain-search` script."""
    from vtrain_search.budget import join_units

    # `--budget 2M gpu-hours`, unquoted, arrives as two words.
    sys.argv[1:] = join_units(sys.argv[1:])
    run(cli, "vtrain-search")
