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
from shuffledp.deploy.terminal.console import print_written, terminal
from shuffledp.deploy.terminal.files import write
from shuffledp.protos.shuffledp.v1 import user_agent_pb2

_MAX_BYTES: Final = 16 * 1024 * 1024
_CHECK_EXAMPLE: Final = "shuffledp log check mine.json yours.json --analyzer-identity identity.pub"
app = options.command_group(
    "log", "Check that every device was shown the same log of tasks.", _CHECK_EXAMPLE
)


@options.command(app, "shuffledp log export --output mine.json")
def export(connections: options.Connections, output: options.Output) -> None:
    """
    Write what your device was shown of the log.

    The file also has the checkpoints that it refused. It reveals which tasks your device accepted,
    and no answer.

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
    connections: options.Connections,
    analyzer_identity: Path | None = None,
    witness: list[str] | None = None,
) -> options.Printed:
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
    keys = [log]
    for text in witness or ():
        typed = read_file(Path(text)).decode("ascii", "replace") if Path(text).is_file() else text
        keys.append(NoteKey.parse(typed.strip()))
    valid = sum(any(one.is_signed(key) for key in keys) for one in evidence)
    if not valid:
        raise ProofError(
            f"none of the {len(evidence)} pieces of evidence is signed by this analyzer's log or "
            "one of the witnesses given: they are of another log, or damaged"
        )
    forks = {key.name: fork for key in keys if (fork := find_fork(evidence, key)) is not None}
    sizes = {n: [one.checkpoint.checkpoint.size for one in fork] for n, fork in forks.items()}
    text = "\n".join(
        f"Fork: {name} signed two histories, with checkpoints of {first} and {second} entries."
        for name, (first, second) in sizes.items()
    )
    text = text or f"No key signed two histories. Valid evidence: {valid} of {len(evidence)}."
    if not forks and (refused := sum(one.refused for one in evidence)):
        text += (
            f"\n{refused} checkpoints were refused because nothing proved that they continue the "
            "device's last one; that alone convicts nobody. Add other devices' evidence."
        )
    return {"pieces": len(evidence), "valid": valid, "forks": sizes}, text, bool(forks)


def read_evidence(file: Path) -> list[LogEvidence]:
    """Read a file of evidence, unverified; raise SettingsError or WireError."""
    raw = read_file(file, _MAX_BYTES)
    message = user_agent_pb2.GetLogEvidenceResponse()
    try:
        Parse(raw.decode("utf-8"), message)
    except (ParseError, ValueError, RecursionError) as error:
        raise WireError(f"{file} is not evidence from shuffledp log export") from error
    return evidence_from_wire(message)
