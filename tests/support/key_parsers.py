"""Parsers of keys, key rings and certificates, which may be damaged or planted."""

import shutil
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from shuffledp.analyzer.keys import AnalyzerKeys
from shuffledp.analyzer.settings import AnalyzerSettings
from shuffledp.audit.harness.clock import ManualClock
from shuffledp.audit.harness.party_cores import SCHEDULE
from shuffledp.common.crypto.hpke import DEFAULT_SUITE, SUITES, HpkePrivateKey
from shuffledp.common.crypto.key_ring import DAY, KeyRing, KeyState
from shuffledp.common.errors import CredentialError
from shuffledp.common.runtime.confirmed_clock import ConfirmedClock
from shuffledp.common.runtime.key_store import RING_FILE, KeyStore
from shuffledp.common.runtime.state_directory import StateDirectory
from shuffledp.common.runtime.tls import development_files, identity_for
from shuffledp.deploy.clients.key_folder import KeyFolder
from shuffledp.shuffler.server import publish_keys
from tests.support.keys import SHUFFLER
from tests.support.parsers import Parser, directory

_NOW: Final = ManualClock().now()
_OWN: Final = HpkePrivateKey(DEFAULT_SUITE, bytes(range(32))).public_key()
_OLD: Final = HpkePrivateKey(DEFAULT_SUITE, bytes(range(1, 33))).public_key()

Files = dict[str, bytes]
"""Contents of files, by name below a folder."""


def _made(folder: Path, paths: Iterable[Path]) -> Files:
    """Read files below a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths if path.is_file()}


_FOLDER: Final = directory() / "made-keys"
_FOLDER.mkdir()
AnalyzerKeys.load(StateDirectory.open(_FOLDER / "state"), SCHEDULE, _NOW)
development_files(_FOLDER / "tls", "analyzer", ManualClock())
_KEYS: Final = _made(_FOLDER, (_FOLDER / "state.key", *(_FOLDER / "state").iterdir()))
_KEY_FILE: Final = next(name for name in sorted(_KEYS) if name.startswith("state/hpke-"))
_UNSEALED: Final = {n: raw for n, raw in _KEYS.items() if n.endswith(".token")}
_CLOCK: Final = b'{"wall": 1800000000.5, "since_boot": 60.25, "boot": "a name"}\n'
_PEM: Final = _made(_FOLDER / "tls", (_FOLDER / "tls").iterdir())


def _among(
    others: Files, read: Callable[[Path], object], file_name: str, *seeds: bytes, **more: Any
) -> Parser:
    """Register a reader of a folder in which one file is hostile."""
    folder = directory() / f"{len(others)} files beside {file_name.replace('/', ' ')}"

    def changed(raw: bytes) -> object:
        shutil.rmtree(folder, ignore_errors=True)
        for name, content in (others | {file_name: raw}).items():
            path = folder / name
            path.parent.mkdir(exist_ok=True, parents=True)
            path.write_bytes(content)
            path.chmod(0o600)
        return read(folder)

    fields: dict[str, Any] = {"name": file_name, "share": 1} | more
    return Parser(read=changed, seeds=seeds or (others[file_name],), **fields)


def _started(folder: Path) -> str:
    """Read the keys as a party does when it starts, and open each."""
    keys = AnalyzerKeys.load(StateDirectory.open(folder / "state"), SCHEDULE, _NOW + DAY)
    with suppress(CredentialError):
        keys.operator_token.check("token")
    for entry in keys.reports.ring.held():
        keys.reports.private_key(entry.suite, entry.public, whose="analyzer_key")
    return keys.reports.ring.to_json()


def _published(folder: Path) -> None:
    state = StateDirectory.open(folder / "state")
    publish_keys(state, KeyStore(state, SCHEDULE), SHUFFLER)


def _confirmed(folder: Path) -> float:
    """Read the time that a service stored."""
    return ConfirmedClock(StateDirectory.open(folder / "state"), ManualClock()).now()


def _rotated(raw: bytes) -> str:
    """Rotate a ring long after its keys expired."""
    ring = KeyRing.from_json(raw.decode("ascii", "replace"))
    return ring.rotated(
        now=_NOW + 100 * DAY,
        schedule=SCHEDULE,
        suites=(DEFAULT_SUITE,),
        needed=(),
        make=lambda _: _OWN,
    ).to_json()


def _ring() -> bytes:
    hybrid = next(suite for suite in SUITES if suite != DEFAULT_SUITE)
    ring = KeyRing().with_key(_OLD, KeyState.ACTIVE, _NOW)
    ring = ring.with_key(HpkePrivateKey.generate(DEFAULT_SUITE).public_key(), KeyState.EXPIRED, 0.0)
    ring = ring.with_key(HpkePrivateKey.generate(hybrid).public_key(), KeyState.PENDING, _NOW)
    return ring.to_json().encode()


def _own(folder: Path) -> object:
    """Read an operator's own PEM files."""
    settings = AnalyzerSettings(
        state_directory=folder,
        tls_certificate=folder / "analyzer.pem",
        tls_key=folder / "analyzer.key",
        tls_authority=folder / "authority.pem",
    )
    return identity_for(settings, "analyzer", ManualClock())


def _revoking(folder: Path) -> object:
    """Revoke, with a hostile list of what was revoked earlier."""
    return KeyFolder(folder).revoke("analyzer", _NOW)


def _issued(folder: Path) -> object:
    """Issue a certificate under a planted authority."""
    return development_files(folder, "analyzer", ManualClock()).read()


def _renewed(folder: Path) -> object:
    """Show and renew a certificate in a key folder."""
    (folder / "analyzer").mkdir()
    (folder / "analyzer.pem").replace(folder / "analyzer" / "analyzer.pem")
    keys = KeyFolder(folder)
    keys.renew("analyzer", _NOW)
    return keys.show()


PARSERS: Final = (
    Parser(
        name="key ring", read=_rotated, seeds=(_ring(), KeyRing().to_json().encode()), form="json"
    ),
    _among(_KEYS, _started, f"state/{RING_FILE}", form="json"),
    _among(_KEYS, _started, _KEY_FILE, name="state/hpke.key"),
    _among(_KEYS, _started, "state/operator.token"),
    _among(_KEYS, _started, "state.key"),
    _among(_UNSEALED, _started, "state/stray.key", bytes(range(32))),
    _among({}, _confirmed, "state/clock.json", _CLOCK, form="json"),
    _among(_KEYS, _published, "state/envelope.pub", _OWN.raw.hex().encode(), form="text"),
    *(
        _among(
            {file: raw for file, raw in _PEM.items() if read != _issued or file[:8] != "analyzer"},
            *(read, file_name, _PEM[file_name]),
            name=name,
            form="text",
            share=share,
        )
        for name, read, file_name, share in (
            ("own certificate", _own, "analyzer.pem", 8),
            ("own certificate's key", _own, "analyzer.key", 4),
            ("authority's certificate", _issued, "authority.pem", 1),
            ("authority's key", _issued, "authority.key", 1),
            ("certificate to renew", _renewed, "analyzer.pem", 1),
        )
    ),
    _among(_PEM, _revoking, "revoked.txt", f"{'ab' * 32} analyzer 2026".encode(), form="text"),
)
