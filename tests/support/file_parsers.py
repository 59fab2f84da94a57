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

from common.runtime.database import Database
from common.runtime.settings import load
from common.task_digest import TaskDigest
from deploy.accountant import query_file as question_file
from deploy.clients.base import read_token
from deploy.commands.options import read_identity
from deploy.commands.profile import read_profile
from deploy.commands.task import _hexadecimal_file
from deploy.datasets import files
from deploy.results.decoded_texts import read_candidates
from deploy.results.iteration import read_iterated
from deploy.sentinels.journal import SentinelFile, SentinelState
from deploy.tasks import drafts as draft_file
from shuffler.settings import ShufflerSettings
from shuffler.storage.batch_files import BatchFiles
from shuffler.storage.batch_key import BatchKey
from tests.support.parsers import Parser
from user_agent.credentials import TokenFile
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
_BATCH_KEY: Final = BatchKey(bytes(32))
_TASK: Final = TaskDigest(bytes(32))
_SENTINELS: Final = f"""{{"task_digest": "{"00" * 32}", "sentinels": 3}}
{{"sentinel": 0, "envelope_hash": "", "leaves": ["{"ab" * 32}", "{"cd" * 32}"], "envelope": "00ff"}}
{{"sentinel": 1, "envelope_hash": "", "leaves": ["{"01" * 32}"], "envelope": "aa"}}
{{"sentinel": 0, "state": "stored", "receipt": "{"ab" * 64}"}}
{{"sentinel": 0, "state": "acknowledged"}}
{{"sentinel": 1, "state": "refused", "reason": "this batch no longer collects"}}
""".encode()
_ITEMS: Final = b'note,value,count\n"x, y",Aix,3\n,Bonn,0\n,"Ch""ur",7\n'


@cache
def directory() -> Path:
    """Give a directory that lasts as long as the process."""
    kept = TemporaryDirectory(prefix="shuffledp-parsers-")
    _KEPT.append(kept)
    return Path(kept.name)


_KEPT: Final[list[TemporaryDirectory[str]]] = []


def file_parser(
    name: str,
    file_name: str,
    read: Callable[[Path], object],
    seeds: tuple[bytes, ...],
    form: str,
    *covers: str,
    share: float = 16.0,
    most_seconds: float = 5.0,
) -> Parser:
    """Register what reads a file; `file_name` is below `directory()`."""

    def from_bytes(raw: bytes) -> object:
        path = directory() / file_name
        path.parent.mkdir(exist_ok=True, parents=True)
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
        most_seconds=most_seconds,
    )


def _parquet(columns: dict[str, list[object]]) -> bytes:
    written = io.BytesIO()
    pq.write_table(pa.table(columns), written)
    return written.getvalue()


def _sqlite() -> bytes:
    path = directory() / "made.sqlite"
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


def _sentinels(path: Path) -> None:
    """Go on with a file of sentinels, as far as there may be."""
    with SentinelFile.opened(path, _TASK, 3) as kept:
        for number in range(len(kept.sentinels)):
            kept.record(number, SentinelState.UNKNOWN)


def _permuted() -> bytes:
    files = BatchFiles(directory() / "made" / "b", _BATCH_KEY)
    files.begin()
    files.save([b"sealed reports", b"more of them"])
    return (directory() / "made" / "b" / "permuted").read_bytes()


