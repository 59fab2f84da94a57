"""`shuffledp account`: bound epsilon or delta for given parameters."""

import sys
from functools import partial
from pathlib import Path

import typer

from shuffledp.common.errors import UsageError
from shuffledp.deploy.commands import options
from shuffledp.deploy.terminal.json_output import print_answer, print_json

app = typer.Typer()


@options.command(
    app,
    "shuffledp account --mechanism local-hashing --users 20000 --alphabet 53 "
    "--local-epsilon 4 --dummies 20000 --delta 1e-6 --compare",
)
def account(
    context: typer.Context,
    *,
    mechanism: str = "local-hashing",
    users: options.OptionalWhole = None,
    alphabet: int | None = None,
    local_epsilon: float | None = None,
    collision: float | None = None,
    rappor: str | None = None,
    dummies: options.Whole = 0,
    random_dummies: str | None = None,
    dummies_per_user: float = 0.0,
    shuffler_dummies: options.Whole = 0,
    known_dummies: options.Whole = 0,
    colluders: options.Whole = 0,
    skippers: options.Whole = 0,
    delta: float | None = None,
    central_epsilon: float | None = None,
    compare: options.Flag = False,
    batch: Path | None = None,
    json: options.AsJson = False,
) -> None:
    """
    Compute an upper bound on epsilon or delta against the analyzer, for an honest shuffler.

    For the claims of a whole task, use `shuffledp task create --dry-run`.

    Options:
        mechanism: One of grr, local-hashing, symmetric-unary, optimized-unary, duchi, piecewise,
            laplace, rappor.
        users: Users in the batch, including the victim.  [required, or --batch]
        alphabet: Number of items (grr) or buckets (local-hashing); required for both.
        local_epsilon: inf: no local noise.  [required, except for rappor]
        collision: Probability that two values share a bucket.  [1 / --alphabet]
        rappor: F,P,Q,HASHES: RAPPOR's parameters for one report, named as in [EPK14].
        dummies: Number of honest dummies in the batch.
        random_dummies: Random dummies: binomial:TRIALS,PROBABILITY, poisson:MEAN,
            negative-binomial:R,MEAN or groups:SIZE,TRIALS,PROBABILITY.
        dummies_per_user: Dummies per user, such as 1.3, excluding --colluders and --skippers.
        shuffler_dummies: Uniform dummies from the shuffler.
        known_dummies: Dummies that the analyzer recognizes.
        colluders: Users who reveal their messages to the analyzer.
        skippers: Users who skip their dummies.
        delta: Compute epsilon at this delta.
        central_epsilon: Compute delta at this epsilon.
        compare: Also print the lower bound that an attack proves, and published bounds.
        batch: Answer a JSON list of queries instead; see docs/theory/accounting.md.
    """
    asked = {**locals()}
    from shuffledp.lab.accountant import query_output
    from shuffledp.lab.accountant.query import ask

    if batch is not None:
        if options.given_options(context) - {"batch", "compare", "json"}:
            raise UsageError("--batch allows only the options --compare and --json")
        found = query_output.answer_file(batch, comparing=compare)
        refused = sum("error" in answer for answer in found)
        print_json(found)
        if refused:
            sys.stderr.write(
                f"{refused} of {len(found)} queries failed; their answers state the errors\n"
            )
            raise typer.Exit(1)
        return
    if users is None:
        raise UsageError("use --users and the mechanism's options, or --batch FILE")
    query, guarantee = ask(asked)
    answer = query_output.answer_fields(query, guarantee, comparing=compare)
    show = partial(query_output.show, guarantee, answer, query.local_epsilon)
    print_answer(answer | {"guarantee": guarantee}, show, json=json)
