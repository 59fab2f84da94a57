"""Show a plan as tables, as JSON and as a task draft."""

import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from rich.console import Console

from shuffledp.common.errors import PlanError
from shuffledp.common.messages.guarantee import rounded_up
from shuffledp.common.task.cluster_dummies import ClusterDummies
from shuffledp.common.task.kinds import KINDS
from shuffledp.common.task.shuffling import Shuffling
from shuffledp.deploy.tasks.drafts import as_toml, shuffler_table
from shuffledp.deploy.terminal import tables
from shuffledp.lab.planning.design import Design
from shuffledp.lab.planning.planner import DAYS_TO_DEADLINE, Plan


def least_sentence(least: Mapping[str, float]) -> str:
    """Return a sentence with the errors of `least_errors`; an infinite one has no design."""
    shown = {name: f"{most:.3g}".replace("inf", "no design") for name, most in least.items()}
    return (
        "Least mean squared error with a local cap of {local_cap}: {with_local_cap}; without one: "
        "{without_local_cap}; with two shufflers, which need a second operator: {two_shufflers}."
    ).format(**shown)


def to_json(plan: Plan) -> dict[str, Any]:
    """Return a plan's JSON fields; an infinite number is the text "inf"."""
    target, best = plan.target, plan.best
    found = {
        **_design_as_json(best),
        "bytes_per_user": best.bytes_per_user,
        "guarantees": plan.guarantees,
        "runners_up": [_design_as_json(other) for other in plan.runners_up],
        "two_shufflers": plan.two_shufflers and _design_as_json(plan.two_shufflers),
        "warnings": list(plan.warnings),
        "left_out": dict(plan.left_out),
        "users": target.n_users,
        "n_min": target.n_min,
        "domain_size": target.domain_size,
        "delta": target.delta,
    }
    if not best.kind.of_items:
        return {"kind": target.kind, **found}
    return found | {
        "predicted_mse_top": best.head_errors(),
        "binding": list(plan.binding),
        "honest_users": target.honest,
        "central_epsilon": plan.central_guarantee.epsilon,
        "rounds": target.rounds,
        "trust": target.trust,
    }


def _design_as_json(design: Design) -> dict[str, Any]:
    common = {
        "protocol": design.protocol,
        "predicted_mse": design.mse,
        "ratio_to_central_gaussian": design.ratio_to_central_gaussian,
        "messages_per_user": design.messages_per_user,
    }
    if design.draft.relay:
        common["relay"] = _noise_as_json(design.unclaimed.hop(1))
        for claim in ("central_epsilon", "coalition_epsilon"):
            common[claim] = getattr(design.task, claim)
    dummies = design.unclaimed.dummies
    if math.isinf(design.local_epsilon) or design.kind.of_items:
        up, down = design.influence
        common |= {
            "dummies_per_user": dummies.expected_per_user,
            "shuffler": _noise_as_json(design.unclaimed.hop(0)),
            "largest_submission": design.unclaimed.lengths[-1],
            "influence": {"up": up, "down": down},
        }
    if not design.kind.of_items:
        return common | {
            "mechanism": {
                name.removeprefix("lasting_"): number
                for name, number in asdict(design.task.mechanism).items()
            },
            "local_epsilon": design.local_epsilon,
            "central_epsilon": design.task.central_epsilon,
            "bytes_per_user": design.bytes_per_user,
            "biased": design.biased,
            "floor": design.floor,
            **design.figures,
        }
    return common | {
        "mechanism": {
            "name": "local-hashing" if design.draft.buckets else "grr",
            "buckets": design.draft.buckets or design.target.domain_size,
            "local_epsilon": design.local_epsilon,
        },
        "clusters": asdict(dummies) if isinstance(dummies, ClusterDummies) else None,
    }


def _noise_as_json(shuffler: Shuffling) -> dict[str, Any]:
    """Return a shuffler's noise; of several views, a list."""
    views = [shuffler_table(view) for view in shuffler.by_view]
    return views[0] if len(views) == 1 else {"views": views}


