"""The command `shuffledp`; a subcommand's module is imported only when the subcommand runs."""

import errno
import importlib
import io
import os
import re
import sys
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from typer.core import TyperCommand, TyperGroup
from typer.exceptions import TyperException

import shuffledp.common.runtime.blas_threads  # noqa: F401  # before numpy
from shuffledp.common.errors import ShuffleDpError, UsageError
from shuffledp.common.version import VERSION
from shuffledp.deploy.terminal.escape import visible
from shuffledp.deploy.terminal.help_examples import example
from shuffledp.deploy.terminal.interruption import INTERRUPTED, ended_by_interrupt

_COMMANDS: Final = {
    "demo": ("shuffledp.deploy.commands.demo", "Collect values privately, on this machine."),
    "up": (
        "shuffledp.deploy.commands.up",
        "Run all parties and a page to take part, on this machine.",
    ),
    "account": ("shuffledp.lab.commands.account", "Bound epsilon or delta for given parameters."),
    "plan": ("shuffledp.lab.commands.plan", "Find the best parameters that meet a guarantee."),
    "capacity": (
        "shuffledp.lab.commands.capacity",
        "Predict the cores, memory, disk and network that reports need.",
    ),
    "simulate": ("shuffledp.lab.commands.simulate", "Compare protocols on a data set."),
    "reproduce": ("shuffledp.lab.commands.simulate", "Repeat published experiments."),
    "audit": ("shuffledp.audit.commands.audit", "Simulate attacks by every coalition."),
    "load": ("shuffledp.deploy.commands.load", "Load-test the services and reconcile all counts."),
    "init": (
        "shuffledp.deploy.commands.profile",
        "Write a profile: default options for operators.",
    ),
    "task": ("shuffledp.deploy.commands.task", "Create, list, show and close tasks."),
    "series": (
        "shuffledp.deploy.commands.series",
        "Repeat a task on a schedule, and show its rounds.",
    ),
    "live": ("shuffledp.deploy.commands.live", "Watch a batch's progress in a browser."),
    "batch": (
        "shuffledp.deploy.commands.batch",
        "Release, drop or erase a batch without a result.",
    ),
    "result": ("shuffledp.deploy.commands.result", "Print or write a released result."),
    "ledger": (
        "shuffledp.deploy.commands.result",
        "Print every release's cost and the budgets left.",
    ),
    "iterate": ("shuffledp.deploy.commands.result", "Write the draft of PrivKVM's next iteration."),
    "discover-labels": (
        "shuffledp.deploy.commands.result",
        "Write found values as labels of a second task.",
    ),
    "contribute": (
        "shuffledp.deploy.commands.person",
        "Contribute a value through your user agent.",
    ),
    "receipt": ("shuffledp.deploy.commands.person", "Show whether your value was counted."),
    "log": ("shuffledp.deploy.commands.log", "Compare what devices saw of the log of tasks."),
    "sentinels": (
        "shuffledp.deploy.commands.sentinels",
        "Send test submissions that the analyzer recognizes.",
    ),
    "keys": ("shuffledp.deploy.commands.keys", "Create certificates and signing identities."),
    "issuer": ("shuffledp.deploy.commands.issuer", "Prepare the issuer of one-time tokens."),
}
_OF_A_PERSON: Final = {
    "contribute": "takes the digest, and only the options that --help lists; it asks for the "
    "value, or reads it from standard input",
    "receipt": "takes the digest, and only the options that --help lists",
}
"""By command, the message that replaces the parser's, which may contain a person's value."""


_FAULTS_OF_OUTPUT: Final = (errno.ENOSPC, errno.EFBIG, errno.EDQUOT, errno.EIO, errno.EPIPE)
_WRONG_OPTIONS: Final = 2
"""Exit status, as of the parser's own errors."""


