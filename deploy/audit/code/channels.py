"""
Who is talked to: how channels are opened, and which certificates are made, shown and taken.

No call is made: what gRPC is told of a channel is kept, and compared with what it must be told.
"""

import json
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any, Final
from unittest.mock import patch

import grpc
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from common.errors import SettingsError
from common.runtime.certificates import PARTIES, Authority, Certificate
from common.runtime.rpc import open_channel
from common.runtime.tls import Renewal, TlsFiles, TlsIdentity, files_in
from deploy.audit.checks import Checks
from deploy.audit.stand_ins.still_clock import START

_REMOTE: Final = "analyzer.example:1"
_LOCAL: Final = "127.0.0.1:1"
_OWN: Final = TlsIdentity(b"certificate", b"key", b"authority")
_NOBODY: Final = TlsIdentity(b"", b"", b"authority")
_MIB: Final = 1 << 20
_MOST_RECEIVED: Final = 4 * _MIB
_DAY: Final = 86_400.0
_YEAR: Final = 365
_OWNER_ONLY: Final = 0o600
_HOST: Final = "service.example"
_LOOPBACK: Final = {"localhost", "127.0.0.1"}


def check_channels(checks: Checks) -> None:
    """Check channels first, and then certificates of an authority that is made for it."""
    _check_opened(checks)
    with TemporaryDirectory(prefix="shuffledp-audit-") as folder:
        authority = Authority.make(Path(folder), "authority", START)
        _check_issued(checks, Path(folder), authority)
        _check_taken(checks, Path(folder), authority)
        _check_renewed(checks, Path(folder), authority)


def _check_opened(checks: Checks) -> None:
    for party in PARTIES:
        for own, shown in ((_OWN, (b"key", b"certificate")), (_NOBODY, (None, None))):
            [(kind, address, credentials, options)] = _opened(_REMOTE, party, own)
            named = [value for key, value in options if key.startswith("grpc.ssl_target_name")]
            _check_limits(checks, dict(options))
            checks.must(
                "whoever answers must show a certificate of the very party that is called, by the "
                "authority that is trusted",
                (kind, address, credentials) == ("secure", _REMOTE, (b"authority", *shown))
                and named == [party]
                and "grpc.default_authority" not in dict(options),
            )
    [(kind, _, credentials, options)] = _opened("unix:socket", "shuffler", None)
    checks.must(
        "a Unix socket is called as one, and nothing else without a certificate off this machine",
        (kind, credentials) == ("secure", grpc.LocalConnectionType.UDS)
        and [kind for kind, *_ in _opened(_LOCAL, "shuffler", None)] == ["insecure"]
        and not any(
            _opened(address, "shuffler", None)
            for address in (_REMOTE, "0.0.0.0:1", "192.0.2.1:1", "localhost.example:1")
        ),
    )
    for told in (options, _opened(_LOCAL, "shuffler", None)[0][-1]):
        _check_limits(checks, dict(told))


def _check_limits(checks: Checks, limits: dict[str, Any]) -> None:
    checks.must(
        "what is received over a channel is bounded",
        0 < limits.get("grpc.max_receive_message_length", 0) <= _MOST_RECEIVED,
    )
    checks.must("no task is created twice by a call that is made again", _once(limits))


def _once(options: dict[str, Any]) -> bool:
    """Say whether the service's own configuration of the one call has no retries."""
    create = {"service": "shuffledp.v1.Analyzer", "method": "CreateTask"}
    service = json.loads(options.get("grpc.service_config", "{}"))
    own = [config for config in service.get("methodConfig", ()) if create in config["name"]]
    return bool(own) and all("retryPolicy" not in config for config in own)


Options = Sequence[tuple[str, Any]]
Opened = tuple[str, str, object, Options]
"""Whether with credentials, the address, the credentials, and the options."""


def _opened(address: str, party: str, own: TlsIdentity | None) -> list[Opened]:
    """Give what gRPC was told of a channel; nothing where none was opened."""
    with _told() as told:
        try:
            open_channel(address, party, own.authority if own else None, own=own)
        except SettingsError:
            return []
    return told


