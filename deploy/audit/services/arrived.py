"""Who arrived: guarantees are stated, and budgets charged, for the users who came."""

import math

from common.accounting.guarantees import Terms, claimed_guarantee, guarantees_under
from common.messages.guarantee import claimed, rounded_up, sum_upper
from deploy.audit.checks import Checks
from deploy.audit.finding import Finding
from deploy.audit.services.contents import refusals
from deploy.audit.services.facts import OF_ARRIVALS, must_hold
from deploy.audit.services.record import Collection, Record
from deploy.audit.services.views import Views


def finding(record: Record, views: dict[str, Views]) -> Finding:
    """Compare what was released with what the accountant says of those who arrived."""
    checks = Checks()
    for collection in (record.first, record.early):
        view = views.get(collection.name)
        released = view is not None and collection.result is not None
        checks.must(f"the {collection.name} batch was released", released)
        if view is not None and collection.result is not None:
            _stated(checks, record, collection, view)
    _budget(checks, record)
    _few(checks, record)
    must_hold(checks, record.facts, OF_ARRIVALS)
    early = record.early
    came = early.result.n_users if early.result else 0
    epsilon = claimed(early.result.guarantees).epsilon if early.result else math.inf
    return checks.finding(
        scenario="services",
        title="Fewer users than planned",
        heading="correctness",
        sentence=(
            f"A batch of {came} users, planned for {early.task.target_size}, was released with "
            f"ε = {rounded_up(epsilon)} at δ = {rounded_up(early.task.delta)}: what holds for "
            "those who came, every report that was refused taken off; and its population was "
            "charged exactly that. A batch below n_min was never released."
        ),
        trials=came,
    )


def _stated(checks: Checks, record: Record, collection: Collection, view: Views) -> None:
    task, result, name = collection.task, collection.result, f"of the {collection.name} batch"
    if result is None:
        return
    came, refused = len(view.shuffler.submissions), sum(refusals(collection, view).values())
    expected = guarantees_under(Terms.of(task), came, refused)
    checks.must(f"guarantees {name} are those of the users who came", result.guarantees == expected)
    said = {one.coalition: one for one in reversed(result.guarantees)}
    checks.must(
        f"guarantees {name} name each party, and both together",
        {"analyzer", "shuffler", "network", "shuffler+analyzer"} <= set(said),
    )
    together = said.get("shuffler+analyzer")
    checks.must(
        f"the local ε {name} is what holds against both together",
        together is not None and (together.epsilon, together.delta) == (task.local_epsilon, 0.0),
    )
    if collection is record.early:
        now = claimed(result.guarantees).epsilon
        then = claimed_guarantee(Terms.of(task), task.target_size).epsilon
        same = claimed(expected).epsilon == then  # local ε bounds both, or counts of items alone
        checks.must(
            f"what is claimed {name} is more than for the users planned",
            now == then if same else now > then,
        )
    entries = [one for one in record.ledger if one.task_digest == collection.digest]
    checks.must(f"the ledger has one entry {name}", len(entries) == 1)
    for entry in entries:
        charged, stated = (entry.epsilon, entry.delta, entry.coalition), claimed(expected)
        checks.must(
            f"the ledger charges what is claimed {name}",
            charged == (stated.epsilon, stated.delta, stated.coalition),
        )
        checks.must(
            f"the ledger knows who came {name}",
            (entry.n_users, entry.n_refused) == (came, refused),
        )


def _budget(checks: Checks, record: Record) -> None:
    """Follow what the population has spent from release to release."""
    spent, alone = 0.0, list[float]()
    for entry in record.ledger:
        if entry.population != record.population:
            continue
        alone.append(entry.epsilon)
        checks.must("each release leaves a population less", entry.composed_epsilon > spent)
        checks.must(
            "all releases together cost no less than the dearest",
            entry.composed_epsilon >= max(alone) * (1 - 1e-9),
        )
        if len(alone) == 1:
            checks.must(
                "the first costs a population no more than it claims",
                entry.composed_epsilon <= sum_upper(alone) * (1 + 1e-9),
            )
        spent = entry.composed_epsilon
    checks.must("the population's releases are in the ledger", len(alone) == 2)  # noqa: PLR2004  # first and early


def _few(checks: Checks, record: Record) -> None:
    few = record.few
    checks.must("a batch below n_min expires at its deadline", few.state == "expired")
    delivered = any(one.method == "DeliverBatch" for one in few.heard)
    checks.must("nothing of a batch below n_min is delivered", not delivered)
    checks.must("a batch below n_min has no result", few.result is None and not few.cells)
    charged = any(one.task_digest == few.digest for one in record.ledger)
    checks.must("a batch below n_min is charged to nobody", not charged)
