"""Output of `shuffledp account`: answers in the terminal, as JSON, and for a file of queries."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from shuffledp.common.errors import AccountingError
from shuffledp.common.messages.guarantee import Guarantee, delta_warnings, rounded_down, rounded_up
from shuffledp.common.runtime.validation import read_file
from shuffledp.deploy.terminal.tables import add_columns
from shuffledp.lab.accountant.query import Query


def answer_file(path: Path, *, comparing: bool = False) -> list[dict[str, Any]]:
    """Answer a file's JSON list of queries, in order; raise AccountingError if there is no list."""
    try:
        queries = json.loads(read_file(path))
    except (ValueError, RecursionError) as error:
        raise AccountingError(f"{path} is not JSON") from error
    if not isinstance(queries, list):
        raise AccountingError(f"{path} must be a JSON list of queries")
    return [_answer_entry(query, comparing=comparing) for query in queries]


def _answer_entry(fields: object, *, comparing: bool) -> dict[str, Any]:
    if not isinstance(fields, dict):
        return {"error": "a query must be a JSON object"}
    try:
        query = Query.read(fields)
        return answer_fields(query, query.answer(), comparing=comparing)
    except AccountingError as error:
        return {"error": str(error)}


def answer_fields(query: Query, guarantee: Guarantee, *, comparing: bool) -> dict[str, Any]:
    """Return an answer's JSON fields: epsilon_upper or delta_upper, and any comparison."""
    fields: dict[str, Any] = (
        {"delta_upper": guarantee.delta}
        if query.delta is None
        else {"epsilon_upper": guarantee.epsilon}
    )
    if warnings := delta_warnings(guarantee.delta, query.anonymity_set.users):
        fields["warnings"] = warnings
    try:
        return fields | (query.comparison() if comparing else {})
    except AccountingError as error:
        return fields | {"compare": str(error)}


def show(
    guarantee: Guarantee, answer: Mapping[str, Any], local_epsilon: float, console: Console
) -> None:
    """Print the exact bound, the guarantee rounded up with its assumptions, and the comparison."""
    name = "epsilon_upper" if "epsilon_upper" in answer else "delta_upper"
    console.print(
        f"{name} = {answer[name]}\n"
        f"({rounded_up(guarantee.epsilon)}, {rounded_up(guarantee.delta)})-differential privacy "
        f"against the {guarantee.coalition}, {guarantee.neighbouring}, if "
        f"{'; '.join(guarantee.assumptions)}.\n"
        f"By the {guarantee.theorem}.\n"
        "Against the shuffler and analyzer together: "
        f"epsilon = {rounded_up(local_epsilon)}, delta = 0.",
        highlight=False,
    )
    for warning in answer.get("warnings", ()):
        console.print(f"{warning}.")
    if "compare" not in answer:
        return
    if isinstance(answer["compare"], str):
        console.print(f"No comparison: {answer['compare']}.")
        return
    table = Table(title=f"Bounds on the central epsilon at delta {guarantee.delta:g}")
    add_columns(table, {"bound": "left", "epsilon, or reason for none": "left"})
    table.add_row("this accountant (upper bound)", rounded_up(guarantee.epsilon))
    family = f"for {answer['proven_for']}, " if "proven_for" in answer else ""
    proven = f"proven {family}by an attack (lower bound)"
    table.add_row(proven, rounded_down(answer["epsilon_lower"]))
    for row in answer["compare"]:
        cell = row.get("refused") or rounded_up(float(row["epsilon"]))
        table.add_row(escape(row["bound"]), escape(str(cell)))
    console.print(table)
