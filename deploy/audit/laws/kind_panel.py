"""
Small tasks for texts, numbers and pairs: one of every protocol, and some of other shapes.

Grids are drafted fine, so that what is wrong by one place of them is not seen; two tasks here have
coarse ones, which is as good a task.
"""

import dataclasses
from functools import cache
from typing import Any, Final

from common.accounting.guarantees import claimable_epsilon
from common.mechanisms.numeric.hybrid import Hybrid
from common.mechanisms.numeric.piecewise import Piecewise
from common.task.draft import NumberDraft, PairDraft, TextDraft
from common.task.specs import NumberSpec, RapporSpec, spec_as
from common.task.task import Task
from deploy.audit.sample_task import sample_task

N_MIN: Final = 30
"""So few that what holds of them is worked out at once; nothing that is checked depends on it."""
_HOURS: Final = NumberDraft(low=0.0, high=24.0)
_MARKS: Final = NumberDraft(low=1.0, high=5.0)
_STARS: Final[dict[str, Any]] = {"low": 0.0, "high": 5.0}
_COARSE: Final = 8
"""Steps of a grid on which one place is much."""
_NO_LABELS: Final[dict[str, Any]] = {"protocol": "rappor", "domain_size": 1, "labels": ()}

_PANEL: Final[tuple[dict[str, Any], ...]] = (
    {**_NO_LABELS, "texts": TextDraft(bits=16, cohorts=4, permanent=0.25)},
    {**_NO_LABELS, "texts": TextDraft(bits=32, hashes=2, cohorts=2)},
    {"protocol": "rappor", "domain_size": 5, "texts": TextDraft(bits=0, unset=0.0, set=1.0)},
    {"protocol": "laplace", "domain_size": 1, "local_epsilon": 1.5, "numbers": _HOURS},
    {"protocol": "duchi", "domain_size": 1, "local_epsilon": 1.5, "numbers": _HOURS},
    {"protocol": "piecewise", "domain_size": 1, "local_epsilon": 2.0, "numbers": _HOURS},
    {"protocol": "hybrid-mean", "domain_size": 1, "local_epsilon": 2.0, "numbers": _HOURS},
    {"protocol": "harmony", "domain_size": 3, "local_epsilon": 1.5, "numbers": _MARKS},
    {"protocol": "mean-est", "domain_size": 3, "local_epsilon": 1.5, "numbers": _MARKS},
    {"protocol": "mean-est", "domain_size": 4, "local_epsilon": 1.5, "numbers": _MARKS},
    {"protocol": "multi-hm", "domain_size": 3, "local_epsilon": 5.5, "numbers": _MARKS},
    {"protocol": "multi-rphm", "domain_size": 7, "local_epsilon": 2.0, "numbers": _MARKS},
    {"protocol": "priv-kv", "domain_size": 3, "local_epsilon": 2.0, "pairs": PairDraft(**_STARS)},
    {
        "protocol": "priv-kv",
        "domain_size": 3,
        "local_epsilon": 2.0,
        "pairs": PairDraft(fakes=(0.0, 0.0, 0.0), **_STARS),
    },
    {
        "protocol": "priv-kv",
        "domain_size": 3,
        "local_epsilon": 2.0,
        "pairs": PairDraft(key_share=0.0, fakes=(1.0, 4.0, 5.0), **_STARS),
    },
)
"""What a draft says beside what all of them share."""


@cache
def kind_panel() -> tuple[Task, ...]:
    """Give the tasks."""
    return (*(_small(**fields) for fields in _PANEL), *_coarse())


def asked_once(task: Task) -> Task:
    """Give a task for texts as one that shares its noise with no other."""
    return _asking(task, population="", question="")


def asked_again(task: Task, *, population: str = "everybody", question: str = "what it is") -> Task:
    """Give a task for texts as one of those that share their permanent noise."""
    return _asking(task, population=population, question=question)


def _asking(task: Task, *, population: str, question: str) -> Task:
    """Claim nothing but the local ε, which holds of either."""
    return dataclasses.replace(
        task,
        mechanism=dataclasses.replace(spec_as(task.mechanism, RapporSpec), question=question),
        population=population,
        central_epsilon=task.local_epsilon,
        budget_epsilon=max(task.budget_epsilon, task.local_epsilon),
    )


def _small(**fields: Any) -> Task:  # noqa: ANN401  # of a draft
    return sample_task(**{"n_min": N_MIN, "target_size": N_MIN} | fields)


def _coarse() -> tuple[Task, ...]:
    """Give the piecewise mechanism and the hybrid on a grid of a few steps."""
    fields = {"domain_size": 1, "local_epsilon": 2.0, "numbers": _HOURS}
    piecewise = Piecewise.for_epsilon(2.0, _COARSE).spec(_HOURS.low, _HOURS.high)
    hybrid = Hybrid.for_epsilon(2.0, _COARSE).spec(_HOURS.low, _HOURS.high)
    return (
        _with(_small(protocol="piecewise", **fields), piecewise),
        _with(_small(protocol="hybrid-mean", **fields), hybrid),
    )


def _with(task: Task, spec: NumberSpec) -> Task:
    """Put other integers into a task, and claim what holds of them."""
    unclaimed = dataclasses.replace(task, mechanism=spec, central_epsilon=0.0)
    return dataclasses.replace(unclaimed, central_epsilon=claimable_epsilon(unclaimed))
