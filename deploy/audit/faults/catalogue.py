"""Every fault that can be planted, by name, with the scenario that must see it."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from common.errors import SettingsError
from deploy.audit.faults import callers, counting, deliveries, devices, orders, services


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
    Fault(
        name="copies-counted",
        says="the analyzer counts a report as often as it comes",
        scenario="shuffler-duplicates",
        check="every report is left once",
        plant=deliveries.copies_counted,
    ),
    Fault(
        name="any-number-taken",
        says="the shuffler takes submissions of more reports than the task says",
        scenario="dishonest-clients",
        check="more reports than the task's is refused",
        plant=deliveries.any_number_taken,
    ),
    Fault(
        name="conflicts-taken",
        says="the shuffler takes other bytes under an id that it has seen",
        scenario="dishonest-clients",
        check="other bytes under an id that was used are refused",
        plant=deliveries.conflicts_taken,
    ),
    Fault(
        name="tokens-forgotten",
        says="the shuffler takes one token twice",
        scenario="dishonest-clients",
        check="a second time it is refused",
        plant=deliveries.tokens_forgotten,
    ),
    Fault(
        name="unbound-ciphertexts",
        says="what is sealed does not name its task",
        scenario="shuffler-replays",
        check="reports of one task are none of another",
        plant=deliveries.unbound_ciphertexts,
    ),
    Fault(
        name="second-batch-taken",
        says="the analyzer takes a second batch of a task",
        scenario="shuffler-replays",
        check="a second batch of a task is refused",
        plant=deliveries.second_batch_taken,
    ),
    Fault(
        name="every-proof-believed",
        says="a device believes every proof that it was counted",
        scenario="shuffler-drops",
        check="the device concerned has proof of it",
        plant=deliveries.every_proof_believed,
    ),
    Fault(
        name="every-signature-believed",
        says="a device believes whatever the shuffler signs in the analyzer's place",
        scenario="shuffler-drops",
        check="no device believes what the shuffler signs",
        plant=deliveries.every_signature_believed,
    ),
    Fault(
        name="sentinels-ignored",
        says="the analyzer looks at sentinels and never objects",
        scenario="shuffler-keeps-order",
        check="a batch in the order of arrival is not released",
        plant=deliveries.sentinels_ignored,
    ),
    Fault(
        name="batches-below-n-min",
        says="the analyzer takes a batch of fewer users than n_min",
        scenario="shuffler-injects",
        check="a batch below n_min is refused",
        plant=deliveries.manifest_unchecked,
    ),
    Fault(
        name="value-logged",
        says="a device logs its value",
        scenario="services",
        check="no planted value is in a log",
        plant=services.value_logged,
    ),
    Fault(
        name="submission-id-logged",
        says="the shuffler logs submissions' ids",
        scenario="services",
        check="a submission id is not in a log",
        plant=services.submission_id_logged,
    ),
    Fault(
        name="submission-id-delivered",
        says="the analyzer is sent a submission's id",
        scenario="services",
        check="no submission id reaches the analyzer",
        plant=services.submission_id_delivered,
    ),
    Fault(
        name="planned-users",
        says="the guarantee counts on the users who were planned",
        scenario="services",
        check="guarantees of the early batch are those of the users who came",
        plant=services.planned_users,
    ),
    Fault(
        name="batch-key-kept",
        says="the key of a delivered batch is kept",
        scenario="services",
        check="no key of a batch is left",
        plant=services.batch_key_kept,
    ),
    Fault(
        name="n-min-ignored",
        says="the shuffler closes a batch of fewer users than n_min",
        scenario="services",
        check="nothing of a batch below n_min is delivered",
        plant=services.n_min_ignored,
    ),
    Fault(
        name="constant-key",
        says="the generators of all parties have one key",
        scenario="services",
        check="no two generators have the same key",
        plant=services.constant_key,
    ),
    Fault(
        name="twister-everywhere",
        says="all parties draw from a Mersenne Twister",
        scenario="services",
        check="the generator of the shuffler is ChaCha",
        plant=services.twister_everywhere,
    ),
    Fault(
        name="drawn-anew-on-retry",
        says="a device randomizes again what was not acknowledged",
        scenario="services",
        check="one answer was sent twice, and byte for byte the same",
        plant=services.drawn_anew_on_retry,
    ),
    Fault(
        name="users-dropped",
        says="the shuffler acknowledges users whom it does not store",
        scenario="services",
        check="no report is lost in the first batch",
        plant=services.users_dropped,
    ),
    *(
        Fault(name=name, says=says, scenario="services", check=check, plant=plant)
        for name, says, check, plant in callers.FAULTS
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


@contextmanager
def planted(name: str) -> Iterator[None]:
    """
    Run a block with a fault planted; none for no name.

    Raises:
        SettingsError: There is none of this name.
    """
    if not name:
        yield
        return
    _PLANTED.append(name)
    try:
        with fault_named(name).plant():
            yield
    finally:
        _PLANTED.remove(name)


_PLANTED: Final[list[str]] = []


def now_planted() -> str:
    """Say which fault is planted in this process, for a child that is to have it too."""
    return _PLANTED[-1] if _PLANTED else ""
