"""`shuffledp plan`: find the best parameters that meet a guarantee."""

import math
from dataclasses import replace
from functools import partial
from typing import Final, Literal

import typer

from shuffledp.common.errors import UsageError
from shuffledp.common.messages.guarantee import rounded_up
from shuffledp.deploy.commands import options
from shuffledp.deploy.terminal.console import print_written, terminal
from shuffledp.deploy.terminal.files import write
from shuffledp.deploy.terminal.json_output import print_json

app = typer.Typer()

_PARSED: Final = {
    *("context", "task_kind", "attribute_sizes", "pairs", "margins", "encoding", "code_bytes"),
    *("output", "guarantees", "json"),
}
"""Parameters that are no requirements, or parts of some."""


@options.command(
    app,
    "shuffledp plan --users 602325 --domain-size 915 --central-epsilon 0.02 --messages-cap "
    "2 --local-cap 4 --output draft.toml",
    "shuffledp plan --users 602325 --domain-size 915 --central-epsilon 1 --shufflers 2 --output "
    "draft.toml",
    "shuffledp plan --task-kind ordered --users 602325 --domain-size 4096 --low 0 --high 60000 "
    "--unit ms --central-epsilon 1",
    "shuffledp plan --task-kind table --users 602325 --attribute-sizes 20,20,5 --central-epsilon 1",
    "shuffledp plan --task-kind vector --users 20000 --domain-size 8 --low 1 --high 5 "
    "--central-epsilon 0.5",
)
def plan(
    context: typer.Context,
    users: options.Whole,
    central_epsilon: float,
    domain_size: options.OptionalWhole = None,
    task_kind: options.TaskKind = "categorical",
    low: float | None = None,
    high: float | None = None,
    spacing: Literal["equal", "logarithmic"] = "equal",
    unit: str = "",
    breakdown: str = "",
    attribute_sizes: str = "",
    pairs: str = "",
    margins: options.Flag = False,
    margin_share: float = 0.1,
    prefix: Literal["average", "worst"] = "average",
    encoding: Literal["text", "code", "hash"] = "text",
    code_bytes: int = 8,
    n_min: options.OptionalWhole = None,
    delta: float | None = None,
    local_cap: str | None = None,
    shufflers: int = 1,
    coalition_epsilon: float | None = None,
    messages_cap: float = math.inf,
    bytes_cap: float = math.inf,
    influence_cap: float = math.inf,
    rounds: int = 1,
    honest_fraction: float = 1.0,
    population: str = "",
    trust: Literal["shuffler-dummies", "anonymity", "none"] = "anonymity",
    head: str = "0.05",
    max_mse: float = math.inf,
    output: options.OptionalOutput = None,
    guarantees: options.AllGuarantees = False,
    json: options.AsJson = False,
) -> None:
    """
    Find the protocol and parameters with the least error under a privacy target.

    --messages-cap, --bytes-cap, --trust, --shufflers and --coalition-epsilon are for categorical
    and ordered data, numbers and tables of attributes; --influence-cap and --rounds for those but
    numbers, --max-mse for the first two, --head for categorical data.

    Options:
        users: Expected number of users, for which the error is minimized.
        central_epsilon: Target epsilon against the analyzer, for all rounds together.
        domain_size: Number of possible values, of buckets, of numbers in a vector, or of keys.
        low: Lower end of the value range, with --high.  [-1; none for buckets]
        high: Upper end of the value range, with --low.  [1; none for buckets]
        spacing: Buckets of equal width (equal) or of equal ratio (logarithmic).
        unit: Unit of the numbers in buckets, such as ms.
        breakdown: A public attribute and its values, such as country=DE,FR.
        attribute_sizes: Number of values of each attribute, such as 20,20,5; the draft names them
            by numbers.
        pairs: Pairs of attributes by number, such as 1:2,1:3.  [all]
        margins: Collect a table of each attribute too, which makes its shares more accurate.
        margin_share: Share of the squared privacy loss for the tables of --margins.
        prefix: Share below an edge whose error to minimize, for buckets: the average or worst one.
        encoding: Form of the values of an open dictionary: a short text, a code, or the hash of a
            longer text.
        code_bytes: Bytes of a short text, a code or a hash.
        n_min: Minimum users for which the guarantee must hold.  [all]
        delta: Target delta, for all rounds together.  [the lesser of 1e-6 and 0.1 / --users]
        local_cap: Maximum epsilon per answer against the shuffler and analyzer together, or
            none.  [4, the default limit of devices; none for tables and two shufflers]
        shufflers: Number of shufflers, 1 or 2. Each of two adds noise; reports have none of their
            own, so a local cap is refused.
        coalition_epsilon: Target epsilon of a task against the analyzer with either of two
            shufflers.  [4, the default limit of devices]
        messages_cap: Maximum expected messages per user.  [5 for signed, 7 a number for digits]
        bytes_cap: Maximum average bytes of a submission.
        influence_cap: Maximum users by which one dishonest submission may move a value.
        rounds: Number of tasks for the same users.
        honest_fraction: Share of users on whom the guarantee relies.
        population: Name of the population in the draft; required for several rounds.
        trust: Trust in the shuffler: anonymity (it permutes and forgets senders), shuffler-dummies
            (it also adds dummies), or none.
        head: Largest expected shares, such as 0.2,0.05.
        max_mse: Maximum useful mean squared error of a share.
        output: Write a draft for `shuffledp task create`.
    """
    asked = {**locals()}
    from shuffledp.common.runtime.clock import SystemClock
    from shuffledp.common.task.draft import OpenDraft
    from shuffledp.common.task.kinds import KINDS
    from shuffledp.deploy.tasks.value_parser import parse_breakdown, parse_tables
    from shuffledp.lab.planning import plan_view, planner, question
    from shuffledp.lab.planning.plan_warnings import with_warnings

    console, cap = terminal(stderr=json), question.default_local_cap(rounds)
    options.check_kinds(context)
    if "margin_share" in options.given_options(context) and not margins:
        raise UsageError("--margin-share is the share of --margins, which is missing")
    tabled, opened = (name in KINDS[task_kind].tables for name in ("tables", "open"))
    asked |= {
        "kind": task_kind,
        "breakdown": parse_breakdown(breakdown) if breakdown else None,
        "tables": parse_tables(attribute_sizes, pairs, margins=margins) if tabled else None,
        "form": OpenDraft(encoding=encoding, code_bytes=code_bytes) if opened else None,
        "local_cap": None if local_cap is None else options.parse_cap(local_cap),
        "head": options.parse_shares(head),
    }
    target = question.requirements(**{name: asked[name] for name in asked.keys() - _PARSED})
    with console.status("Planning") as status:
        found = planner.plan(target, lambda name: status.update(f"Planning {name}"))
        least, found = planner.least_errors(found, cap), with_warnings(found)
    named = partial(options.as_options, context)
    warnings = tuple(map(named, found.warnings))
    left_out = {name: named(why) for name, why in found.left_out.items()}
    found = replace(found, warnings=warnings, left_out=left_out)
    if output is not None:
        write(output, plan_view.draft(found, SystemClock().now()))
    if json:
        print_json(plan_view.to_json(found) | {"least_mse": least})
        return
    plan_view.show(found, console, guarantees=guarantees)
    console.print(plan_view.least_sentence(least), highlight=False)
    usual_cap = question.usual_local_cap(task_kind, rounds, shufflers)
    defaults = {
        f"Delta is {rounded_up(target.delta)}, the lesser of 1e-6 and 0.1 / --users; --delta "
        "changes it.": delta,
        f"The plan keeps local epsilon at most {cap:g}, the default limit of devices; "
        "--local-cap changes it.": local_cap if cap == usual_cap else "none",
    }
    for sentence in (text for text, given in defaults.items() if given is None):
        console.print(sentence, style="dim", highlight=False)
    print_written([output], console)
