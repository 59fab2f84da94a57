"""`shuffledp up`: the parties and the page to take part, on this machine, until Ctrl-C."""

import asyncio
import shlex
import sys
from contextlib import ExitStack
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from shuffledp.common.errors import PeerError, SettingsError, UsageError
from shuffledp.deploy.commands import options
from shuffledp.deploy.terminal.console import terminal

if TYPE_CHECKING:
    from shuffledp.common.crypto.signing import SignedTask
    from shuffledp.common.messages.batch import BatchState, TaskState
    from shuffledp.deploy.clients.local_cluster import PageCluster

app = typer.Typer()

_DRAFT: Final = Path(__file__).parents[1] / "drafts" / "commute.toml"
_MAX_PEOPLE: Final = 10_000
_OWNER_ONLY: Final = 0o600


@options.command(
    app,
    "shuffledp up",
    "shuffledp up --people 20 --host poll.example.org --certificate chain.pem --key key.pem",
)
def up(
    folder: Annotated[Path, typer.Option(metavar="FOLDER")] = Path("shuffledp-local"),
    people: Annotated[int, typer.Option(min=1, max=_MAX_PEOPLE)] = 5,
    draft: Path | None = None,
    host: str = "",
    web_certificate: Annotated[Path | None, typer.Option("--certificate")] = None,
    web_key: Annotated[Path | None, typer.Option("--key")] = None,
    json: options.AsJson = False,
) -> None:
    """
    Run all parties on this machine, with a page to take part, until Ctrl-C.

    Prints an address where a first question is answered, and the commands that close it and show
    its result. The next start in the same folder has the same keys, people and, if they are free,
    ports. For trials: one operator of all parties can learn as much as all of them together.

    Options:
        folder: Folder for keys, people, settings, logs and the profile; made if missing.
        people: Number of people who are invited, and may each answer once; none is removed.
        draft: The question's draft.  [the folder's open question, or an example]
        host: Name of this machine for phones and other devices; needs a certificate.
        web_certificate: Certificate of that name with its chain, a .pem file that browsers trust.
        web_key: Key of that certificate.
    """
    tls = (web_certificate, web_key)
    if host and None in tls:
        raise UsageError(
            "--host needs --certificate and --key: browsers give a page the cryptography to take "
            "part over HTTPS only, or on the machine itself"
        )
    if not host and any(tls):
        raise UsageError("--certificate and --key need --host, the certificate's name")
    from shuffledp.common.runtime.state_directory import StateDirectory
    from shuffledp.deploy.clients.local_cluster import PageCluster, WebHost
    from shuffledp.deploy.tasks import drafts
    from shuffledp.deploy.terminal.interruption import until_stopped

    wanted = drafts.read(draft or _DRAFT)  # a wrong one leaves no files
    if wanted.n_min > _MAX_PEOPLE:
        rule = f"`up` invites at most {_MAX_PEOPLE:,} people, so lower n_min"
        raise UsageError(f"the draft's n_min is {wanted.n_min:,}; {rule}")
    web = WebHost(host.lower(), web_certificate, web_key) if web_certificate and web_key else None
    if web is not None:
        web.check()
    if folder.is_file():
        raise UsageError(f"--folder is {folder}, a file")
    names = [f"person-{number}" for number in range(1, people + 1)]
    is_new, state = not folder.exists(), StateDirectory.open(folder)
    if is_new:
        state.publish(".gitignore", "*\n")  # it will hold secrets
    with ExitStack() as stack:
        try:
            stack.enter_context(state.held())
        except SettingsError as error:
            rule = f"`up` already runs in {folder}; stop it, or choose another --folder"
            raise SettingsError(rule) from error
        two = wanted.relay is not None or (folder / "relay").exists()
        cluster = PageCluster(folder, names, web, two_shufflers=two)
        asyncio.run(until_stopped(_serve(cluster, draft, json=json)))


async def _serve(cluster: "PageCluster", draft: Path | None, *, json: bool) -> None:
    """Start the parties, ask the question, show how to take part, and run until an end."""
    console = terminal(stderr=json)
    with console.status(f"Starting the parties in {cluster.directory} …") as status:
        async with cluster:
            signed, replaced = await _ask(cluster, draft)
            status.stop()
            _show(cluster, signed, replaced, json=json)
            status.update("Nobody has opened the question yet.")
            status.start()
            async with cluster.operator() as operator:
                async for found in cluster.watch(signed.digest(), status.update):
                    try:
                        _, summary = await operator.describe(signed.digest())
                        status.update(_progress(found.n_users, found.state, summary.state))
                    except PeerError as error:  # the analyzer may be away for a moment
                        status.update(str(error))


