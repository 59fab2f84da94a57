"""Files that a person, an operator or another program wrote."""

import gzip
import io
import sqlite3
from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from analyzer.keys import AnalyzerKeys
from analyzer.settings import AnalyzerSettings
from common.runtime.database import Database
from common.runtime.settings import load
from common.runtime.state import StateDirectory
from common.runtime.tls import development_files, identity_for
from deploy import draft_file, question_file
from deploy.commands.services import _hexadecimal_file
from deploy.datasets import files
from deploy.operator_client import read_token
from shuffler.settings import ShufflerSettings
from tests.support.clocks import ManualClock
from tests.support.keys import SCHEDULE
from tests.support.parsers import Parser
from user_agent.settings import UserAgentSettings

_SETTINGS: Final = b"""state_directory = 'state'
listen = '127.0.0.1:0'
log_level = "INFO"
tls_directory = 'tls'
shuffler = '127.0.0.1:7000'
analyzer_identity = '00'
local_epsilon_cap = 4.0
total_delta_cap = 1e-4
several_persons = true
"""
_SHUFFLER_SETTINGS: Final = b"""state_directory = 'state'
plaintext = true
analyzer = '127.0.0.1:7001'
analyzer_identity = '00'
minimum_batch = 3
opening_processes = 2
most_dummies = 1000
"""
_DRAFT: Final = b"""protocol = "od-hp"
domain_size = 3
labels = ["a", "b", "c"]
buckets = 0
dummies_per_user = 1.3
local_epsilon = 2.0
delta = 1e-6
n_min = 10
target_size = 20
deadline = 2027-01-31T12:00:00Z
population = "staff"
budget_epsilon = 3
"""
_DRAFT_WITH_TABLES: Final = b"""domain_size = 30
local_epsilon = inf
delta = 1e-6
n_min = 10
target_size = 20
deadline = 1900000000
[dummies]
law = "binomial"
per_user = 1
trials = 2
extra_weight = 5
most = 2
[shuffler]
law = "geometric"
keep_weight = 4294967296
peak = 3
left_weight = 5
right_weight = 7
most = 20
"""
_QUESTIONS: Final = b"""[{"kind": "grr", "n": 50, "k": 4, "eps_l": 1.0, "delta": 1e-6},
{"kind": "olh", "n": 20, "k": 8, "eps_l": 2, "M_binom": [10, 0.5], "eps": 0.5},
{"kind": "laplace", "n": 5, "eps_l": 1, "delta": 0.01, "colluders": 1},
{"kind": "rappor", "n": 5, "rappor": [0.5, 0.3, 0.7, 2], "delta": 0.01},
{"kind": "grr", "n": 9, "k": 3, "eps_l": "inf", "M": 5, "m": 0.5, "M_groups": [2, 3, 0.5],
"eps": 1}]
"""
_PEOPLE: Final = b"value\n3\n1\n3\n2\n"
_ITEMS: Final = b'note,value,count\n"x, y",Aix,3\n,Bonn,0\n,"Ch""ur",7\n'


@cache
def _directory() -> Path:
    """Give a directory that lasts as long as the process."""
    kept = TemporaryDirectory(prefix="shuffledp-parsers-")
    _KEPT.append(kept)
    return Path(kept.name)


_KEPT: Final[list[TemporaryDirectory[str]]] = []


def _file(
    name: str,
    file_name: str,
    read: Callable[[Path], object],
    seeds: tuple[bytes, ...],
    form: str,
    *covers: str,
    share: float = 16.0,
) -> Parser:
    def from_bytes(raw: bytes) -> object:
        path = _directory() / file_name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(raw)
        path.chmod(0o600)
        return read(path)

    return Parser(
        name=name,
        read=from_bytes,
        seeds=seeds,
        form=form,  # type: ignore[arg-type]  # one of Form
        covers=covers,
        share=share,
    )


def _parquet(columns: dict[str, list[object]]) -> bytes:
    written = io.BytesIO()
    pq.write_table(pa.table(columns), written)
    return written.getvalue()


def _sqlite() -> bytes:
    path = _directory() / "made.sqlite"
    path.unlink(missing_ok=True)
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE rows (number INTEGER PRIMARY KEY, blob BLOB NOT NULL)")
    connection.executemany("INSERT INTO rows (blob) VALUES (?)", [(bytes(99),)] * 9)
    connection.commit()
    connection.close()
    return path.read_bytes()


