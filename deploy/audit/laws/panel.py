"""
Small tasks of every mechanism and law, to test each as it runs, whatever task is audited.

They are small so that whatever can be drawn is drawn often enough to be counted.
"""

from functools import cache
from typing import Any, Final

from common.task.dummy_spec import DummySpec
from common.task.shuffler_spec import KEEP_SUM, RATIO_SUM, ShufflerSpec
from common.task.task import Task
from deploy.audit.sample_task import sample_task

_NONE: Final = float("inf")
_PANEL: Final[tuple[dict[str, Any], ...]] = (
    {"protocol": "ldp-warner", "domain_size": 2, "local_epsilon": 1.0},
    {"protocol": "ldp-grr", "domain_size": 5, "local_epsilon": 2.0},
    {"protocol": "ldp-sue", "domain_size": 9, "local_epsilon": 2.0},
    {"protocol": "ldp-oue", "domain_size": 9, "local_epsilon": 1.5},
    {"protocol": "ldp-blh", "domain_size": 12, "local_epsilon": 1.0},
    {"protocol": "ldp-olh-strings", "domain_size": 6, "local_epsilon": 2.0, "buckets": 4},
    {"protocol": "ldp-sw", "domain_size": 10, "local_epsilon": 1.0},
    {"protocol": "murs", "domain_size": 12, "local_epsilon": 1.5, "buckets": 5},
    {
        "protocol": "fe1",
        "domain_size": 12,
        "local_epsilon": _NONE,
        "buckets": 5,
        "dummies": DummySpec.averaging(2.3),
    },
    {
        "protocol": "od-hp",
        "domain_size": 12,
        "local_epsilon": 2.0,
        "buckets": 5,
        "dummies": DummySpec(
            law="negative-binomial", per_user=1, trials=3, extra_weight=2**30, most=5
        ),
    },
    {
        "protocol": "od-hp",
        "domain_size": 6,
        "local_epsilon": 3.0,
        "dummies": DummySpec(law="binomial", per_user=0, trials=4, extra_weight=2**31, most=4),
    },
    {"protocol": "sh", "domain_size": 5000, "local_epsilon": 6.4},
    {"protocol": "mixdump", "domain_size": 7, "local_epsilon": 1.7, "dummies_per_user": 45.0},
    {
        "protocol": "aue",
        "domain_size": 4,
        "local_epsilon": _NONE,
        "dummies": DummySpec(law="each-item", per_user=0, trials=4, extra_weight=2**30, most=3),
    },
    {
        "protocol": "sbin",
        "domain_size": 4,
        "local_epsilon": _NONE,
        "shuffler": ShufflerSpec(law="binomial", keep_weight=KEEP_SUM // 2, trials=70, most=70),
    },
    {
        "protocol": "sageo",
        "domain_size": 4,
        "local_epsilon": _NONE,
        "shuffler": ShufflerSpec(
            law="geometric",
            keep_weight=KEEP_SUM // 4 * 3,
            peak=12,
            left_weight=RATIO_SUM // 3,
            right_weight=RATIO_SUM // 2,
            most=40,
        ),
    },
)
"""What a draft says beside what all of them share."""


@cache
def panel() -> tuple[Task, ...]:
    """Give the tasks."""
    return tuple(sample_task(**fields) for fields in _PANEL)
