"""Every fault that can be planted, by name, with the scenario that must see it."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from common.errors import SettingsError
from deploy.audit.faults import counting, devices, orders


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One fault."""

    name: str
    says: str
    """What is wrong with the code, in words."""
    scenario: str
    """Which must see it."""
    check: str
    """What that says, or a part of it."""
    plant: Callable[[], AbstractContextManager[None]]


_FAULTS: Final = (
    Fault(
        name="identity-permutation",
        says="the shuffler passes batches on in the order in which they came",
        scenario="orders",
        check="neighbours stay",
        plant=orders.identity,
    ),
    Fault(
        name="biased-permutation",
        says="each report is swapped with any other, instead of with one that is not placed yet",
        scenario="orders",
        check="all orders of 3",
        plant=orders.biased,
    ),
    Fault(
        name="chunked-permutation",
        says="reports are permuted among those that came with them, a thousand at a time",
        scenario="orders",
        check="blocks spread",
        plant=orders.within_chunks,
    ),
    Fault(
        name="chunks-kept-together",
        says="chunks of ten reports are permuted, and keep their inner order",
        scenario="orders",
        check="neighbours stay",
        plant=orders.whole_chunks,
    ),
    Fault(
        name="mersenne-twister",
        says="the order is drawn by a Mersenne Twister, seeded with 32 bits",
        scenario="orders",
        check="as many random bits as there are orders",
        plant=orders.mersenne_twister,
    ),
    Fault(
        name="global-generator",
        says="the order is drawn by Python's own random, which nobody handed in",
        scenario="orders",
        check="the order follows from its generator",
        plant=orders.python_random,
    ),
    Fault(
        name="probabilities-2-percent",
        says="the truth is told 2 % oftener than the weights say",
        scenario="randomizer",
        check="supports its own item",
        plant=devices.two_percent_more_truth,
    ),
    Fault(
        name="uneven-dummies",
        says="2 % of the dummies name the first bucket or item",
        scenario="randomizer",
        check="a dummy",
        plant=devices.uneven_dummies,
    ),
    Fault(
        name="no-seed-0",
        says="seed 0 is never drawn, so that seeds are not pairwise independent",
        scenario="randomizer",
        check="seed 0 as often as any",
        plant=devices.no_seed_0,
    ),
    Fault(
        name="value-dependent-length",
        says="an envelope is one byte longer for every other value",
        scenario="devices",
        check="one length of every envelope",
        plant=devices.longer_for_odd_values,
    ),
    Fault(
        name="reused-seeds",
        says="a user's dummies carry the seed of the user's own report",
        scenario="devices",
        check="a seed of its own for every message",
        plant=devices.reused_seeds,
    ),
    Fault(
        name="varying-dummies",
        says="every other user leaves one dummy out, and fills it up with padding",
        scenario="devices",
        check="a fixed number of dummies",
        plant=devices.varying_dummies,
    ),
    Fault(
        name="own-report-first",
        says="a user's own report comes first in every submission",
        scenario="devices",
        check="the own report in every place",
        plant=devices.own_report_first,
    ),
    Fault(
        name="device-generator",
        says="a device draws from a generator that it seeds with the value",
        scenario="devices",
        check="another generator, another answer",
        plant=devices.seeded_with_value,
    ),
    Fault(
        name="too-low-epsilon",
        says="the accountant states nine tenths of ε",
        scenario="accountant",
        check="no less than by another program",
        plant=counting.nine_tenths_of_epsilon,
    ),
    Fault(
        name="refused-reports-counted",
        says="refused reports are not taken off the honest users",
        scenario="accountant",
        check="refused reports are taken off",
        plant=counting.refused_reports_counted,
    ),
    Fault(
        name="biased-estimates",
        says="every share is estimated 2 % too high",
        scenario="estimates",
        check="a common value",
        plant=counting.two_percent_too_high,
    ),
    Fault(
        name="shuffler-noise",
        says="the shuffler's dummies vary less than the task says",
        scenario="draws",
        check="the shuffler's",
        plant=counting.less_shuffler_noise,
    ),
)

FAULTS: Final = MappingProxyType({fault.name: fault for fault in _FAULTS})


def fault_named(name: str) -> Fault:
    """
    Give a fault.

    Raises:
        SettingsError: There is none of this name.
    """
    if name not in FAULTS:
        raise SettingsError(f"there is no fault {name[:64]!r}; there are {', '.join(FAULTS)}")
    return FAULTS[name]
