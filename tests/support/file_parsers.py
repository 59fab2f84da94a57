"""Parsers of files written by people, operators or other programs."""

import gzip
import io
import json
import sqlite3
from functools import partial
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from shuffledp.audit.harness.clock import ManualClock
from shuffledp.common.protocols import Kind
from shuffledp.common.runtime.database import Database, Schema
from shuffledp.common.runtime.settings import load
from shuffledp.common.task.canonical import to_json
from shuffledp.common.task_digest import TaskDigest
from shuffledp.deploy.clients.base import read_token
from shuffledp.deploy.clients.issuer import read_tokens
from shuffledp.deploy.commands.connection import read_profile
from shuffledp.deploy.commands.options import read_identity, read_shuffler_key
from shuffledp.deploy.datasets import files
from shuffledp.deploy.datasets.sample_people import people_of
from shuffledp.deploy.datasets.sources import dataset
from shuffledp.deploy.load.behaviour import Behaviour, LoadPlan
from shuffledp.deploy.load.scenario import read_scenario
from shuffledp.deploy.load.users import SealedUsers, seal
from shuffledp.deploy.results.decoder import read_candidates
from shuffledp.deploy.results.export import columns_of_file
from shuffledp.deploy.results.next_task import Iterated, read_result
from shuffledp.deploy.sentinels.sentinel_file import SentinelFile, SentinelState
from shuffledp.deploy.tasks import drafts
from shuffledp.deploy.tasks.drafts import read_token_key
from shuffledp.deploy.tasks.schedule import read_series
from shuffledp.issuer.entitlements import PeopleList
from shuffledp.issuer.id_tokens import IdTokens
from shuffledp.lab.accountant.query_output import answer_file
from shuffledp.user_agent.credentials import CredentialFile
from shuffledp.user_agent.settings import UserAgentSettings
from tests.support.example_tasks import DRAFTS
from tests.support.id_tokens import AUDIENCE, KEY_SET, PROVIDER
from tests.support.parsers import directory, file_parser
from tests.support.tasks import published
from tests.support.tokens import TOKENS

_SETTINGS: Final = b"""state_directory = 'state'
listen = '127.0.0.1:0'
log_level = "INFO"
tls_directory = 'tls'
shuffler = '127.0.0.1:7000'
analyzer_identity = '00'
shuffler_identity = '00'
allow_tasks_without_tokens = true
local_epsilon_cap = 4.0
total_delta_cap = 1e-4
several_persons = true
witnesses = ["shuffler/00+00000000+BA"]
witness_quorum = 1
"""
_SERIES: Final = b"""population = "staff"
delta = 1e-6
n_min = 10
target_size = 20
domain_size = 9
local_epsilon = 2.0
[schedule]
first = 2027-01-31T12:00:00Z
every = "6 hours"
rounds = 30
"""
_SCENARIO: Final = (
    b"target.sink = true\npeople.users = 5\nramp = {first = 1, last = 2.5, steps = 3}"
)
_QUESTIONS: Final = b"""[{"kind": "grr", "n": 50, "k": 4, "eps_l": 1.0, "delta": 1e-6},
{"kind": "olh", "n": 20, "k": 8, "eps_l": 2, "M_binom": [10, 0.5], "eps": 0.5},
{"kind": "laplace", "n": 5, "eps_l": 1, "eps": 0.5, "colluders": 1},
{"kind": "rappor", "n": 5, "rappor": [0.5, 0.3, 0.7, 2], "eps": 0.5},
{"kind": "grr", "n": 9, "k": 3, "eps_l": "inf", "M": 5, "m": 0.5, "M_groups": [2, 3, 0.5],
"eps": 1}]
"""
_PAIRS: Final = (
    b'{"kind":"key-value","low":-1e3,"high":2,"population":"x","means_with_fakes":[1,-1e3]}',
    b'{"means_with_fakes":[],"kind":"key-value","low":0,"high":5.5,"population":""}',
)
_PEOPLE: Final = b"value\n3\n1\n3\n2\n"
_ITEMS: Final = b'note,value,count\n"x, y",Aix,3\n,Bonn,0\n,"Ch""ur",7\n'
_TASK: Final = TaskDigest(bytes(32))
_SENTINELS: Final = f"""{{"task_digest": "{"00" * 32}", "sentinels": 3}}
{{"sentinel": 0, "envelope_hash": "", "leaves": ["{"ab" * 32}", "{"cd" * 32}"], "envelope": "00ff"}}
{{"sentinel": 1, "envelope_hash": "", "leaves": ["{"01" * 32}"], "envelope": "aa"}}
{{"sentinel": 0, "state": "stored", "receipt": "{"ab" * 64}"}}
{{"sentinel": 0, "state": "acknowledged"}}
{{"sentinel": 1, "state": "refused", "reason": "this batch no longer collects"}}
""".encode()


def _parquet(columns: dict[str, list[object]]) -> bytes:
    written = io.BytesIO()
    pq.write_table(pa.table(columns), written)
    return written.getvalue()


def _sqlite() -> bytes:
    with sqlite3.connect(":memory:") as connection:
        connection.execute("CREATE TABLE rows (number INTEGER PRIMARY KEY, blob BLOB NOT NULL)")
        connection.executemany("INSERT INTO rows (blob) VALUES (?)", [(bytes(99),)] * 9)
    return connection.serialize()