def _database(path: Path) -> None:
    for beside in ("-wal", "-shm"):
        path.with_name(path.name + beside).unlink(missing_ok=True)
    Database(path, "CREATE TABLE IF NOT EXISTS other (number INTEGER);").close()


def _own_certificate(path: Path) -> object:
    """Read PEM files that an operator brought."""
    settings = AnalyzerSettings(
        state_directory=path.parent, tls_certificate=path, tls_key=path, tls_authority=path
    )
    return identity_for(settings, "analyzer", ManualClock())


def _authority_key(path: Path) -> object:
    """Make a certificate under an authority's key that somebody put there."""
    for made in ("analyzer.pem", "analyzer.key"):
        (path.parent / made).unlink(missing_ok=True)
    (path.parent / "authority.pem").touch()
    return development_files(path.parent, "analyzer", ManualClock()).read()


@cache
def _pem() -> bytes:
    development_files(_directory() / "made", "shuffler", ManualClock())
    return (_directory() / "made" / "authority.key").read_bytes()


FILE_PARSERS: Final = (
    _file(
        "draft file",
        "draft.toml",
        lambda path: draft_file.read(path, bytes(32)),
        (_DRAFT, _DRAFT_WITH_TABLES),
        "toml",
        "deploy.draft_file.read",
        "common.runtime.toml_file.read_toml",
    ),
    _file(
        "questions file",
        "questions.json",
        question_file.answer_file,
        (_QUESTIONS,),
        "json",
        "deploy.question_file.answer_file",
        share=0.05,  # several searches for an epsilon each
    ),
    _file(
        "settings of a user agent",
        "user_agent.toml",
        lambda path: load(UserAgentSettings, path, {}, "SHUFFLEDP_USER_AGENT"),
        (_SETTINGS,),
        "toml",
        "common.runtime.settings.load",
    ),
    _file(
        "settings of a shuffler",
        "shuffler.toml",
        lambda path: load(ShufflerSettings, path, {}, "SHUFFLEDP_SHUFFLER"),
        (_SHUFFLER_SETTINGS,),
        "toml",
        "common.runtime.settings.load",
    ),
    _file(
        "CSV",
        "people.csv",
        files.read,
        (_PEOPLE, _ITEMS),
        "csv",
        "deploy.datasets.files.read",
        "deploy.datasets.files._lines",
        "deploy.datasets.table.read_csv",
    ),
    _file(
        "CSV, compressed",
        "people.csv.gz",
        files.read,
        (gzip.compress(_PEOPLE, mtime=0), gzip.compress(_PEOPLE + b"4\n5\n" * 500, mtime=0)),
        "binary",
        "deploy.datasets.files.read",
        share=2,
    ),
    _file(
        "Parquet",
        "people.parquet",
        files.read,
        (
            _parquet({"value": ["a", "b", "b"], "other": [1, 2, 3]}),
            _parquet({"value": [1, 2, 3], "count": [4, 5, 6]}),
        ),
        "binary",
        "deploy.datasets.files._parquet",
        share=1,
    ),
    _file(
        "hexadecimal file",
        "envelope.pub",
        _hexadecimal_file,
        (b"00" * 32 + b"\n",),
        "text",
        "deploy.commands.services._hexadecimal_file",
        "deploy.commands.options.hexadecimal",
    ),
    _file(
        "operator's token",
        "token",
        read_token,
        (b"ab" * 32,),
        "text",
        "deploy.operator_client.read_token",
    ),
    _file(
        "key file",
        "state/reports.key",
        lambda path: AnalyzerKeys.load(StateDirectory.open(path.parent), SCHEDULE, 0.0),
        (bytes(31) + b"\x09",),
        "binary",
        "common.runtime.state.StateDirectory.secret",
        share=1,
    ),
    _file(
        "own certificate",
        "own.pem",
        _own_certificate,
        (_pem(),),
        "text",
        "common.runtime.tls.identity_for",
        share=4,
    ),
    _file(
        "authority's key",
        "tls/authority.key",
        _authority_key,
        (_pem(),),
        "text",
        "common.runtime.tls.development_files",
        "common.runtime.tls._authority_key",
        share=1,
    ),
    _file(
        "database",
        "state.sqlite",
        _database,
        (_sqlite(),),
        "binary",
        "common.runtime.database._connect",
        share=1,
    ),
)
