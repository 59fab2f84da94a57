"""`shuffledp account`."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from common.errors import SettingsError
from deploy.accountant import answers
from deploy.accountant import query as questions
from deploy.commands.example import example
from deploy.commands.options import AsJson
from deploy.tasks.value_parser import parse_numbers
from deploy.terminal.console import terminal
from deploy.terminal.json_output import guarantee_as_json, print_json

app = typer.Typer()


@app.command(
    epilog=example(
        "shuffledp account --mechanism local-hashing --users 20000 --alphabet 53 "
        "--local-epsilon 4 --dummies 20000 --delta 1e-6 --compare"
    )
)
def account(
    context: typer.Context,
    *,
    mechanism: Annotated[
        str, typer.Option(help=f"One of {', '.join(questions.MECHANISMS)}.")
    ] = "local-hashing",
    users: Annotated[
        int | None, typer.Option(help="Users in the batch, the victim too.  [this, or --batch]")
    ] = None,
    alphabet: Annotated[
        int | None, typer.Option(help="Items for grr, buckets for local-hashing; required there.")
    ] = None,
    local_epsilon: Annotated[
        float | None, typer.Option(help="inf for no local noise.  [required, except for rappor]")
    ] = None,
    collision: Annotated[
        float | None,
        typer.Option(help="Chance that two values share a bucket, if not one in --alphabet."),
    ] = None,
    rappor: Annotated[
        str | None, typer.Option(help="F,P,Q,HASHES of one report, as its paper calls them.")
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
        float, typer.Option(help="More, by each user but --colluders and --skippers; may be 1.3.")
    ] = 0.0,
    shuffler_dummies: Annotated[int, typer.Option(help="More uniform ones, by the shuffler.")] = 0,
    known_dummies: Annotated[int, typer.Option(help="Dummies that the analyzer can tell.")] = 0,
    colluders: Annotated[int, typer.Option(help="Users who tell the analyzer what they sent.")] = 0,
    skippers: Annotated[int, typer.Option(help="Users who leave out their dummies.")] = 0,
    delta: Annotated[float | None, typer.Option(help="Give this to get epsilon.")] = None,
    central_epsilon: Annotated[float | None, typer.Option(help="Give this to get delta.")] = None,
    compare: Annotated[
        bool, typer.Option("--compare", help="Also what an attack proves and what papers claim.")
    ] = False,
    batch: Annotated[
        Path | None,
        typer.Option(help="A JSON list of questions to answer instead: docs/theory/accounting.md."),
    ] = None,
    json: AsJson = False,
) -> None:
    """
    Bound epsilon or delta against the analyzer, for an honest shuffler; never too low.

    What a task claims, of any protocol, is printed by `shuffledp task create --dry-run`.
    """
    if batch is not None:
        sources = {name: context.get_parameter_source(name) for name in context.params}
        given = {name for name, source in sources.items() if source and source.name != "DEFAULT"}
        if given - {"batch", "compare", "json"}:
            raise SettingsError("--batch takes its questions from the file alone")
        found = answers.answer_file(batch, comparing=compare)
        refused = sum("error" in answer for answer in found)
        print_json(found)
        if refused:
            sys.stderr.write(
                f"{refused} of {len(found)} questions could not be answered; each says why\n"
            )
        return
    if users is None:
        raise SettingsError("give --users and a mechanism's numbers, or --batch FILE")
    fields = {
        "kind": mechanism,
        "n": users,
        "k": alphabet,
        "eps_l": local_epsilon,
        "coll": collision,
        "rappor": None if rappor is None else parse_numbers(rappor, "rappor must be F,P,Q,HASHES"),
        "M": dummies,
        "m": dummies_per_user,
        "M_shuffler": shuffler_dummies,
        "known_dummies": known_dummies,
        "colluders": colluders,
        "skippers": skippers,
        "eps": central_epsilon,
        "delta": delta,
    }
    random = {} if random_dummies is None else questions.parse_law(random_dummies)
    question = questions.Question.read(fields | random)
    guarantee = question.answer()
    answer = answers.answer_fields(question, guarantee, comparing=compare)
    if json:
        print_json(answer | {"guarantee": guarantee_as_json(guarantee)})
        return
    answers.show(guarantee, answer, question.subject.local_epsilon, terminal())
