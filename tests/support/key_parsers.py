"""Keys, key rings and certificates on the disk: damaged, or put there by somebody else."""

import base64
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Final

from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509 import load_pem_x509_certificate

from analyzer.registry import AnalyzerKeys
from analyzer.settings import AnalyzerSettings
from common.crypto.hpke import HpkePrivateKey
from common.crypto.key_ring import DAY, KeyRing, KeyState
from common.crypto.suites import DEFAULT_SUITE, SUITES
from common.runtime.key_store import RING_FILE, KeyStore
from common.runtime.state_directory import StateDirectory
from common.runtime.tls import development_files, identity_for
from deploy.audit.harness.clock import ManualClock
from deploy.clients.key_folder import KeyFolder
from shuffler.server import publish_keys
from tests.support.file_parsers import directory, file_parser
from tests.support.keys import SCHEDULE
from tests.support.parsers import Parser

_NOW: Final = ManualClock().now()
_OWN: Final = HpkePrivateKey(DEFAULT_SUITE, bytes(range(32))).public_key()
_OLD: Final = HpkePrivateKey(DEFAULT_SUITE, bytes(range(1, 33))).public_key()

# --- a party's keys -------------------------------------------------------------------------------


@cache
def _made_keys() -> dict[str, bytes]:
    """Give the files of an analyzer that was started once: its state key, and its state."""
    folder = directory() / "made-keys" / "state"
    folder.parent.mkdir()
    AnalyzerKeys.load(StateDirectory.open(folder), SCHEDULE, _NOW)
    paths = (folder.with_suffix(".key"), *folder.iterdir())
    return {str(path.relative_to(folder.parent)): path.read_bytes() for path in paths}


def _state_with(
    read: Callable[[StateDirectory], object], *missing: str
) -> Callable[[Path], object]:
    """Read with one file of a state changed and all others as they were made."""

    def changed(path: Path) -> object:
        hostile = path.read_bytes()
        top = path.parent if path.name == "state.key" else path.parent.parent
        shutil.rmtree(top)
        (top / "state").mkdir(parents=True)
        kept = {name: raw for name, raw in _made_keys().items() if name not in missing}
        for name, raw in (kept | {str(path.relative_to(top)): hostile}).items():
            (top / name).write_bytes(raw)
            (top / name).chmod(0o600)
        return read(StateDirectory.open(top / "state"))

    return changed


def _started(state: StateDirectory) -> str:
    """Read the keys as a party does that starts, and show that each opens."""
    keys = AnalyzerKeys.load(state, SCHEDULE, _NOW + DAY)
    keys.operator_token.matches("token")
    for entry in keys.reports.ring.kept():
        keys.reports.private_key(entry.suite, entry.public, whose="analyzer_key")
    return keys.reports.ring.to_json()


def _published(state: StateDirectory) -> None:
    keys = KeyStore(state, SCHEDULE)
    publish_keys(state, keys)


def _key_parser(name: str, file_name: str, seeds: tuple[bytes, ...], *covers: str) -> Parser:
    return file_parser(
        name,
        f"keys/{file_name}",
        _state_with(_started),
        seeds,
        "binary",
        *covers,
        share=1,
    )


def _made(file_name: str) -> bytes:
    return _made_keys()[f"state/{file_name}"]


def _rotated(raw: bytes) -> str:
    """Read a ring as a party does: to the one after what is due."""
    ring = KeyRing.from_json(raw.decode("ascii", "replace"))
    return ring.rotated(
        now=_NOW + 100 * DAY,
        schedule=SCHEDULE,
        suites=(DEFAULT_SUITE,),
        needed=(),
        make=lambda _: _OWN,
    ).to_json()


def _a_ring() -> bytes:
    hybrid = next(suite for suite in SUITES if suite != DEFAULT_SUITE)
    ring = KeyRing().with_key(_OLD, KeyState.ACTIVE, _NOW)
    ring = ring.with_key(HpkePrivateKey.generate(DEFAULT_SUITE).public_key(), KeyState.EXPIRED, 0.0)
    ring = ring.with_key(HpkePrivateKey.generate(hybrid).public_key(), KeyState.PENDING, _NOW)
    return ring.to_json().encode()


_KEY_FILE: Final = next(
    name.partition("/")[2]
    for name in sorted(_made_keys())
    if name.startswith("state/hpke-") and len(_made_keys()[name]) > 0
)
_STORES: Final = (
    Parser(
        name="key ring",
        read=_rotated,
        seeds=(_a_ring(), KeyRing().to_json().encode()),
        form="json",
        covers=("common.crypto.key_ring.KeyRing.from_json", "common.crypto.key_ring._entry"),
    ),
    file_parser(
        "key ring's file",
        f"keys/state/{RING_FILE}",
        _state_with(_started),
        (_made(RING_FILE),),
        "json",
        "common.runtime.key_store.KeyStore._read",
        share=1,
    ),
    _key_parser(
        "sealed key file",
        f"state/{_KEY_FILE}",
        (_made(_KEY_FILE),),
        "common.runtime.state_directory.StateDirectory.secret",
        "common.runtime.state_directory._read_secret",
        "common.runtime.state_directory.StateKey.open",
    ),
    _key_parser(
        "operator's token in the state directory",
        "state/operator.token",
        (_made("operator.token"),),
        "common.runtime.state_directory.StateDirectory.plain_secret",
    ),
    _key_parser(
        "state key",
        "state.key",
        (_made_keys()["state.key"],),
        "common.runtime.state_directory._read_secret",
        "common.runtime.state_directory.StateKey.__init__",
    ),
    file_parser(
        "key file whose state key is missing",
        "keys/state/stray.key",
        _state_with(_started, *(name for name in _made_keys() if name.endswith((".key", ".json")))),
        (bytes(range(32)),),
        "binary",
        "common.runtime.state_directory.StateDirectory._check_nothing_is_sealed",
        share=1,
    ),
    file_parser(
        "published key",
        "keys/state/envelope.pub",
        _state_with(_published),
        (_OWN.raw.hex().encode(),),
        "text",
        "shuffler.server.publish_keys",
        share=1,
    ),
)