class _LazyGroup(TyperGroup):
    """A group that lists and completes its commands without importing them."""

    def __init__(self, **settings: Any) -> None:  # noqa: ANN401  # Typer's settings
        super().__init__(**settings)
        self.commands = {
            name: TyperCommand(name, short_help=summary) for name, (_, summary) in _COMMANDS.items()
        }

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:  # noqa: ANN401
        """Resolve a command, imported on first use; raise UsageError if its name is unknown."""
        name, command, rest = super().resolve_command(ctx, args)
        if name is not None:  # else completing behind an unknown name
            try:
                module = importlib.import_module(_COMMANDS[name][0])
            except ModuleNotFoundError as error:
                if error.name != "shuffledp.audit":
                    raise
                raise UsageError("The audit is not in this image: use shuffledp-auditor") from error
            module.app.rich_markup_mode = None  # plain help, which is fast
            group = typer.main.get_group(module.app)
            command = group.commands.get(name, group)
        return name, command, rest

    def invoke(self, ctx: Any) -> Any:  # noqa: ANN401
        """Run a command; reword usage errors: suggest a profile, omit values, fix grammar."""
        try:
            return super().invoke(ctx)
        except typer.Abort as error:  # at a prompt
            if isinstance(error.__context__, KeyboardInterrupt):
                raise KeyboardInterrupt from error
            raise
        except typer.BadParameter as error:
            from shuffledp.deploy.commands.profile import PROFILE_OPTIONS  # noqa: PLC0415  # help needs none

            if not error.message and error.param and error.param.name in PROFILE_OPTIONS:
                error.message = "Set it, or write a profile with `shuffledp init STATE`, "
                error.message += "or, after `up`, use --profile shuffledp-local/shuffledp.toml."
            rule = re.sub("^Value error, |, unable to parse.*", "", error.message)
            rule = re.sub("(?s)^.* is not one of", "it must be one of", rule)  # omits the choice
            error.message = re.sub("^Input should", "it must", rule)
            raise
        except TyperException as error:
            context: Any = getattr(error, "ctx", None)  # only usage errors have one
            if context and context.info_name in _OF_A_PERSON:
                error.message = f"{context.info_name} {_OF_A_PERSON[context.info_name]}"
            raise


app = typer.Typer(
    cls=_LazyGroup,
    no_args_is_help=True,
    epilog=example("shuffledp demo --users 5000") + "\n\nGlossary: docs/glossary.md.",
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _show_version(requested: bool) -> None:  # noqa: FBT001  # the callback of an option
    if requested:
        sys.stdout.write(f"shuffledp {VERSION}\n")
        raise typer.Exit


@app.callback()
def options(
    context: typer.Context,
    *,
    profile: Annotated[
        Path | None,
        typer.Option(
            envvar="SHUFFLEDP_PROFILE",
            help="TOML file with addresses, tokens and certificates, from `shuffledp init`.  "
            "[shuffledp.toml here, if it exists]",
        ),
    ] = None,
    version: Annotated[  # noqa: ARG001  # handled by its callback
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Collect statistics with differential privacy: no party sees both a person and the answer."""
    from shuffledp.deploy.commands.profile import profile_defaults  # noqa: PLC0415  # help needs none

    if context.invoked_subcommand not in {"demo", "up"}:  # they take nothing from it
        context.default_map = profile_defaults(profile)


def main() -> None:
    """
    Run the command; print an expected failure.

    Exit statuses: 2 for wrong options, 130 for an interruption, 1 for other failures.
    """
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # UTF-8 in every locale
            errors = "surrogateescape" if stream is sys.stdin else "backslashreplace"
            stream.reconfigure(encoding="utf-8", errors=errors)
    try:
        with ended_by_interrupt():
            try:
                app()
            finally:
                sys.stdout.flush()
    except ShuffleDpError as error:
        sys.stderr.write(f"shuffledp: {visible(str(error))}\n")
        sys.exit(_WRONG_OPTIONS if isinstance(error, UsageError) else 1)
    except OSError as error:
        if error.filename is None and error.errno not in _FAULTS_OF_OUTPUT:
            raise
        if error.filename is None:  # Python would flush again at the end, with a traceback
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if error.errno == errno.EPIPE:
            sys.exit(1)
        name = "standard output" if error.filename is None else visible(str(error.filename))
        sys.exit(f"shuffledp: {name}: {error.strerror}")
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
