"""The `vtrain` command: light to start, one line for every error."""

from __future__ import annotations

import errno
import importlib
import logging
import os
import sys
from typing import NoReturn

import rich_click as click
from click.exceptions import NoArgsIsHelpError

from vtrain import __version__
from vtrain.errors import VtrainError

# Command name -> module and attribute; a module is imported when its command is asked for.
COMMANDS = {
    "simulate": ("vtrain.simulate_cli", "simulate_command"),
    "plans": ("vtrain.plans_cli", "plans_command"),
    "validate": ("vtrain.validation.cli", "validate"),
    "profile": ("vtrain.profiler.cli", "profile_group"),
    "calibrate": ("vtrain.calibrate_cli", "calibrate_command"),
    "fit-devices": ("vtrain.latency.fit_cli", "fit_device"),
    "trace": ("vtrain.trace_cli", "trace_command"),
    "tenancy": ("vtrain.tenancy.cli", "tenancy"),
    "import": ("vtrain.formats.cli", "import_command"),
    "export": ("vtrain.formats.cli", "export_command"),
    "mfu": ("vtrain.mfu_cli", "mfu_command"),
}
# What a full disk, a quota or a file size limit answers to a write.
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class LazyGroup(click.RichGroup):
    """A group that imports a command only when it is used or listed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one command."""
        if cmd_name not in COMMANDS:
            return None
        module, attribute = COMMANDS[cmd_name]
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="vtrain")
@click.option("-v", "--verbose", is_flag=True, help="Say more on stderr.")
@click.option("-q", "--quiet", is_flag=True, help="Say nothing but the result and errors.")
@click.pass_context
def cli(ctx: click.Context, verbose: bool, quiet: bool) -> None:
    """Predict step time, memory and cost of LLM training before the first GPU-hour."""
    level = logging.DEBUG if verbose else logging.ERROR if quiet else logging.WARNING
    logging.basicConfig(level=level, format="%(levelname)s: %(message)s", stream=sys.stderr)
    ctx.obj = {"verbose": verbose, "quiet": quiet}


def run(command: click.Command, prog_name: str) -> NoReturn:
    """Run a click command, turning errors into one line and an exit code.

    0 done; 1 internal, or no room to write; 2 usage; 3 nothing feasible; 4 stopped early;
    130 Ctrl-C.
    """
    # NumPy's threads only get in each other's way on tables of this size.
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(name, "1")
    if sys.stdout is None:  # closed by the caller (>&-): Python then has no stream at all
        _fail("error: cannot write: standard output is closed", 1)
    try:
        result = command.main(prog_name=prog_name, standalone_mode=False)
        sys.stdout.flush()
    except VtrainError as error:
        _fail(f"error: {error}", error.exit_code)
    except NoArgsIsHelpError as error:
        _fail(error.format_message(), 2)
    except click.ClickException as error:
        # click lists choices one a line.
        _fail(f"error: {' '.join(error.format_message().split())}", 2)
    except (click.Abort, KeyboardInterrupt):
        _fail("interrupted", 130)
    except SystemExit as error:
        # click turns a broken pipe into exit code 1, which here means an internal error.
        if not isinstance(error.__context__, BrokenPipeError):
            raise
        _quiet_stdout()
        sys.exit(0)
    except BrokenPipeError:  # the reader (head, less) has gone
        _quiet_stdout()
        sys.exit(0)
    except OSError as error:
        if error.errno not in _NO_ROOM:
            _internal(error)
        _quiet_stdout()
        _fail(f"error: cannot write: {error.strerror}", 1)
    except Exception as error:
        _internal(error)
    sys.exit(result if isinstance(result, int) else 0)


def _internal(error: Exception) -> NoReturn:
    """End with one line; a traceback is for developers: -v shows it."""
    if logging.getLogger().isEnabledFor(logging.DEBUG):
        logging.getLogger(__name__).error("internal error", exc_info=error)
    _fail(f"internal error: {type(error).__name__}: {error}; run with -v for details", 1)


def _quiet_stdout() -> None:
    """Let nothing more be written: a second error, on close, would hide the first."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _fail(line: str, code: int) -> NoReturn:
    click.echo(line, err=True)
    sys.exit(code)


def main() -> NoReturn:
    """Entry point of the `vtrain` script."""
    run(cli, "vtrain")