def _progress(n_users: int, batch: "BatchState", task: "TaskState") -> str:
    """Return what happens: the batch's state, and once the analyzer has it, the result's."""
    from shuffledp.deploy.tasks.task_view import DELIVERED

    state = f"The result is {task}." if batch in DELIVERED else f"The batch is {batch}."
    return f"Answers: {n_users:,}. {state}"


async def _ask(cluster: "PageCluster", file: Path | None) -> tuple["SignedTask", list[str]]:
    """Publish a draft's question, or continue the open one; warn if another stays open."""
    from shuffledp.common.messages.batch import TaskState
    from shuffledp.common.runtime.state_directory import atomic_write
    from shuffledp.common.runtime.validation import read_file
    from shuffledp.deploy.tasks import drafts

    draft, kept = drafts.read(file or _DRAFT), cluster.directory / "question.txt"
    version, warnings = sha256(read_file(file or _DRAFT)).hexdigest(), []
    if kept.exists():
        earlier, digits = kept.read_text(encoding="utf-8").split()
        async with cluster.operator() as operator:
            signed, summary = await operator.describe(options.task_digest(digits))
        if summary.state == TaskState.OPEN:
            if file is None or version == earlier:
                return signed, []
            warnings = [f"question {digits} is still open; its invitations are replaced"]
    signed = await cluster.publish_task(draft)
    atomic_write(kept, f"{version} {signed.digest().hex()}".encode(), _OWNER_ONLY)
    return signed, warnings


def _show(cluster: "PageCluster", signed: "SignedTask", warnings: list[str], *, json: bool) -> None:
    """Write invitations and profile, and print how to go on, after warnings."""
    from shuffledp.common.runtime.state_directory import atomic_write
    from shuffledp.common.task.task import Task
    from shuffledp.deploy.clients.issuer import is_for_browsers, lines
    from shuffledp.deploy.clients.local_cluster import PAGE_CAP
    from shuffledp.deploy.commands.connection import DEFAULT_PROFILE
    from shuffledp.deploy.commands.profile import profile_of
    from shuffledp.deploy.terminal.json_output import dumps

    task, digest, folder = Task.from_bytes(signed.task_bytes), signed.digest(), cluster.directory
    invited = cluster.invitations(digest)
    file, profile = folder / "invitations.txt", folder / DEFAULT_PROFILE
    atomic_write(file, lines(invited).encode(), _OWNER_ONLY)
    atomic_write(profile, profile_of(folder, {}).encode(), _OWNER_ONLY)
    name, first = next(iter(invited.items()))
    if task.n_min > len(invited):
        warnings.append(f"a result needs {task.n_min} people: --people {task.n_min}")
    if cluster.moved:
        warnings.append(
            "another program has the page's port: use the new invitations; browsers' earlier "
            "answers stay at the old address"
        )
    for_page = is_for_browsers(task) and task.coalition_epsilon <= PAGE_CAP
    if task.coalition_epsilon > PAGE_CAP:
        figure = f"{'coalition' if task.relay else 'local'} epsilon over {PAGE_CAP}"
        warnings.append(f"the page refuses a {figure}; use `contribute`")
    elif not for_page:
        warnings.append("the page cannot answer such a question yet; `shuffledp contribute` can")
    command = f"  shuffledp --profile {shlex.quote(str(profile))}"
    opened = f" To answer as {name}, open\n\n  {first}\n\nAll invitations, one a person: {file}."
    answer = f"{command} contribute {digest.hex()} --person {name}\n"
    text = "".join(f"Warning: {each}.\n" for each in warnings) + (
        f"All parties run; their files are in {folder}.{opened if for_page else ''} Then, in "
        f"another terminal:\n\n{'' if for_page else answer}"
        f"{command} task close {digest.hex()}\n{command} result {digest.hex()}\n\n"
        "Ctrl-C stops all."
    )
    fields = {"task_digest": digest.hex(), "invitation": first, "invitations": str(file)}
    fields |= {"profile": str(profile), **cluster.addresses()}
    sys.stdout.write(f"{dumps({**fields, 'warnings': warnings}) if json else text}\n")
    sys.stdout.flush()
