"""Register commands, and the options, their parsing and the calls that several share."""

import errno
import inspect
import math
import os
import re
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, suppress
from copy import copy
from functools import partial, wraps
from operator import getitem
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar, get_args, get_origin

import typer
from rich.console import Console
from typer.models import OptionInfo

from shuffledp.common.errors import PlanError, SettingsError, UsageError, ValueRangeError, WireError
from shuffledp.common.protocols import Kind
from shuffledp.common.task.kinds import check_options
from shuffledp.common.task_digest import DIGEST_BYTES, TaskDigest
from shuffledp.deploy.commands.connection import CommandConnections, connections_of
from shuffledp.deploy.terminal.files import in_folder, writable
from shuffledp.deploy.terminal.help_examples import example
from shuffledp.deploy.terminal.json_output import print_answer

if TYPE_CHECKING:
    from shuffledp.common.crypto.signing import PublicIdentity

Person = Annotated[str, typer.Option(help="Name of the person, if the agent serves several.")]
_DEVICES: Final = {Path("/dev"), Path("/dev/fd")}
"""Folders with links such as stdout, which may lead to a regular file."""
_DIGEST: Final = re.compile(f"[0-9a-fA-F]{{{2 * DIGEST_BYTES}}}")


def task_digest(text: str) -> TaskDigest:
    """Parse a task's digest, or raise UsageError."""
    if not _DIGEST.fullmatch(text):
        rule = f"it must be {2 * DIGEST_BYTES} hexadecimal digits"
        raise UsageError(f"the task's digest has {len(text)} characters; {rule}")
    return TaskDigest(bytes.fromhex(text))


def whole(text: str) -> int:
    """Parse a whole number, such as 20000 or 2e4, or raise BadParameter."""
    with suppress(ValueError):
        if (number := float(text)).is_integer():
            return int(number)
    raise typer.BadParameter("it must be a whole number")


if TYPE_CHECKING:
    TaskArgument = TaskDigest
    TaskOption = TaskDigest
else:  # help says that it is a text
    _OF_TASK: Final = {"parser": task_digest, "help": "The task's digest, 64 hexadecimal digits."}
    TaskArgument = Annotated[str, typer.Argument(**_OF_TASK)]
    TaskOption = Annotated[str, typer.Option(**_OF_TASK)]
ShufflerKey = Annotated[
    Path | None,
    typer.Option(
        help="The shuffler's public key in its state directory: envelope.pub, or "
        "envelope-SUITE.pub if the draft names a suite.  [the profile's]"
    ),
]
RelayKey = Annotated[
    Path | None,
    typer.Option(
        help="The second shuffler's public key in its state directory, for a draft with a table "
        "[relay]: relay.pub, or relay-SUITE.pub.  [the profile's]"
    ),
]
Whole = Annotated[int, typer.Option(parser=whole)]
OptionalWhole = Annotated[int | None, typer.Option(parser=whole)]
TaskKind = Annotated[Kind, typer.Option(help="Kind of value.")]
OpenPage = Annotated[bool, typer.Option("--open", help="Open the page in this machine's browser.")]
Output = Annotated[Path, typer.Option(callback=writable)]
OptionalOutput = Annotated[Path | None, typer.Option(callback=writable)]
OutputName = Annotated[Path | None, typer.Option(callback=in_folder)]
"""A folder to write, or a name to which endings are added."""
Page = Annotated[
    Path | None, typer.Option(callback=writable, help="Write a self-contained page for a browser.")
]
AllGuarantees = Annotated[
    bool,
    typer.Option("--guarantees", help="List the guarantee for each coalition, with assumptions."),
]
Flag = Annotated[bool, typer.Option()]
"""An option `--name` that `command` explains, without `--no-name`."""
Connections = CommandConnections
"""The parties that a command talks to, by the global options and the profile."""
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]

_KEYWORD: Final = inspect.Parameter.KEYWORD_ONLY
_VALUES: Final = {"str": "TEXT", "int": "N", "float": "NUMBER", "Path": "FILE", "datetime": "DATE"}
_PLAIN: Final = re.compile(rf"\b({'|'.join(_VALUES)})\b")
_PIN: Final = "--analyzer-identity"
_GLOBAL: Final = inspect.signature(connections_of).parameters
Client = TypeVar("Client")
Answer = TypeVar("Answer")
Function = TypeVar("Function", bound=Callable[..., object])
_Shown = str | Callable[[Console], None]
Printed = tuple[object, _Shown] | tuple[object, _Shown, bool]
"""JSON fields, or their function; a text for people, or what prints it; whether to exit with 1."""


