"""Faults of what a party does unasked: defaults, channels, its folder, and what it seals."""

import dataclasses
import json
import secrets
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import grpc
from cryptography import x509

import user_agent.settings
from common.crypto import hpke_pool
from common.crypto.hpke import HpkePrivateKey, key_id
from common.crypto.key_ring import KeyRing, KeyState, Schedule, _renewed
from common.crypto.suites import DEFAULT_SUITE, SUITES
from common.crypto.tokens import OperatorToken
from common.runtime import certificates, rpc
from common.runtime import state_directory as state
from common.runtime.admission_interceptor import is_one_connection
from common.runtime.clock import SystemClock
from common.runtime.rpc import _check_socket, open_channel
from common.runtime.state_directory import StateDirectory, StateKey, _read_secret, _write_scratch
from common.runtime.tls import Renewal, TlsFiles
from common.runtime.validation import from_text as _convert
from deploy.audit.faults import planting
from deploy.audit.faults.fault import Fault
from shuffler.settings import ShufflerSettings
from shuffler.storage.batch_key import BatchKey
from user_agent.settings import UserAgentSettings

_TARGET: Final = "grpc.ssl_target_name_override"
_NONCE_BYTES: Final = 12


def default(party: type[Any], name: str, other: object) -> AbstractContextManager[None]:
    """Plant a party that has another setting where nothing is said."""
    making: Any = vars(party)["__init__"]
    return planting.attribute(making, "__kwdefaults__", {**making.__kwdefaults__, name: other})


def false_is_true() -> AbstractContextManager[None]:
    """Plant settings that take every word for true."""

    def other(key: str, value: Any, kind: Any, refusal: Any) -> Any:
        return bool(value) if kind is bool else _convert(key, value, kind, refusal)

    return planting.function(_convert, other)


def anybodys_certificate() -> AbstractContextManager[None]:
    """Plant callers who believe whoever has a certificate by their authority."""

    def other(*arguments: Any, **more: Any) -> Any:
        opens = grpc.aio.secure_channel

        def unnamed(address: str, credentials: Any, options: Any) -> Any:
            kept = [option for option in options if option[0] != _TARGET]
            return opens(address, credentials, options=kept)

        with planting.attribute(grpc.aio, "secure_channel", unnamed):
            return open_channel(*arguments, **more)

    return planting.function(open_channel, other)


def created_twice() -> AbstractContextManager[None]:
    """Plant callers who make every call again that was not answered."""
    retries = json.loads(rpc._RETRIES)
    retries["methodConfig"] = retries["methodConfig"][1:]
    return planting.attribute(rpc, "_RETRIES", json.dumps(retries))


class _Issuing:
    """Certificates as they are made, but that each may issue others."""

    def __getattr__(self, name: str) -> Any:
        return getattr(x509, name)

    def BasicConstraints(self, **_: Any) -> x509.BasicConstraints:  # noqa: N802  # as it is called
        return x509.BasicConstraints(ca=True, path_length=None)

    def KeyUsage(self, **usages: bool) -> x509.KeyUsage:  # noqa: N802  # as it is called
        return x509.KeyUsage(**usages | {"digital_signature": True, "key_cert_sign": True})


def parties_issue() -> AbstractContextManager[None]:
    """Plant an authority whose parties may issue certificates too."""
    return planting.attribute(certificates, "x509", _Issuing())


def ipv6_uncounted() -> AbstractContextManager[None]:
    """Plant services that know connections over IPv4 alone."""
    return planting.function(is_one_connection, lambda peer: peer.startswith("ipv4:"))


def rows_unplaced() -> AbstractContextManager[None]:
    """Plant a shuffler whose rows open wherever they lie."""
    seals, opens = BatchKey.seal, BatchKey.open
    return planting.both(
        planting.attribute(BatchKey, "seal", lambda self, row, _place=b"": seals(self, row)),
        planting.attribute(BatchKey, "open", lambda self, row, _place=b"": opens(self, row)),
    )


def state_key_unbound() -> AbstractContextManager[None]:
    """Plant parties whose secrets open under every name."""
    seals, opens = StateKey.seal, StateKey.open
    return planting.both(
        planting.attribute(StateKey, "seal", lambda self, _name, secret: seals(self, "", secret)),
        planting.attribute(StateKey, "open", lambda self, _name, sealed: opens(self, "", sealed)),
    )