def draft(plan: Plan, now: float) -> str:
    """
    Return the plan as a TOML draft for `shuffledp task create`, with a deadline in a week.

    The draft's budget is the plan's target (ε, δ). Raises PlanError if a plan for several rounds
    names no population.
    """
    target, best, central = plan.target, plan.best, plan.central_guarantee
    if target.rounds > 1 and not target.draft_fields.get("population"):
        raise PlanError(
            f"a draft for {target.rounds} rounds needs the name of its population, whose releases "
            "share one budget: use population=NAME"
        )
    one = best.draft.relay is None
    weakest = "shuffler+analyzer" if one else "either-shuffler"
    local = next(row for row in plan.guarantees if row.coalition == weakest)
    rounds = f", over {target.rounds} tasks" * (target.rounds > 1)
    comments = f"""\
# {_predicted(best)}
# Guarantee for at least {target.n_min} users, {target.honest} of them honest{rounds}:
# epsilon {rounded_up(central.epsilon)} at delta {rounded_up(central.delta)} against the analyzer, \
{rounded_up(local.epsilon)} against {"the" if one else "either"} shuffler and analyzer together.
# The budget limits the privacy loss of all releases about these users; the deadline is in \
{DAYS_TO_DEADLINE} days.
"""
    return comments + as_toml(plan.task_draft(now))


def _predicted(design: Design) -> str:
    """Return sentences with the predicted error of a plan, in the values' unit and squared."""
    kind, error = design.kind, design.mse
    qualified = " or more" * design.floor + " without its bias" * design.biased
    share = design.figures.get("smallest_share", 0.0)
    found = f" A value that {100 * share:.3g} % of users hold is found with 95 % probability."
    found = " With so few users no value is found reliably." if share == 1 else found * (share > 0)
    return (
        f"Predicted for {design.target.n_users:,} users: standard error of {kind.error_of} "
        f"{math.sqrt(error):.2g}{kind.unit} (mean squared error {error:.4g}{qualified}).{found}"
    )


def show(plan: Plan, console: Console, *, guarantees: bool) -> None:
    """Print the best design and its guarantee, then that of each protocol, and notes."""
    target, best, kind = plan.target, plan.best, plan.best.kind
    legend = f"error: mean squared error of {kind.error_of}; ratio: to central Gaussian noise's"
    listed = [best, *plan.runners_up]
    if (two := plan.two_shufflers) is not None:
        legend += "; x2: two shufflers, which need a second operator and --shufflers 2"
        listed += [two] * (two is not best)
    if kind.of_items:
        legend += "; one liar: users by which one dishonest submission moves a value."
    else:
        legend += "; claim: the central epsilon that each task will state. "
        legend += tables.CLAIM_ROOM_NOTE
    console.print(
        f"[bold]{best.protocol}[/bold]: {kind.describe(best.unclaimed)} and "
        f"{best.bytes_per_user:,} bytes per user{' and round' * (target.rounds > 1)}."
    )
    console.print(_predicted(best))
    if kind.sentence:
        console.print(kind.sentence.format(**best.figures))
    if kind.of_items:
        errors = zip(target.head, best.head_errors(), strict=True)
        top = ", ".join(f"{share:g} ± {math.sqrt(error):.2g}" for share, error in errors)
        binding = ", ".join(plan.binding) or "none"
        console.print(f"Values of --head ± standard error: {top}. Binding constraints: {binding}.")
    local = rounded_up(best.parameters.local_epsilon_of_all_rounds)
    console.print(
        f"Guarantee for each of at least {target.n_min:,} users: "
        f"{tables.guarantee_summary(plan.central_guarantee, plan.guarantees, local)}"
    )
    console.print("[bold]Best design of each protocol under these requirements[/bold]")
    tables.print_rows([_cells(design) for design in listed], console, {"protocol"})
    console.print(legend, style="dim", highlight=False)
    for name, why in plan.left_out.items():
        console.print(f"{name} is skipped: {why}.", style="dim")
    for note in plan.warnings:
        console.print(f"[bold]Note:[/bold] {note}")
    if not guarantees:
        return
    title = f"Guarantees for each of at least {target.n_min:,} users"
    tables.print_guarantees(plan.guarantees, title, console)
    if any(row.coalition == "analyzer+sybils" for row in plan.guarantees):
        console.print("With one-time tokens (task create --token-key), nobody can make users up.")


def _cells(design: Design) -> dict[str, str]:
    name = design.protocol + " x2" * (design.draft.relay is not None)
    cells, items = {"protocol": name}, design.kind.of_items
    if items:
        cells["buckets"] = f"{design.draft.buckets:,}" if design.draft.buckets else "-"
    cells["local ε"] = rounded_up(design.local_epsilon)
    if not items:
        cells["claim"] = rounded_up(design.task.central_epsilon)
    if "messages_cap" in KINDS[design.target.kind].requirements:
        cells["messages"] = f"{design.messages_per_user:.4g}"
    cells |= {
        "bytes": f"{design.bytes_per_user:,}",
        "error": f"{design.mse:.3g}{' + bias' * design.biased}",
        "ratio": f"{design.ratio_to_central_gaussian:.3g}",
    }
    if items:
        cells["one liar"] = "+{:.3g}/-{:.3g}".format(*design.influence)
    return cells