def command_group(name: str, summary: str, *examples: str) -> typer.Typer:
    """Return a command that has subcommands."""
    return typer.Typer(name=name, help=summary, no_args_is_help=True, epilog=example(*examples))


def command(
    app: typer.Typer,
    *examples: str,
    name: str | None = None,
    **settings: Any,  # noqa: ANN401  # Typer's
) -> Callable[[Function], Function]:
    """
    Register a function as a command with examples, by default under its own name.

    The texts under `Options:` in its docstring become the help of its parameters; in them a
    constant's name in braces stands for its value. A type that several commands share, such as
    those above, has its text itself. `connections: Connections` stands for the global options,
    behind the command or before it; without it, they are refused before it. A command that
    returns Printed has an option --json.
    """

    def register(function: Function) -> Function:
        parameters, run = _parameters(function), _runner(function)
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # Typer's way
        run.__annotations__ = {each.name: each.annotation for each in parameters}
        run.__doc__, _ = _texts(function)
        connects = "connections" in inspect.signature(function).parameters
        epilog = example(*examples) + "\n\nGlobal options: shuffledp --help." * connects
        app.command(name, epilog=epilog, **settings)(run)
        return function

    return register


def _parameters(function: Callable[..., object]) -> list[inspect.Parameter]:
    """Return the parameters that Typer parses for a command, with their help."""
    signature, (_, texts) = inspect.signature(function), _texts(function)
    shown = {"context": inspect.Parameter("context", _KEYWORD, annotation=typer.Context)}
    shown |= {name: own for name, own in signature.parameters.items() if name != "connections"}
    if "connections" in signature.parameters:
        shown |= _GLOBAL
    if signature.return_annotation == Printed:
        shown["json"] = inspect.Parameter("json", _KEYWORD, annotation=AsJson, default=False)
    return [_explained(each, texts.get(name)) for name, each in shown.items()]


def _runner(function: Callable[..., object]) -> Callable[..., None]:
    """Return what Typer calls: it connects, calls the function with its own, prints its answer."""
    signature = inspect.signature(function)

    @wraps(function)
    def run(context: typer.Context, **given: Any) -> None:  # noqa: ANN401  # any option
        _add_those_before(context, given)
        if "connections" in signature.parameters:
            given["connections"] = connections_of(**{name: given.pop(name) for name in _GLOBAL})
        given["context"] = context
        try:
            answer: Any = function(**{name: given[name] for name in signature.parameters})
        except (UsageError, PlanError) as error:
            error.args = (as_options(context, str(error)),)
            raise
        if signature.return_annotation == Printed:
            fields, text, *failed = answer
            print_answer(fields, text, json=given["json"])
            if any(failed):
                raise typer.Exit(1)

    return run


def _add_those_before(context: typer.Context, given: dict[str, Any]) -> None:
    """Add the options in front of the command; raise UsageError for one that it does not have."""
    for name, before in (context.obj or {}).items():
        if name in given:
            repeated = isinstance(before, list) and given[name]
            given[name] = before + given[name] if repeated else given[name] or before
        elif before:
            command = context.command_path.partition(" ")[2]
            raise UsageError(f"drop --{name.replace('_', '-')}: {command} does not use it")


def as_options(context: typer.Context, message: str) -> str:
    """Return a message on arguments with options: `--local-cap none` for local_cap=math.inf."""
    for each in context.command.params:
        option, name = each.opts[0], str(each.name)
        if option.startswith("--"):
            message = re.sub(rf"(?<![\w/.-])(n_)?{name}=(?=\w)", f"{option} ", message)
            long = name if "_" in name else f"n_{name}"  # other words are arguments in front only
            alone = rf"(?<![`\w/.-]){long}(?![\w/=]|[.-]\w)|^{name}(?= is | must |: )"
            message = re.sub(alone, option, message)
    return message.replace(" math.inf", " none")


