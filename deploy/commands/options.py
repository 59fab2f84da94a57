"""Options shared by several commands, their parsing, and a call to a service."""

import errno
import inspect
import math
import os
import re
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import AbstractAsyncContextManager
from copy import copy
from operator import getitem
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_args, get_origin

import typer

from common.errors import SettingsError, UsageError, ValueRangeError, WireError
from common.protocols import Kind
from common.task_digest import DIGEST_BYTES, TaskDigest

if TYPE_CHECKING:
    from common.crypto.signing import PublicIdentity

AnalyzerAddress = Annotated[str, typer.Option(help="Address of the analyzer, host:port.")]
ShufflerAddress = Annotated[str, typer.Option(help="Address of the shuffler, host:port.")]
TaskArgument = Annotated[str, typer.Argument(help="The task's digest, 64 hexadecimal digits.")]
AgentAddress = Annotated[str, typer.Option(help="Address of your user agent: unix:PATH.")]
Person = Annotated[str, typer.Option(help="Name of the person, if the agent serves several.")]
TokenFile = Annotated[
    Path, typer.Option(help="Operator token: operator.token in the service's state directory.")
]
Authority = Annotated[
    Path | None,
    typer.Option(help="Authority to trust, a .pem file.  [none: plaintext on this machine only]"),
]
Certificate = Annotated[
    Path | None, typer.Option(help="Your certificate.  [operator.pem beside the authority]")
]
CertificateKey = Annotated[
    Path | None,
    typer.Option("--key", help="Key of the certificate.  [operator.key beside the authority]"),
]
ShufflerKey = Annotated[
    Path | None,
    typer.Option(
        help="The shuffler's public key in its state directory: envelope.pub, or "
        "envelope-SUITE.pub if the draft names a suite."
    ),
]
TaskKind = Annotated[Kind, typer.Option(help="Kind of value.")]
OpenPage = Annotated[
    bool, typer.Option("--open", help="Open the page in a browser on this machine.")
]
Page = Annotated[Path | None, typer.Option(help="Write a self-contained page for a browser.")]
AllGuarantees = Annotated[
    bool,
    typer.Option("--guarantees", help="List the guarantee for each coalition, with assumptions."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]

Client = TypeVar("Client")
Answer = TypeVar("Answer")


def describe_options(command: Callable[..., None]) -> Callable[..., None]:
    """Move the texts under `Options:` in a command's docstring to the help of its parameters."""
    command.__doc__, _, texts = inspect.cleandoc(command.__doc__ or "").partition("\n\nOptions:\n")
    for name, text in re.findall(r"(?m)^ {4}(\w+): (.+(?:\n {8}.+)*)", texts):
        hint: Any = command.__annotations__[name]
        kind, given = get_args(hint) if get_origin(hint) is Annotated else (hint, typer.Option())
        option = copy(given)  # several commands may share it
        option.help = re.sub(r"\n +", " ", text)
        command.__annotations__[name] = getitem(Annotated, (kind, option))
    return command


def check_kinds(context: typer.Context, kinds: Mapping[str, Collection[Kind]]) -> None:
    """Raise UsageError if an option is given that is not for the kind of data."""
    kind = context.params["task_kind"]
    for option in context.command.params:
        source, fits = context.get_parameter_source(option.name or ""), kinds.get(option.name or "")
        if fits and kind not in fits and source and source.name != "DEFAULT":
            rule = f"{option.opts[0]} is for data of these kinds: {', '.join(fits)}"
            raise UsageError(f"{rule}; --task-kind is {kind}")


def parse_cap(text: str) -> float:
    """Parse a cap on the local ε, `none` for no cap, or raise UsageError."""
    try:
        return math.inf if text == "none" else float(text)
    except ValueError as error:
        raise UsageError("the local cap must be a number, or none") from error


def parse_shares(head: str) -> tuple[float, ...]:
    """Parse the largest expected shares, or raise UsageError."""
    from common.messages.submission import parse_numbers

    try:
        return parse_numbers(head)
    except ValueRangeError as error:
        raise UsageError("--head must be shares such as 0.05,0.03") from error


def task_digest(text: str) -> TaskDigest:
    """Parse a task's digest, or raise UsageError."""
    digits = 2 * DIGEST_BYTES
    try:
        digest = bytes.fromhex(text)
    except ValueError as error:
        raise UsageError(f"the task's digest must be {digits} hexadecimal digits") from error
    if len(digest) != DIGEST_BYTES:
        raise UsageError(f"the task's digest has {len(text)} digits; it must have {digits}")
    return TaskDigest(digest)


def read_identity(file: Path) -> "PublicIdentity":
    """Read a party's identity.pub, or raise SettingsError or WireError."""
    from common.crypto.signing import PublicIdentity

    return PublicIdentity.from_hex(_read_ascii(file), f"the content of {file}")


def read_shuffler_key(file: Path) -> bytes:
    """Read the shuffler's public key; refuse links, which could point to an operator's secret."""
    try:
        return bytes.fromhex(_read_ascii(file, flags=os.O_NOFOLLOW))
    except ValueError as error:
        raise WireError(f"{file} must hold hexadecimal digits") from error


def _read_ascii(file: Path, *, flags: int = 0) -> str:
    """Read a file, replacing what is not UTF-8 text, which no key or identity has."""
    try:
        descriptor = os.open(file, os.O_RDONLY | flags)
        with os.fdopen(descriptor, encoding="utf-8-sig", errors="replace") as stream:
            return stream.read().strip()
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise SettingsError(
                f"{file} is a link; --shuffler-key needs the file itself"
            ) from error
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