# --- certificates ---------------------------------------------------------------------------------


@cache
def _made_certificates() -> Path:
    """Give a folder with an authority, and what it issued to the analyzer."""
    folder = directory() / "made-certificates"
    development_files(folder, "analyzer", ManualClock())
    return folder


def _pem(name: str) -> bytes:
    return (_made_certificates() / name).read_bytes()


def _wrapped(label: str, der: bytes) -> bytes:
    """Put bytes into PEM, so that changes to them reach what reads the inside."""
    body = base64.encodebytes(der)
    return f"-----BEGIN {label}-----\n".encode() + body + f"-----END {label}-----\n".encode()


_NAMES: Final = ("authority.pem", "authority.key", "analyzer.pem", "analyzer.key")


def _folder_with(
    read: Callable[[Path], object], file_name: str, *missing: str
) -> Callable[[Path], object]:
    """Read with one file of a folder changed and all others as they were made."""

    def changed(path: Path) -> object:
        hostile = path.read_bytes()
        if file_name.endswith(".pem") and path.suffix == ".der":
            hostile = _wrapped("CERTIFICATE", hostile)
        elif path.suffix == ".der":
            hostile = _wrapped("PRIVATE KEY", hostile)
        folder = path.parent
        for name in _NAMES:
            (folder / name).unlink(missing_ok=True)
            if name not in missing:
                (folder / name).write_bytes(hostile if name == file_name else _pem(name))
        return read(folder)

    return changed


def _own(folder: Path) -> object:
    """Read PEM files that an operator brought."""
    settings = AnalyzerSettings(
        state_directory=folder,
        tls_certificate=folder / "analyzer.pem",
        tls_key=folder / "analyzer.key",
        tls_authority=folder / "authority.pem",
    )
    return identity_for(settings, "analyzer", ManualClock())


def _issued(folder: Path) -> object:
    """Issue a certificate under an authority that somebody put there."""
    return development_files(folder, "analyzer", ManualClock()).read()


def _renewed(folder: Path) -> object:
    """Renew a certificate of a folder for parties, after a look at it."""
    party = folder / "analyzer"
    party.mkdir(exist_ok=True)
    (folder / "analyzer.pem").replace(party / "analyzer.pem")
    keys = KeyFolder(folder)
    keys.show(_NOW)
    return keys.renew("analyzer", _NOW)


def _of_certificates(
    name: str,
    file_name: str,
    read: Callable[[Path], object],
    *covers: str,
    missing: tuple[str, ...] = (),
    share: float = 4.0,
) -> tuple[Parser, Parser]:
    """Register a PEM file twice: its text, and what the text holds."""
    pem = _pem(file_name)
    if file_name.endswith(".pem"):
        der = load_pem_x509_certificate(pem).public_bytes(Encoding.DER)
    else:
        key = load_pem_private_key(pem, None)
        der = key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())
    changed = _folder_with(read, file_name, *missing)
    where = "certificates-" + "".join(filter(str.isalpha, name))
    return (
        file_parser(name, f"{where}/{file_name}", changed, (pem,), "text", *covers, share=share),
        file_parser(
            f"{name}, inside",
            f"{where}/inside.der",
            changed,
            (der,),
            "binary",
            *covers,
            share=share,
        ),
    )


_CERTIFICATES: Final = (
    *_of_certificates(
        "own certificate",
        "analyzer.pem",
        _own,
        "common.runtime.tls.identity_for",
        "common.runtime.tls.TlsFiles.read",
        "common.runtime.certificates.Certificate.read",
        share=8,
    ),
    *_of_certificates(
        "own certificate's key",
        "analyzer.key",
        _own,
        "common.runtime.tls.TlsFiles.read",
        "common.runtime.certificates.Certificate.belongs_to",
    ),
    *_of_certificates(
        "authority's certificate",
        "authority.pem",
        _issued,
        "common.runtime.tls.development_files",
        "common.runtime.certificates.Authority.read",
        missing=("analyzer.pem", "analyzer.key"),
        share=1,
    ),
    *_of_certificates(
        "authority's key",
        "authority.key",
        _issued,
        "common.runtime.tls.development_files",
        "common.runtime.certificates.Authority.read",
        missing=("analyzer.pem", "analyzer.key"),
        share=1,
    ),
    *_of_certificates(
        "certificate to renew",
        "analyzer.pem",
        _renewed,
        "deploy.clients.key_folder.KeyFolder._issue",
        share=1,
    ),
)

KEY_PARSERS: Final = (*_STORES, *_CERTIFICATES)
