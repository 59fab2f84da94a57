"""The command `shuffledp`; a subcommand's module is imported only when the subcommand runs."""

import errno
import importlib
import io
import os
import re
import sys
from typing import Annotated, Any, Final

import typer
from typer.core import TyperCommand, TyperGroup
from typer.exceptions import TyperException

import shuffledp.common.runtime.blas_threads  # noqa: F401  # before numpy
from shuffledp.common.errors import ShuffleDpError, UsageError
from shuffledp.common.version import VERSION
from shuffledp.deploy.commands.connection import Addresses, Authority, Profile, TokenFile
from shuffledp.deploy.terminal.escape import visible
from shuffledp.deploy.terminal.help_examples import example
from shuffledp.deploy.terminal.interruption import INTERRUPTED, ended_by_interrupt

_COMMANDS: Final = {
    "demo": ("deploy.commands.demo", "Collect values privately, on this machine."),
    "up": ("deploy.commands.up", "Run all parties and a page to take part, on this machine."),
    "account": ("lab.commands.account", "Bound epsilon or delta for given parameters."),
    "plan": ("lab.commands.plan", "Find the best parameters that meet a guarantee."),
    "capacity": ("lab.commands.capacity", "Predict the machines that reports need."),
    "simulate": ("lab.commands.simulate", "Compare protocols on a data set."),
    "reproduce": ("lab.commands.simulate", "Repeat published experiments."),
    "audit": ("audit.commands.audit", "Simulate attacks by every coalition."),
    "load": ("deploy.commands.load", "Load-test the services and reconcile all counts."),
    "init": ("deploy.commands.profile", "Write a profile: addresses, tokens, keys."),
    "task": ("deploy.commands.task", "Create, list, show and close tasks."),
    "series": ("deploy.commands.series", "Repeat a task on a schedule, and show its rounds."),
    "live": ("deploy.commands.live", "Watch a batch's progress in a browser."),
    "batch": ("deploy.commands.batch", "Release, drop or erase a batch without a result."),
    "result": ("deploy.commands.result", "Print or write a released result."),
    "ledger": ("deploy.commands.result", "Print every release's cost and the budgets left."),
    "iterate": ("deploy.commands.result", "Write the draft of PrivKVM's next iteration."),
    "discover-labels": ("deploy.commands.result", "Write found values as labels of a second task."),
    "contribute": ("deploy.commands.person", "Contribute a value through your user agent."),
    "receipt": ("deploy.commands.person", "Show whether your value was counted."),
    "log": ("deploy.commands.log", "Compare what devices saw of the log of tasks."),
    "sentinels": ("deploy.commands.sentinels", "Send test submissions that the analyzer knows."),
    "keys": ("deploy.commands.keys", "Create certificates and signing identities."),
    "issuer": ("deploy.commands.issuer", "Prepare the issuer of one-time tokens."),
}
"""By name, a command's module in `shuffledp`, and its summary."""
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
                module = importlib.import_module(f"shuffledp.{_COMMANDS[name][0]}")
            except ModuleNotFoundError as error:
                if error.name != "shuffledp.audit":
                    raise
                raise UsageError("The audit is not in this image: use shuffledp-auditor") from error
            module.app.rich_markup_mode = None  # plain help, which is fast
            group = typer.main.get_group(module.app)
            command = group.commands.get(name, group)
        return name, command, rest

    def invoke(self, ctx: Any) -> Any:  # noqa: ANN401
        """Run a command; reword usage errors: omit values, fix grammar."""
        try:
            return super().invoke(ctx)
        except typer.Abort as error:  # at a prompt
            if isinstance(error.__context__, KeyboardInterrupt):
                raise KeyboardInterrupt from error
            raise
        except typer.BadParameter as error:
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
    profile: Profile = None,
    address: Addresses = None,
    authority: Authority = None,
    token_file: TokenFile = None,
    version: Annotated[  # noqa: ARG001  # handled by its callback
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Collect statistics with differential privacy: no party sees both a person and the answer."""
    context.obj = {"profile": profile, "address": address}  # `options.command` passes them on
    context.obj |= {"authority": authority, "token_file": token_file}


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