FILE_PARSERS: Final = (
    file_parser(
        "draft file",
        "draft.toml",
        lambda path: draft_file.read(path, bytes(32)),
        (_DRAFT, _DRAFT_WITH_TABLES),
        "toml",
        "deploy.tasks.drafts.read",
        "common.runtime.validation.read_toml",
        "common.runtime.validation.validated",
    ),
    file_parser(
        "questions file",
        "questions.json",
        question_file.answer_file,
        (_QUESTIONS,),
        "json",
        "deploy.accountant.query_file.answer_file",
        share=0.05,  # several searches for an epsilon each
    ),
    file_parser(
        "settings of a user agent",
        "user_agent.toml",
        lambda path: load(UserAgentSettings, path, {}, "SHUFFLEDP_USER_AGENT"),
        (_SETTINGS,),
        "toml",
        "common.runtime.settings.load",
    ),
    file_parser(
        "settings of a shuffler",
        "shuffler.toml",
        lambda path: load(ShufflerSettings, path, {}, "SHUFFLEDP_SHUFFLER"),
        (_SHUFFLER_SETTINGS,),
        "toml",
        "common.runtime.settings.load",
    ),
    file_parser(
        "candidates",
        "candidates.txt",
        read_candidates,
        (b"Ohio\nUtah\n\n", "Köln\r\nParis".encode()),
        "text",
        "deploy.results.decoded_texts.read_candidates",
    ),
    file_parser(
        "result of pairs",
        "result.json",
        read_iterated,
        (
            b'{"kind":"key-value","low":-1e3,"high":2,"population":"x","means_with_fakes":[1,-1e3]}',
            b'{"means_with_fakes":[],"kind":"key-value","low":0,"high":5.5,"population":""}',
        ),
        "json",
        "deploy.results.iteration.read_iterated",
    ),
    file_parser(
        "CSV",
        "people.csv",
        files.read,
        (_PEOPLE, _ITEMS),
        "csv",
        "deploy.datasets.files.read",
        "deploy.datasets.files._lines",
        "deploy.datasets.files.read_csv",
    ),
    file_parser(
        "CSV, compressed",
        "people.csv.gz",
        files.read,
        (gzip.compress(_PEOPLE, mtime=0), gzip.compress(_PEOPLE + b"4\n5\n" * 500, mtime=0)),
        "binary",
        "deploy.datasets.files.read",
        share=2,
        most_seconds=300.0,  # 128 kB hold up to 64 million rows, each read in some microseconds
    ),
    file_parser(
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
    file_parser(
        "hexadecimal file",
        "envelope.pub",
        _hexadecimal_file,
        (b"00" * 32 + b"\n",),
        "text",
        "deploy.commands.task._hexadecimal_file",
        "deploy.commands.options.hexadecimal",
    ),
    file_parser(
        "operator's token",
        "token",
        read_token,
        (b"ab" * 32,),
        "text",
        "deploy.clients.base.read_token",
    ),
    file_parser(
        "operator's profile",
        "shuffledp.toml",
        read_profile,
        (b'analyzer = "127.0.0.1:7001"\nauthority = "tls/authority.pem"\n', b""),
        "text",
        "deploy.commands.profile.read_profile",
    ),
    file_parser(
        "token file",
        "people.tokens",
        lambda path: TokenFile(path).token("Ada"),
        (b"ab" * 80 + b" Ada\n\n" + b"cd" * 80 + b" Bo\n", b"00" * 80),
        "text",
        "user_agent.credentials.TokenFile._lines",
        "user_agent.credentials.TokenFile._read",
    ),
    file_parser(
        "operator's file of users' tokens",
        "tokens.txt",
        lambda path: TokenFile(path).tokens(),
        (b"ab" * 80 + b"\n\n" + b"cd" * 80 + b"\n", b"00" * 80),
        "text",
        "user_agent.credentials.TokenFile._lines",
        "user_agent.credentials.TokenFile._read",
    ),
    file_parser(
        "file of sentinels",
        "sentinels.jsonl",
        _sentinels,
        (_SENTINELS, _SENTINELS.splitlines(keepends=True)[0], _SENTINELS[:-9]),
        "text",
        "deploy.sentinels.journal.SentinelFile._read",
        "deploy.sentinels.journal._planned",
        "deploy.sentinels.journal._check_first",
    ),
    file_parser(
        "identity file",
        "identity.pub",
        read_identity,
        (b"ab" * 32 + b"\n",),
        "text",
        "deploy.commands.options.read_identity",
    ),
    file_parser(
        "permuted batch",
        "batches/b/permuted",
        lambda path: list(BatchFiles(path.parent, _BATCH_KEY).saved()),
        (_permuted(),),
        "binary",
        "shuffler.storage.batch_files._sealed_records",
    ),
    file_parser(
        "database",
        "state.sqlite",
        _database,
        (_sqlite(),),
        "binary",
        "common.runtime.database._connect",
        "common.runtime.database._prepare",
        share=1,
    ),
)
