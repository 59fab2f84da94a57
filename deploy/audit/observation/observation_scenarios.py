"""The audit's scenario of the running services: one run, and each party's view of it."""

from functools import partial
from typing import Final

import numpy as np

from deploy.audit.finding import Findings
from deploy.audit.observation.party_views import VIEWS, network_view
from deploy.audit.observation.recorder import record_run
from deploy.audit.scenario import Scenario
from deploy.audit.subject import AuditSubject


def observe_services(
    subject: AuditSubject, rng: np.random.Generator, *, by_arrival: bool = False
) -> Findings:
    """Run the three services once, and search each party's view."""
    record = record_run(subject, rng, by_arrival=by_arrival)
    return Findings(findings=(network_view(record, rng), *(view(record) for view in VIEWS)))


OBSERVATION: Final[tuple[Scenario, ...]] = (
    Scenario(
        name="services",
        title="The three services as they run: what each party received, kept and logged",
        run=observe_services,
        weakness="The shuffler delivers reports in the order of arrival.",
        run_broken=partial(observe_services, by_arrival=True),
        seconds=8,
    ),
)