def _database(path: Path) -> None:
    for beside in ("-wal", "-shm"):
        path.with_name(path.name + beside).unlink(missing_ok=True)
    Database(path, Schema(steps=("CREATE TABLE IF NOT EXISTS other (number INTEGER);",))).close()


def _sentinels(path: Path) -> None:
    """Read and continue a file of sentinels."""
    with SentinelFile.opened(path, _TASK, 3) as kept:
        for number in range(len(kept.sentinels)):
            kept.record(number, SentinelState.UNKNOWN)


def _users() -> bytes:
    """Seal seven users, one of each behaviour."""
    path = directory() / "made.users"
    shares = {kind: 1 / 7 for kind in Behaviour if kind}
    case = published(domain_size=30, buckets=5, target_size=100)
    seal(case.signed, LoadPlan(n_users=7, shares=shares, dataset="zipf:30", seed=3)).save(path)
    return path.read_bytes()


def _submissions(path: Path) -> object:
    users = SealedUsers.load(path)
    return [users.submissions(user) for user in range(users.n_users)]


def _provider(path: Path) -> object:
    return IdTokens(path, issuer=PROVIDER, audience=AUDIENCE, clock=ManualClock())


def _people(path: Path, kind: Kind) -> object:
    return people_of(dataset(str(path)), kind, None, 1)


_FILES: Final[tuple[tuple[Any, ...], ...]] = (
    (*("toml", "draft.toml", drafts.read), *(drafts.as_toml(one).encode() for one in DRAFTS)),
    ("toml", "series.toml", read_series, _SERIES),
    ("toml", "scenario.toml", lambda path: read_scenario(str(path), {}), _SCENARIO),
    ("json", "questions.json", answer_file, _QUESTIONS),
    (
        *("toml", "user_agent.toml"),
        lambda path: load(UserAgentSettings, path, {}, "SHUFFLEDP_USER_AGENT"),
        _SETTINGS,
    ),
    ("text", "candidates.txt", read_candidates, b"Ohio\nUtah\n\n", "Köln\r\nParis".encode()),
    (*("json", "result.json"), lambda path: read_result(path, Iterated, "key-value"), *_PAIRS),
    ("json", "columns.json", columns_of_file, *_PAIRS),
    ("csv", "people.csv", files.read, _PEOPLE, _ITEMS),
    (
        *("binary", "people.csv.gz", files.read),
        *(gzip.compress(raw, mtime=0) for raw in (_PEOPLE, _PEOPLE + b"4\n5\n" * 500)),
    ),
    (
        *("binary", "people.parquet", files.read),
        _parquet({"value": ["a", "b", "b"], "other": [1, 2, 3]}),
        _parquet({"value": [1, 2, 3], "count": [4, 5, 6]}),
    ),
    ("csv", "numbers.csv", partial(_people, kind="mean"), b"value\n36.6\n-1e3\n\n"),
    ("csv", "vectors.csv", partial(_people, kind="vector"), b'value\n"1, 2.5"\n"0,1"\n'),
    (
        "csv",
        "pairs.csv",
        partial(_people, kind="key-value"),
        b'value,count\n"3:.5, 1:1",7\n0:2,1\n',
    ),
    ("csv", "texts.csv", partial(_people, kind="open"), b"value\nOhio\nUtah\n"),
    ("text", "envelope.pub", read_shuffler_key, b"00" * 32 + b"\n"),
    ("text", "token", read_token, b"ab" * 32),
    (
        *("text", "shuffledp.toml", read_profile),
        *(b'analyzer = "127.0.0.1:7001"\nauthority = "tls/authority.pem"\n', b""),
    ),
    (
        *("text", "credentials.txt", lambda path: CredentialFile(path).all()),
        *(b"Ada " + b"ab" * 32 + b"\n\nBo " + b"cd" * 32 + b"\n", b"00" * 32),
    ),
    (
        *("text", "tokens.txt", read_tokens),
        *(b"ab" * 354 + b"\n\n" + b"cd" * 354 + b"\n", b"00" * 354),
    ),
    (
        *("text", "sentinels.jsonl", _sentinels),
        *(_SENTINELS, _SENTINELS.splitlines(keepends=True)[0], _SENTINELS[:-9]),
    ),
    ("json", "token-key.json", read_token_key, json.dumps(to_json(TOKENS)).encode()),
    ("text", "people.list", PeopleList, f"Ada {'ab' * 32}\nBo Li {'cd' * 32}\n".encode()),
    ("json", "oidc-keys.json", _provider, KEY_SET),
    ("text", "identity.pub", read_identity, b"ab" * 32 + b"\n"),
    ("binary", "state.sqlite", _database, _sqlite()),
    ("binary", "raw.users", _submissions, _users()),
)
"""Formats, names, readers and valid contents."""
_LESS: Final[dict[str, dict[str, Any]]] = {
    "questions.json": {"share": 0.05},  # several searches for an epsilon each
    # 128 kB hold up to 64 million rows, each read in some microseconds
    "people.csv.gz": {"share": 2.0, "most_seconds": 300.0},
    "people.parquet": {"share": 1.0},
    "state.sqlite": {"share": 1.0},
    "raw.users": {"share": 2.0},
}
PARSERS: Final = tuple(
    file_parser(name, read, *seeds, form=form, **_LESS.get(name, {}))
    for form, name, read, *seeds in _FILES
)
