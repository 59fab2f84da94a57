"""Every fault that can be planted, by name, with the scenario that must see it."""

from collections.abc import Iterator
from contextlib import contextmanager
from types import MappingProxyType
from typing import Final

from common.errors import SettingsError
from deploy.audit.faults.analyzer_catalogue import ANALYZER_FAULTS
from deploy.audit.faults.behaviour import BEHAVIOUR
from deploy.audit.faults.callers import CALLERS
from deploy.audit.faults.collecting import COLLECTING
from deploy.audit.faults.configuration import CONFIGURATION
from deploy.audit.faults.corners import CORNERS
from deploy.audit.faults.counting import COUNTING
from deploy.audit.faults.credentials import CREDENTIALS
from deploy.audit.faults.deliveries import DELIVERIES
from deploy.audit.faults.devices import DEVICES
from deploy.audit.faults.disks import DISKS
from deploy.audit.faults.fault import Fault
from deploy.audit.faults.hidden import HIDDEN
from deploy.audit.faults.inclusions import INCLUSIONS
from deploy.audit.faults.laws import LAWS
from deploy.audit.faults.operations import OPERATIONS
from deploy.audit.faults.orders import ORDERS
from deploy.audit.faults.promises import PROMISES
from deploy.audit.faults.records import RECORDS
from deploy.audit.faults.rules_catalogue import RULES
from deploy.audit.faults.services import SERVICES
from deploy.audit.faults.stores_catalogue import STORES
from deploy.audit.faults.value_rules import VALUE_RULES
from deploy.audit.faults.values import VALUES
from deploy.audit.near_name import meant

ALL_FAULTS: Final = (
    *ORDERS,
    *DEVICES,
    *LAWS,
    *CORNERS,
    *COUNTING,
    *PROMISES,
    *DELIVERIES,
    *SERVICES,
    *COLLECTING,
    *ANALYZER_FAULTS,
    *RULES,
    *RECORDS,
    *DISKS,
    *CALLERS,
    *CREDENTIALS,
    *INCLUSIONS,
    *CONFIGURATION,
    *STORES,
    *OPERATIONS,
    *BEHAVIOUR,
    *HIDDEN,
    *VALUES,
    *VALUE_RULES,
)

FAULTS: Final = MappingProxyType({fault.name: fault for fault in ALL_FAULTS})


def fault_named(name: str) -> Fault:
    """
    Give a fault.

    Raises:
        SettingsError: There is none of this name.
    """
    if name not in FAULTS:
        raise SettingsError(
            f"there is no fault {name[:64]!r}{meant(name, FAULTS)}; --list names all"
        )
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
