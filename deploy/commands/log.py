"""`shuffledp log`: compare what devices saw of the log of tasks."""

import asyncio
from pathlib import Path
from typing import Annotated, Final

import typer
from google.protobuf.json_format import MessageToJson, Parse, ParseError

from shuffledp.common.errors import ProofError, WireError
from shuffledp.common.runtime.validation import read_file
from shuffledp.common.transparency.checkpoint import NoteKey, log_key
from shuffledp.common.transparency.log import LogEvidence, find_fork
from shuffledp.common.wire.transparency import evidence_from_wire
from shuffledp.deploy.commands import options
from shuffledp.deploy.commands.connection import CommandConnections
from shuffledp.deploy.terminal.console import print_written, terminal
from shuffledp.deploy.terminal.files import write
from shuffledp.deploy.terminal.json_output import print_json
from shuffledp.protos.shuffledp.v1 import user_agent_pb2

_MAX_BYTES: Final = 16 * 1024 * 1024
_CHECK_EXAMPLE: Final = "shuffledp log check mine.json yours.json --analyzer-identity identity.pub"
app = options.command_group(
    "log", "The log of tasks: evidence that every device was shown the same one.", _CHECK_EXAMPLE
)


@options.command(app, "shuffledp log export --output mine.json")
def export(connections: CommandConnections, output: options.Output) -> None:
    """
    Write what your device was shown of the log.

    Refused checkpoints too. The file reveals which tasks your device accepted, and no answer.

    Options:
        output: Output file for the evidence.
    """
    from shuffledp.deploy.clients.user_agent import ask_for_log_evidence

    evidence = asyncio.run(ask_for_log_evidence(connections.address("agent")))
    write(output, MessageToJson(evidence) + "\n")
    print_written([output], terminal())


@options.command(app, _CHECK_EXAMPLE)
def check(
    files: Annotated[list[Path], typer.Argument()],
    connections: CommandConnections,
    analyzer_identity: Path | None = None,
    witness: list[str] | None = None,
    json: options.AsJson = False,
) -> None:
    """
    Search for two histories that the log or a witness signed.

    The status is 1 if there are any, or if nothing is signed by these keys. The files then prove it
    to everybody who runs this command, without trust in the devices.

    Options:
        files: Evidence of one or several devices.
        analyzer_identity: The analyzer's identity.pub.  [the profile's]
        witness: Key of a witness, or its witness.pub; repeatable.
    """
    pinned = connections.needed_file("analyzer_identity", analyzer_identity)
    log = log_key(options.read_identity(pinned))
    evidence = [one for file in files for one in read_evidence(file)]
    keys = [log, *map(_witness_key, witness or ())]
    valid = sum(any(one.is_signed(key) for key in keys) for one in evidence)
    if not valid:
        raise ProofError(
            f"none of the {len(evidence)} pieces of evidence is signed by this analyzer's log or "
            "one of the witnesses given: they are of another log, or damaged"
        )
    forks = {key.name: fork for key in keys if (fork := find_fork(evidence, key)) is not None}
    if json:
        sizes = {name: [_size(one) for one in fork] for name, fork in forks.items()}
        print_json({"pieces": len(evidence), "valid": valid, "forks": sizes})
        raise typer.Exit(bool(forks))
    console = terminal()
    for name, (first, second) in forks.items():
        console.print(
            f"Fork: {name} signed two histories, with checkpoints of {_size(first)} and "
            f"{_size(second)} entries.",
            markup=False,
            soft_wrap=True,
        )
    if not forks:
        refused = sum(one.refused for one in evidence)
        console.print(f"No fork in {valid} valid pieces of evidence of {len(evidence)}.")
        if refused:
            console.print(
                f"{refused} checkpoints were refused because nothing proved that they continue the "
                "device's last one; that alone convicts nobody. Add other devices' evidence."
            )
        return
    raise typer.Exit(1)


def _witness_key(given: str) -> NoteKey:
    """Parse a witness's key, or read it from a file."""
    if not Path(given).is_file():
        return NoteKey.parse(given)
    return NoteKey.parse(read_file(Path(given)).decode("ascii", "replace").strip())


def _size(evidence: LogEvidence) -> int:
    return evidence.checkpoint.checkpoint.size


def read_evidence(file: Path) -> list[LogEvidence]:
    """Read a file of evidence, unverified; raise SettingsError or WireError."""
    raw = read_file(file, _MAX_BYTES)
    message = user_agent_pb2.GetLogEvidenceResponse()
    try:
        Parse(raw.decode("utf-8"), message)
    except (ParseError, ValueError, RecursionError) as error:
        raise WireError(f"{file} is not evidence from shuffledp log export") from error
    return evidence_from_wire(message)
