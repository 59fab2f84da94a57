"""`shuffledp account`: an answer of the accountant on the terminal."""

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from common.messages.guarantee import Guarantee, rounded_down, rounded_up
from deploy.terminal.tables import add_columns


def show(
    guarantee: Guarantee, answer: Mapping[str, Any], local_epsilon: float, console: Console
) -> None:
    """Print an answer for a reader: the bound as it is, then rounded up with all it rests on."""
    name = "epsilon_upper" if "epsilon_upper" in answer else "delta_upper"
    console.print(
        f"{name} = {answer[name]}\n"
        f"({rounded_up(guarantee.epsilon)}, {rounded_up(guarantee.delta)})-differential privacy "
        f"against the {guarantee.coalition}, {guarantee.neighbouring}, if "
        f"{'; '.join(guarantee.assumptions)}.\n"
        f"By the {guarantee.theorem}.\n"
        "Against shuffler and analyzer together: "
        f"epsilon = {rounded_up(local_epsilon)}, delta = 0.",
        highlight=False,
    )
    if "compare" not in answer:
        return
    if isinstance(answer["compare"], str):
        console.print(f"No comparison: {answer['compare']}.")
        return
    table = Table(title=f"Central epsilon at delta {guarantee.delta:g}, by every bound")
    add_columns(table, {"bound": "left", "epsilon, or why none": "left"})
    table.add_row("this accountant, an upper bound", rounded_up(guarantee.epsilon))
    table.add_row("proven by an attack, a lower bound", rounded_down(answer["epsilon_lower"]))
    for row in answer["compare"]:
        said = row.get("refused") or rounded_up(float(row["epsilon"]))
        table.add_row(escape(row["bound"]), escape(str(said)))
    console.print(table)
