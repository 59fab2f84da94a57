"""All scenarios, in report order: their texts are in scenarios.toml, their checks here."""

import tomllib
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

from deploy.audit import distributions
from deploy.audit.attacks import poisoning, shuffler_runs
from deploy.audit.coalitions import other_designs, single_user, whole_batch
from deploy.audit.finding import Findings, Rows
from deploy.audit.observation.party_views import observe_services
from deploy.audit.sampling import devices, orders, randomizer
from deploy.audit.scenario import EVERY_KIND, Scenario

_CHECKS: Final[Mapping[str, Callable[..., Findings | Rows]]] = {
    "shuffler+analyzer": single_user.run_pooled,
    "colluders": whole_batch.run_colluders,
    "skippers": whole_batch.run_skippers,
    "n-1": single_user.run_n_minus_one,
    "rounds": whole_batch.run_rounds,
    "partition": whole_batch.run_partition,
    "linking": single_user.run_linking,
    "reused-seeds": other_designs.run_printed,
    "puredump": other_designs.run_pure_dump,
    "shuffler-dummies": other_designs.run_shuffler_dummies,
    "orders": orders.run_orders,
    "randomizer": randomizer.run_randomizer,
    "draws": devices.run_draws,
    "devices": devices.run_devices,
    "services": observe_services,
    "input-manipulation": poisoning.poison,
    "random-reports": poisoning.poison,
    "maximal-gain": poisoning.poison,
    "dummy-abuse": poisoning.poison,
    "negative-reports": poisoning.poison,
    "message-flood": poisoning.poison,
    **shuffler_runs.CHECKS,
}
_WEAKENED: Final[Mapping[str, Mapping[str, object]]] = {
    "n-1": {"permuted": single_user.permute_and_lose},
    "partition": {"encode": whole_batch.without_n_min},
    "orders": {"orderings": orders.CUT},
    "randomizer": {"draw": distributions.draw_for_others},
    "devices": {"source": devices.seeded_alike},
    "message-flood": {"parse": poisoning.unchecked_parse},
    "honest-shuffler": {"tampering": shuffler_runs.DROPS_ONE},
}
"""Options that inject a weakness and are functions; the others are in the file."""


def _scenario(name: str, fields: Mapping[str, Any]) -> Scenario:
    return Scenario(
        name=name,
        title=fields["title"],
        check=partial(_CHECKS[name], **fields.get("options", {})),
        weakness=fields["weakness"],
        weakness_options=fields.get("weakened") or _WEAKENED[name],
        kinds=EVERY_KIND if fields.get("every_kind") else ("categorical",),
    )


_TABLE: Final = Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")
SCENARIOS: Final = tuple(_scenario(name, fields) for name, fields in tomllib.loads(_TABLE).items())