def _texts(described: object) -> tuple[str, dict[str, str]]:
    """Return a docstring without its part `Options:`, and the texts in that part by name."""
    constants = getattr(described, "__globals__", {})
    named = partial(re.sub, r"\{(_?[A-Z][A-Z_]+)\}", lambda found: str(constants[found[1]]))
    text, _, rest = named(inspect.cleandoc(described.__doc__ or "")).partition("\n\nOptions:\n")
    return text, dict(re.findall(r"(?m)^ {4}(\w+): (.+(?:\n {8}.+)*)", rest))


def _explained(parameter: inspect.Parameter, text: str | None) -> inspect.Parameter:
    """Return a parameter by keyword, with this help if any, and a plain name of its values."""
    hint = parameter.annotation
    if text is not None or get_origin(hint) is Annotated:
        kind, given = get_args(hint) if get_origin(hint) is Annotated else (hint, typer.Option())
        if hint == Flag:
            given = typer.Option(f"--{parameter.name.replace('_', '-')}")
        described = copy(given)  # several commands may share it
        described.help = re.sub(r"\n +", " ", text) if text else described.help
        described.hidden |= parameter.name in _GLOBAL
        if isinstance(given, OptionInfo) and (found := _PLAIN.search(str(kind))):
            described.metavar = given.metavar or _VALUES[found[0]]
        hint = getitem(Annotated, (kind, described))
    return parameter.replace(kind=_KEYWORD, annotation=hint)


def page_beside(output: Path, html: Path | None, name: str) -> Path:
    """
    Return where a page is written, by default beside the output.

    If the output is a special file, the default is `name` in the working folder. Raises UsageError
    if both are the same file, and SettingsError if one is not writable.
    """
    writable(output)
    special = output.parent in _DEVICES or (output.exists() and not output.is_file())
    page = html or (Path(name) if special else output.with_suffix(".html"))
    if page.resolve() == output.resolve():
        raise UsageError("--output and --html must be different files")
    writable(page)
    return page


def given_options(context: typer.Context) -> set[str]:
    """Return the names of a command's parameters that are not left at their default."""
    sources = {name: context.get_parameter_source(name) for name in context.params}
    return {name for name, source in sources.items() if source and source.name != "DEFAULT"}


def check_kinds(context: typer.Context) -> None:
    """Raise UsageError for an option that is for other kinds of value."""
    given = given_options(context)
    shown = {str(each.name): each.opts[0] for each in context.command.params if each.name in given}
    check_options(context.params["task_kind"], shown)


def parse_cap(text: str) -> float:
    """Parse a cap on the local ε, `none` for no cap, or raise UsageError."""
    try:
        return math.inf if text == "none" else float(text)
    except ValueError as error:
        raise UsageError("local_cap must be a number, or none") from error


def parse_shares(head: str) -> tuple[float, ...]:
    """Parse the largest expected shares, or raise UsageError."""
    from shuffledp.common.messages.submission import parse_numbers

    try:
        return parse_numbers(head)
    except ValueRangeError as error:
        raise UsageError("--head must be shares such as 0.05,0.03") from error


def read_identity(file: Path) -> "PublicIdentity":
    """Read a party's identity.pub, or raise SettingsError or WireError."""
    from shuffledp.common.crypto.signing import PublicIdentity
    from shuffledp.common.runtime.validation import read_file

    text = read_file(file).decode(errors="replace").strip()
    return PublicIdentity.from_hex(text, f"the content of {file}")


def verified(what: str, pinned: Path | None) -> str:
    """Say with which identity.pub a signature was verified, or how to verify it."""
    return f"{what} verified with {pinned}." if pinned else f"{what} not verified: use {_PIN}."


def read_shuffler_key(file: Path, option: str = "--shuffler-key") -> bytes:
    """Read a shuffler's public key; refuse links, which could point to an operator's secret."""
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW)
        with os.fdopen(descriptor, encoding="utf-8-sig", errors="replace") as stream:
            return bytes.fromhex(stream.read().strip())
    except ValueError as error:
        raise WireError(f"{file} must hold hexadecimal digits") from error
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise SettingsError(f"{file} is a link; {option} needs the file itself") from error
        raise SettingsError(f"{file} cannot be read: {error.strerror}") from error


def ask(
    connect: Callable[[], AbstractAsyncContextManager[Client]],
    question: Callable[[Client], Awaitable[Answer]],
) -> Answer:
    """Connect to a service, and return the answer to one request."""
    import asyncio

    async def answer() -> Answer:
        async with connect() as client:
            return await question(client)

    return asyncio.run(answer())
