"""Faults of who is believed to be whom, and of who still holds a key."""

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Final

from common.crypto.hpke import HpkePrivateKey
from common.crypto.hpke_pool import HpkePool
from common.crypto.tokens import OperatorToken
from common.runtime import access as callers
from common.runtime.access import Caller
from deploy.audit.faults import planting
from deploy.audit.faults.fault import Fault


def hosts_named() -> AbstractContextManager[None]:
    """Plant services to which a host that is called like a party is that party."""
    honest = callers.names_in

    def other(certificate: Mapping[str, Iterable[bytes]]) -> frozenset[str]:
        alternative = certificate.get("x509_subject_alternative_name", ())
        return honest(certificate) | {name.decode() for name in alternative}

    return planting.function(honest, other)


def tokens_by_their_beginning() -> AbstractContextManager[None]:
    """Plant services that compare a token as far as it was shown."""
    honest = callers.check_caller

    def other(
        allowed: Caller,
        names: frozenset[str] | None,
        shown: str | None,
        token: OperatorToken | None,
    ) -> None:
        honest(allowed, names, None if shown is None else shown[:64], token)

    return planting.function(honest, other)


def keys_with_workers() -> AbstractContextManager[None]:
    """Plant pools whose workers keep the keys that were destroyed."""
    return planting.attribute(HpkePool, "forget_keys", lambda _self: None)


def keys_pickled() -> AbstractContextManager[None]:
    """Plant private keys that say nothing against being pickled."""
    return planting.attribute(HpkePrivateKey, "__reduce__", object.__reduce__)


CREDENTIALS: Final = (
    Fault(
        name="keys-pickled",
        says="a private key does not refuse to be pickled",
        scenario="secrets",
        check="no key is pickled by accident",
        plant=keys_pickled,
    ),
    Fault(
        name="hosts-named",
        says="a certificate for a host that is called like a party names this party",
        scenario="secrets",
        check="names the party of its common name, and no host",
        plant=hosts_named,
    ),
    Fault(
        name="longer-tokens",
        says="what follows an operator's token is not looked at",
        scenario="secrets",
        check="whoever shows what a call asks for may make it",
        plant=tokens_by_their_beginning,
    ),
    Fault(
        name="keys-with-workers",
        says="workers keep keys that were destroyed",
        scenario="secrets",
        check="no worker outlives the keys that it held",
        plant=keys_with_workers,
    ),
)