def flat_nonce() -> AbstractContextManager[None]:
    """Plant a shuffler that draws a third of each nonce."""

    def other(self: Any, row: bytes, place: bytes = b"") -> bytes:
        nonce = secrets.token_bytes(_NONCE_BYTES // 3) * 3
        sealed: bytes = self._aead.encrypt(nonce, row, place)
        return nonce + sealed

    return planting.attribute(BatchKey, "seal", other)


@dataclass(frozen=True, slots=True)
class _Alike:
    """A key on its way to a worker, the same as every other of its suite."""

    suite: str
    private_bytes: bytes = field(repr=False, compare=False)


def travelling_alike() -> AbstractContextManager[None]:
    """Plant workers that open everything with the first key that they were given."""
    return planting.attribute(hpke_pool, "_TravellingKey", _Alike)


def hybrid_in_name() -> AbstractContextManager[None]:
    """Plant a hybrid suite that is an ordinary one."""
    honest: Any = SUITES
    ordinary = SUITES[DEFAULT_SUITE]
    others: Any = {
        name: dataclasses.replace(ordinary, name=name) if suite.hybrid else suite
        for name, suite in SUITES.items()
    }
    return planting.function(honest, others)


def used_unannounced() -> AbstractContextManager[None]:
    """Plant parties that use a key as soon as it is made."""

    def other(ring: KeyRing, suite: str, now: float, schedule: Schedule, make: Any) -> KeyRing:
        waits = ring.in_state(suite, KeyState.PENDING) is not None
        shown = dataclasses.replace(schedule, overlap=0.0) if waits else schedule
        return _renewed(ring, suite, now, shown, make)

    return planting.function(_renewed, other)


def keys_printed() -> AbstractContextManager[None]:
    """Plant keys that are seen wherever they are printed."""
    return planting.attribute(
        HpkePrivateKey, "__repr__", lambda self: f"HpkePrivateKey({self.private_bytes().hex()})"
    )


def token_by_time() -> AbstractContextManager[None]:
    """Plant services that compare a token as far as it is right."""
    return planting.attribute(
        OperatorToken, "matches", lambda self, shown: shown.encode() == self._token
    )


def named_before_written() -> AbstractContextManager[None]:
    """Plant parties that do not wait for the disk before a file takes another's place."""

    def other(path: Path, content: bytes, mode: int) -> Path:
        scratch = path.with_name(f".{path.name}.{secrets.token_hex()}")
        scratch.write_bytes(content)
        scratch.chmod(mode)
        return scratch

    return planting.function(_write_scratch, other)


CONFIGURATION: Final = (
    Fault(
        name="default-central-cap",
        says="a device gives away ten times as much where nothing is said",
        scenario="settings",
        check="where nothing is said, total_central_epsilon_cap of the UserAgent is 1.0",
        plant=partial(default, UserAgentSettings, "total_central_epsilon_cap", 10.0),
    ),
    Fault(
        name="default-key-life",
        says="where nothing is said a shuffler never replaces its keys",
        scenario="settings",
        check="where nothing is said, key_lifetime_days of the Shuffler is 90.0",
        plant=partial(default, ShufflerSettings, "key_lifetime_days", 0.0),
    ),
    Fault(
        name="default-share",
        says="where nothing is said a connection may submit without end",
        scenario="settings",
        check="where nothing is said, submissions_per_connection of the Shuffler is 10000",
        plant=partial(default, ShufflerSettings, "submissions_per_connection", 0),
    ),
    Fault(
        name="agent-anywhere",
        says="a device takes true values from whoever reaches it",
        scenario="settings",
        check="settings that protect nothing are refused",
        plant=partial(planting.attribute, user_agent.settings, "is_local", lambda _address: True),
    ),
    Fault(
        name="false-is-true",
        says="a setting that is false in the environment is true",
        scenario="settings",
        check="settings are read as they are written",
        plant=false_is_true,
    ),
    Fault(
        name="anybodys-certificate",
        says="whoever has a certificate may play the shuffler, or the analyzer",
        scenario="settings",
        check="whoever answers must show a certificate of the very party",
        plant=anybodys_certificate,
    ),
    Fault(
        name="created-twice",
        says="a task that was not answered for is created again",
        scenario="settings",
        check="no task is created twice",
        plant=created_twice,
    ),
    Fault(
        name="parties-issue",
        says="every party may issue certificates",
        scenario="settings",
        check="a party's certificate issues no others",
        plant=parties_issue,
    ),
    Fault(
        name="boundless",
        says="clients make a server hold what they like",
        scenario="settings",
        check="what clients make a server hold is bounded",
        plant=partial(planting.attribute, rpc, "_CONNECTIONS", ()),
    ),
    Fault(
        name="sockets-taken",
        says="a process takes a socket's name from the service that listens there",
        scenario="settings",
        check="a server takes no place where another listens",
        plant=partial(planting.function, _check_socket, lambda _path: None),
    ),
    Fault(
        name="set-clock",
        says="pauses end when somebody sets the time",
        scenario="settings",
        check="what passes is told apart from what the time is set to",
        plant=partial(planting.attribute, SystemClock, "elapsed", SystemClock.now),
    ),
    Fault(
        name="suites-share-names",
        says="a key is called the same in two suites",
        scenario="secrets",
        check="a key has another name in every suite",
        plant=partial(planting.function, key_id, lambda _suite, public: key_id("", public)),
    ),
    Fault(
        name="ended-certificates",
        says="a party starts with a certificate that has ended, or is another's",
        scenario="settings",
        check="a certificate is shown by its own party",
        plant=partial(planting.attribute, TlsFiles, "check", lambda *_: None),
    ),
    Fault(
        name="renewals-unseen",
        says="a renewed certificate is not shown until a restart",
        scenario="settings",
        check="a certificate that is renewed is shown",
        plant=partial(planting.attribute, Renewal, "take", lambda _self: None),
    ),
    Fault(
        name="ipv6-uncounted",
        says="connections over IPv6 have no bounds",
        scenario="thresholds",
        check="bulk calls count as many",
        plant=ipv6_uncounted,
    ),
    Fault(
        name="ipv6-places",
        says="calls over IPv6 take all places",
        scenario="settings",
        check="a connection has no more calls under way than its share",
        plant=ipv6_uncounted,
    ),
    Fault(
        name="rows-unplaced",
        says="rows on the disk can be swapped and copied unseen",
        scenario="secrets",
        check="rows and secrets open at the place that they were sealed for",
        plant=rows_unplaced,
    ),
    Fault(
        name="state-key-unbound",
        says="one sealed secret opens in another's place",
        scenario="secrets",
        check="rows and secrets open at the place that they were sealed for",
        plant=state_key_unbound,
    ),
    Fault(
        name="flat-nonce",
        says="nonces of rows repeat after some 65,000 rows",
        scenario="secrets",
        check="every byte is drawn of a nonce",
        plant=flat_nonce,
    ),
    Fault(
        name="travelling-alike",
        says="workers open everything with the first key that they met",
        scenario="secrets",
        check="a worker opens with the key that comes with the work",
        plant=travelling_alike,
    ),
    Fault(
        name="hybrid-in-name",
        says="the hybrid suite has no part that outlasts a quantum computer",
        scenario="secrets",
        check="every suite has the keys and seals of its name",
        plant=hybrid_in_name,
    ),
    Fault(
        name="used-unannounced",
        says="a new key is used before it has been published for long",
        scenario="secrets",
        check="the next key is published for as long as is said",
        plant=used_unannounced,
    ),
    Fault(
        name="keys-printed",
        says="a private key is seen where it is printed",
        scenario="secrets",
        check="no secret shows itself when it is printed",
        plant=keys_printed,
    ),
    Fault(
        name="token-by-time",
        says="how long it takes to refuse a token tells how much of it is right",
        scenario="secrets",
        check="how long a token is compared tells nothing",
        plant=token_by_time,
    ),
    Fault(
        name="held-by-two",
        says="two processes of a party may charge one ledger",
        scenario="secrets",
        check="one process holds a state directory, and no second",
        plant=partial(planting.attribute, state, "_lock", lambda _file: None),
    ),
    Fault(
        name="open-secrets",
        says="secrets that others may read, or have linked elsewhere, are used",
        scenario="secrets",
        check="a secret that others may read is not used",
        plant=partial(planting.function, _read_secret, lambda path, **_: path.read_bytes()),
    ),
    Fault(
        name="named-before-written",
        says="a crash leaves a file empty that was whole",
        scenario="secrets",
        check="a file takes another's place once it is on the disk",
        plant=named_before_written,
    ),
    Fault(
        name="state-key-anew",
        says="a state key that is gone is made anew, and what was sealed is lost",
        scenario="secrets",
        check="no state key is made anew while something is sealed",
        plant=partial(
            planting.attribute, StateDirectory, "_check_nothing_is_sealed", lambda _self: None
        ),
    ),
)
