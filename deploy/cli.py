"""The command `shuffledp`."""

import asyncio
import json as json_reader
import math
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from analyzer import planning
from analyzer.wishes import Wishes
from common.errors import KeyFormatError, SettingsError, ShuffleDpError, ValueRangeError
from common.guarantee import rounded_up
from common.hpke import KEY_BYTES
from common.runtime.clock import SystemClock
from common.task import Task
from common.task_digest import DIGEST_BYTES, TaskDigest
from deploy import account as account_table
from deploy import demo as demonstration
from deploy import draft_file, question_file
from deploy import ledger as ledger_table
from deploy import plan as planner
from deploy import question as questions
from deploy.datasets import catalogue
from deploy.operator_client import OperatorClient
from deploy.person_client import send
from deploy.result_json import as_json, dumps, guarantee_as_json

app = typer.Typer(
    help="Three-party collection of histograms under shuffle-model differential privacy.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
task_app = typer.Typer(help="Tasks: what is collected, under which promise.", no_args_is_help=True)
app.add_typer(task_app, name="task")


def _show_version(wanted: bool) -> None:  # noqa: FBT001  # the callback of an option
    if wanted:
        sys.stdout.write(f"shuffledp {version('shuffledp')}\n")
        raise typer.Exit


@app.callback()
def shuffledp(
    *,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Three-party collection of histograms under shuffle-model differential privacy."""


AnalyzerAddress = Annotated[str, typer.Option(help="Address of the analyzer, host:port.")]
TokenFile = Annotated[Path, typer.Option(help="The operator's token: STATE/operator.token.")]
Authority = Annotated[
    Path | None,
    typer.Option(help="PEM file of the authority to trust. Without it: plaintext, loopback only."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]


@app.command(
    epilog="Example: shuffledp demo --users 5000 --seed 7",
)
def demo(
    users: Annotated[
        str, typer.Option(help="How many of the 602,156 people take part, or 'all'.")
    ] = "20000",
    seed: Annotated[
        int | None,
        typer.Option(min=0, help="Chooses the people; the privacy noise is never seeded."),
    ] = None,
    output: Annotated[Path, typer.Option(help="Where the result is written.")] = Path(
        "result.json"
    ),
    json: AsJson = False,
) -> None:
    """Collect the IPUMS 1940 city histogram privately, with three processes on this machine."""
    if users != "all" and not (users.isascii() and users.isdecimal()):
        raise SettingsError("users must be a whole number, or 'all'")
    if not output.resolve().parent.is_dir():
        raise SettingsError(f"{output} cannot be written: its folder is not there")
    console = Console(stderr=json)
    n_users = None if users == "all" else int(users)
    finished = demonstration.run(n_users, seed=seed, output=output, console=console)
    if json:
        sys.stdout.write(dumps(demonstration.to_json(finished)) + "\n")
        return
    demonstration.show(finished, catalogue.load(catalogue.IPUMS_1940_CITY), console)
    console.print(f"Written to {output}.")


@app.command(
    epilog="Example: shuffledp account --mechanism local-hashing --users 20000 --alphabet 53 "
    "--local-epsilon 4 --dummies 20000 --delta 1e-6 --compare",
)
def account(
    mechanism: Annotated[
        str, typer.Option(help=f"One of {', '.join(questions.MECHANISMS)}.")
    ] = "local-hashing",
    users: Annotated[int | None, typer.Option(help="Users in the batch, the victim too.")] = None,
    alphabet: Annotated[
        int | None, typer.Option(help="Items for grr, buckets for local-hashing.")
    ] = None,
    local_epsilon: Annotated[
        str | None, typer.Option(help="Local epsilon, or inf for no local noise.")
    ] = None,
    collision: Annotated[
        float | None,
        typer.Option(help="Collision probability of a hash family that is not pairwise uniform."),
    ] = None,
    rappor: Annotated[
        str | None, typer.Option(help="F,P,Q,HASHES of one report, for rappor.")
    ] = None,
    dummies: Annotated[int, typer.Option(help="Honest dummies in the batch.")] = 0,
    random_dummies: Annotated[
        str | None,
        typer.Option(
            help="More: binomial:TRIALS,CHANCE, poisson:MEAN, negative-binomial:R,MEAN "
            "or groups:SIZE,TRIALS,CHANCE."
        ),
    ] = None,
    dummies_per_user: Annotated[
        float, typer.Option(help="More, by each user who does not collude or skip; may be 1.3.")
    ] = 0.0,
    shuffler_dummies: Annotated[int, typer.Option(help="More, by the shuffler.")] = 0,
    known_dummies: Annotated[int, typer.Option(help="Dummies that the analyzer knows.")] = 0,
    colluders: Annotated[int, typer.Option(help="Users whose reports the analyzer knows.")] = 0,
    skippers: Annotated[int, typer.Option(help="Users who skip their dummies.")] = 0,
    delta: Annotated[float | None, typer.Option(help="Give this to get epsilon.")] = None,
    central_epsilon: Annotated[float | None, typer.Option(help="Give this to get delta.")] = None,
    compare: Annotated[
        bool, typer.Option("--compare", help="Also what an attack proves and what papers claim.")
    ] = False,
    batch: Annotated[
        Path | None, typer.Option(help="Answer a JSON list of questions instead.")
    ] = None,
    json: AsJson = False,
) -> None:
    """Bound epsilon or delta against the analyzer, for an honest shuffler; never too low."""
    if batch is not None:
        numbers = (users, alphabet, delta, central_epsilon, collision)
        words = (local_epsilon, random_dummies, rappor)
        counts = (dummies, dummies_per_user, shuffler_dummies, known_dummies, colluders, skippers)
        if any(option is not None for option in (*numbers, *words)) or any(counts):
            raise SettingsError("--batch takes its questions from the file alone")
        answers = question_file.answer_file(batch, comparing=compare)
        refused = sum("error" in answer for answer in answers)
        sys.stdout.write(dumps(answers) + "\n")
        if refused:
            sys.stderr.write(
                f"{refused} of {len(answers)} questions could not be answered; each says why\n"
            )
        return
    if users is None:
        raise SettingsError("give --users and a mechanism's numbers, or --batch FILE")
    question = questions.Question(
        subject=questions.subject_of(
            mechanism,
            None if local_epsilon is None else questions.parse_epsilon(local_epsilon),
            alphabet,
            collision,
            None if rappor is None else questions.Rappor.parse(rappor),
        ),
        crowd=questions.crowd_of(
            users=users,
            dummies=dummies,
            random_dummies=None if random_dummies is None else questions.parse_law(random_dummies),
            known_dummies=known_dummies,
            colluders=colluders,
            dummies_per_user=dummies_per_user,
            skippers=skippers,
            shuffler_dummies=shuffler_dummies,
        ),
        delta=delta,
        central_epsilon=central_epsilon,
    )
    guarantee = question.answer()
    answer = question_file.answer_fields(question, guarantee, comparing=compare)
    if json:
        sys.stdout.write(dumps(answer | {"guarantee": guarantee_as_json(guarantee)}) + "\n")
        return
    account_table.show(guarantee, answer, question.subject.local_epsilon, Console())


@app.command(
    epilog="Example: shuffledp plan --users 602325 --domain-size 915 --central-epsilon 0.2 "
    "--messages-cap 2 --local-cap 8 --output draft.toml",
)
def plan(
    users: Annotated[int, typer.Option(help="Users that are expected; the error is for these.")],
    domain_size: Annotated[int, typer.Option(help="Values that a user may hold.")],
    central_epsilon: Annotated[
        float, typer.Option(help="Wanted against the analyzer, for all rounds together.")
    ],
    n_min: Annotated[
        int | None, typer.Option(help="Fewest users that the promise must hold for.  [all]")
    ] = None,
    delta: Annotated[float, typer.Option(help="For all rounds together.")] = 1e-6,
    local_cap: Annotated[
        str | None,
        typer.Option(help="Most epsilon against shuffler and analyzer, per answer.  [none]"),
    ] = None,
    messages_cap: Annotated[
        float | None,
        typer.Option(help="Most messages expected of a user, the own one included.  [none]"),
    ] = None,
    rounds: Annotated[int, typer.Option(help="Tasks that the same users answer.")] = 1,
    honest_fraction: Annotated[
        float, typer.Option(help="Share of the users that the promise relies on.")
    ] = 1.0,
    population: Annotated[
        str, typer.Option(help="Name of the users, for the draft; needed for several rounds.")
    ] = "",
    trust: Annotated[
        str, typer.Option(help="In the shuffler: anonymity or none (shuffler-dummies: not yet).")
    ] = "anonymity",
    head: Annotated[
        str, typer.Option(help="Expected shares of the most frequent values.")
    ] = "0.05",
    max_mse: Annotated[
        float | None, typer.Option(help="Largest mean squared error of a share that is of use.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option(help="Write a draft for `shuffledp task create`.")
    ] = None,
    json: AsJson = False,
) -> None:
    """Find the protocol and parameters with the least error that keep a promise."""
    if output is not None and not output.resolve().parent.is_dir():
        raise SettingsError(f"{output} cannot be written: its folder is not there")
    wishes = Wishes(
        n_users=users,
        n_min=users if n_min is None else n_min,
        domain_size=domain_size,
        central_epsilon=central_epsilon,
        delta=delta,
        local_cap=planner.parse_cap(local_cap),
        messages_cap=math.inf if messages_cap is None else messages_cap,
        rounds=rounds,
        honest_fraction=honest_fraction,
        trust=planner.parse_trust(trust),
        head=planner.parse_head(head),
        max_mse=math.inf if max_mse is None else max_mse,
    )
    console = Console(stderr=json)
    with console.status("Judging designs with the exact accountant"):
        found = planning.plan(wishes)
    if output is not None:
        _write(output, planner.draft(found, SystemClock().now(), population))
    if json:
        sys.stdout.write(dumps(planner.to_json(found)) + "\n")
        return
    planner.show(found, console)
    if output is not None:
        console.print(f"Written to {output}.")


@task_app.command(
    "create",
    epilog="Example: shuffledp task create draft.toml --analyzer 127.0.0.1:7001 --token-file "
    "state/analyzer/operator.token --authority state/tls/authority.pem --shuffler-key "
    "state/shuffler/envelope.pub",
)
def task_create(
    draft: Annotated[Path, typer.Argument(help="A TOML file with the keys of a draft.")],
    analyzer: AnalyzerAddress,
    token_file: TokenFile,
    shuffler_key: Annotated[
        Path, typer.Option(help="The shuffler's public key: STATE/envelope.pub.")
    ],
    authority: Authority = None,
    json: AsJson = False,
) -> None:
    """Publish a task, signed by the analyzer. Needs the operator's token."""
    wanted = draft_file.read(draft, _hexadecimal_file(shuffler_key))

    async def create() -> None:
        async with OperatorClient.connect(analyzer, authority, token_file) as operator:
            signed = await operator.create_task(wanted)
        task = Task.from_bytes(signed.task_bytes)
        if json:
            fields = json_reader.loads(signed.task_bytes)
            written = dumps({"task_digest": signed.digest().hex(), "task": fields})
            sys.stdout.write(written + "\n")
            return
        Console().print(
            f"Task {signed.digest().hex()}\n"
            f"Users will be promised: epsilon {rounded_up(task.central_epsilon)} at delta "
            f"{rounded_up(task.delta)} against the analyzer, if "
            f"{task.honest_users(task.n_min)} users are honest; "
            f"epsilon {rounded_up(task.local_epsilon)} against shuffler and analyzer together.\n"
            "All releases to this population together may cost at most epsilon "
            f"{rounded_up(task.budget_epsilon)} at delta {rounded_up(task.budget_delta)} "
            "against the analyzer."
        )

    asyncio.run(create())


@app.command(
    epilog="Example: shuffledp result 5b1f… --analyzer 127.0.0.1:7001 --token-file "
    "state/analyzer/operator.token --authority state/tls/authority.pem",
)
def result(
    task: Annotated[str, typer.Argument(help="The task's digest, 64 hexadecimal digits.")],
    analyzer: AnalyzerAddress,
    token_file: TokenFile,
    authority: Authority = None,
) -> None:
    """Print a released result as JSON. Needs the operator's token."""
    digest = TaskDigest(_hexadecimal("the task's digest", task, DIGEST_BYTES))

    async def read() -> None:
        async with OperatorClient.connect(analyzer, authority, token_file) as operator:
            sys.stdout.write(dumps(as_json(await operator.result(digest))) + "\n")

    asyncio.run(read())


@app.command(
    epilog="Example: shuffledp ledger --analyzer 127.0.0.1:7001 --token-file "
    "state/analyzer/operator.token --authority state/tls/authority.pem",
)
def ledger(
    analyzer: AnalyzerAddress,
    token_file: TokenFile,
    authority: Authority = None,
    json: AsJson = False,
) -> None:
    """Print what every release cost, and verify the chain. Needs the operator's token."""

    async def read() -> None:
        async with OperatorClient.connect(analyzer, authority, token_file) as operator:
            entries, head = await operator.ledger()
        if json:
            sys.stdout.write(dumps(ledger_table.as_json(entries, head)) + "\n")
            return
        ledger_table.show(entries, head, Console())

    asyncio.run(read())


@app.command(
    epilog="Example: shuffledp contribute 5b1f… --agent unix:state/user_agent.sock < value.txt",
)
def contribute(
    task: Annotated[str, typer.Argument(help="The task's digest, 64 hexadecimal digits.")],
    agent: Annotated[str, typer.Option(help="Address of your user agent: unix:PATH.")],
    person: Annotated[
        str, typer.Option(help="For whom, if the agent answers for several people.")
    ] = "",
) -> None:
    """Contribute one value, an item's number, through your own user agent."""
    digest = TaskDigest(_hexadecimal("the task's digest", task, DIGEST_BYTES))
    # Asked for, or read from standard input: an argument would stay in the shell's history.
    value = typer.prompt("Your value", hide_input=True) if sys.stdin.isatty() else sys.stdin.read()
    if not (value.strip().isascii() and value.strip().isdecimal()):
        raise ValueRangeError("a value is an item's number, 0 or more")
    receipt = asyncio.run(send(agent, digest, int(value), person))
    Console().print(
        "This task had been answered before; the value was not used."
        if receipt.repeated
        else f"Contributed. This spends a local epsilon of {rounded_up(receipt.local_epsilon)}."
    )


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise SettingsError(f"{path} cannot be written: {error.strerror}") from error


def _hexadecimal_file(path: Path) -> bytes:
    try:
        text = path.read_text(encoding="ascii").strip()
    except OSError as error:
        raise SettingsError(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise KeyFormatError(f"{path} must hold {2 * KEY_BYTES} hexadecimal digits") from error
    return _hexadecimal(str(path), text, KEY_BYTES)


def _hexadecimal(name: str, text: str, length: int) -> bytes:
    try:
        value = bytes.fromhex(text)
    except ValueError as error:
        raise KeyFormatError(f"{name} must be {2 * length} hexadecimal digits") from error
    if len(value) != length:
        raise KeyFormatError(f"{name} has {len(text)} digits; it must have {2 * length}")
    return value


def main() -> None:
    """Run the command; a foreseen failure is one sentence and exit status 1."""
    try:
        app()
    except ShuffleDpError as error:
        sys.exit(f"shuffledp: {error}")
    except KeyboardInterrupt:
        sys.exit("shuffledp: interrupted")