@contextmanager
def _told() -> Iterator[list[Opened]]:
    """Keep what gRPC is told, in the place of gRPC."""
    told: list[Opened] = []

    def secure(address: str, credentials: object, options: Options = ()) -> SimpleNamespace:
        told.append(("secure", address, credentials, options))
        return SimpleNamespace()

    def insecure(address: str, options: Options = ()) -> SimpleNamespace:
        told.append(("insecure", address, None, options))
        return SimpleNamespace()

    def credentials(*parts: bytes | None) -> tuple[bytes | None, ...]:
        return parts

    with (
        patch.object(grpc.aio, "secure_channel", secure),
        patch.object(grpc.aio, "insecure_channel", insecure),
        patch.object(grpc, "ssl_channel_credentials", credentials),
        patch.object(grpc, "local_channel_credentials", lambda kind: kind),
    ):
        yield told


def _check_issued(checks: Checks, folder: Path, authority: Authority) -> None:
    for party in PARTIES:
        issued = authority.issue(folder, party, START, (_HOST,))
        constraints = _extension(issued, x509.BasicConstraints)
        usage = _extension(issued, x509.KeyUsage)
        checks.must(
            "a party's certificate issues no others",
            constraints is not None
            and not constraints.ca
            and usage is not None
            and not usage.key_cert_sign,
        )
        checks.must(
            "a certificate names its party and hosts, and no other party",
            issued.name == party and set(issued.names) == {party, _HOST, *_LOOPBACK},
        )
        extended = _extension(issued, x509.ExtendedKeyUsage)
        checks.must(
            "a certificate is its authority's, for a year, and for calls alone",
            issued.is_by(authority.certificate)
            and _YEAR - 1 <= issued.days_left(START) <= _YEAR
            and extended is not None
            and set(extended) == {ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH},
        )
    root = _extension(authority.certificate, x509.BasicConstraints)
    checks.must(
        "nobody whom an authority certified can certify others",
        root is not None and root.ca and root.path_length == 0,
    )
    checks.must(
        "no host is called like a party",
        not any(_issues(authority, folder / "host", party) for party in PARTIES),
    )
    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in folder.glob("*.key")}
    checks.must(
        "keys of certificates are closed to others",
        len(modes) == len(PARTIES) + 1 and set(modes.values()) == {_OWNER_ONLY},
    )


def _extension(certificate: Certificate, kind: type[Any]) -> Any:  # noqa: ANN401  # the value's own
    try:
        return certificate.parsed.extensions.get_extension_for_class(kind).value
    except x509.ExtensionNotFound:
        return None


def _issues(authority: Authority, folder: Path, host: str) -> bool:
    folder.mkdir(exist_ok=True)
    try:
        authority.issue(folder, "operator", START, (host,))
    except SettingsError:
        return False
    return True


def _check_taken(checks: Checks, folder: Path, authority: Authority) -> None:
    """A party does not start with a certificate that is another's, has ended, or has no key."""
    own = files_in(folder, "shuffler")
    end = authority.certificate.days_left(START)
    mixed = TlsFiles(
        certificate=own.certificate, key=files_in(folder, "analyzer").key, authority=own.authority
    )
    checks.must(
        "a certificate is shown by its own party, with its own key, until it ends",
        _starts(own, "shuffler", START)
        and not _starts(own, "analyzer", START)
        and not _starts(own, "shuffler", START + (_YEAR + 1) * _DAY)
        and not _starts(mixed, "shuffler", START)
        and end > _YEAR,
    )


def _starts(files: TlsFiles, party: str, now: float) -> bool:
    try:
        files.check(party, now)
        files.read()
    except SettingsError:
        return False
    return True


def _check_renewed(checks: Checks, folder: Path, authority: Authority) -> None:
    files = files_in(folder, "shuffler")
    renewal, before = Renewal(files), files.read()
    unchanged = renewal.take()
    authority.issue(folder, "shuffler", START)
    renewed, again = renewal.take(), renewal.take()
    checks.must(
        "a certificate that is renewed is shown from then on",
        unchanged is None
        and again is None
        and renewed is not None
        and renewed.certificate == files.read().certificate != before.certificate,
    )
