"""Every function that reads bytes from outside is fed by the fuzzer's parsers."""

import ast
import pkgutil
import sys
import threading
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Final

import pytest

from common.wire.fields import Codec
from tests.support.parsers import parsers

_ROOT: Final = Path(__file__).parents[2]
_FOLDERS: Final = ("common", "user_agent", "shuffler", "analyzer", "deploy")
_NAMES: Final = ("from_bytes", "parse", "unpack")
_ENDINGS: Final = ("_from_wire", "_from_bytes", "_from_hex")
_CALLS: Final = {
    *("loads", "FromString", "ParseFromString", "read_text", "read_bytes", "readline"),
    *("fromhex", "frombuffer", "unpack_from", "iter_unpack", "read_schema", "read_table"),
    *("ParquetFile", "load_pem_private_key", "load_pem_public_key", "load_der_private_key"),
    *("load_pem_x509_certificate", "load_pem_x509_certificates", "decompress"),
    *("read_toml", "literal_eval", "fromstring", "load_npz", "genfromtxt", "loadtxt"),
}
"""Calls by which bytes become values, by their last name."""
_QUALIFIED: Final = {
    *("json.load", "tomllib.load", "pickle.load", "csv.reader", "csv.DictReader", "gzip.open"),
    *("np.load", "struct.unpack", "int.from_bytes", "sqlite3.connect", "yaml.safe_load"),
}

_AUDITED: Final = (
    "harness.services.Services.channel",
    "harness.services.Services.start_analyzer",
    "harness.services.Services.start_shuffler",
    "observation.byte_search._word",
    "observation.byte_search._words_found",
    "observation.party_views._known_fields",
    "observation.recorder._Recorder._scrape",
    "observation.recorder._Recorder._collect_and_release",
    "observation.recorder.RunRecord.envelopes",
    "observation.recorder.files_of",
    "observation.recorder.stored_groups",
)
"""Of deploy/audit."""

_NOT_FROM_OUTSIDE: Final = {
    **{
        f"deploy.audit.{name}": "what services sent and stored that it has started "
        "itself, in a folder of its own and for its own clients"
        for name in _AUDITED
    },
    "analyzer.intake.open_and_count": "reports, which are fed to every mechanism",
    "common.mechanisms.rappor.bloom.positions": "a hash that it has just made",
    "common.mechanisms.base.null_reports": "a constant byte",
    "common.mechanisms.rappor.permanent_response.cohort_of": "a hash of the device's own secret",
    "common.mechanisms.hashing.local_hashing.Placement.__call__": "a hash that it has just made",
    "common.mechanisms.rappor.rappor.Rappor.permanent": "filters and hashes that it has just made",
    "common.mechanisms.numeric.multi_rphm.projection": "a hash that it has just made",
    "common.mechanisms.hashing.string_hashing.StringHashing._digests": "hashes that it has just "
    "made",
    "common.crypto.randomness._fresh_bits": "the operating system's randomness",
    "common.runtime.process_metrics.memory_limit": "a file of the kernel",
    "common.crypto.merkle.sorted_leaves": "hashes that it has just made",
    "shuffler.storage.submissions.Deduplication.judge": "tags that it has made, or that opened "
    "under the batch's key",
    "shuffler.storage.submissions.Deduplication.remember_tags": "tags that it has made, or that "
    "opened under the batch's key",
    "shuffler.storage.group.Group.entries": "tags that its own workers made",
    "shuffler.storage.group.Group.only": "reports that opened under the batch's key",
    "shuffler.storage.group.merge_small": "reports that opened under the batch's key",
    "shuffler.shuffle.BatchShuffler._kept": "reports that opened under the batch's key, each of "
    "the task's length when it was sealed",
    "shuffler.shuffle.BatchShuffler._dummies": "what its own workers sealed",
    "shuffler.permutation.ExternalPermutation._iter_buckets": "reports that opened under the "
    "batch's key, counted by BatchFiles.take",
    "common.runtime.health_check.check": "a file that its own service wrote",
    "deploy.audit.sampling.devices.run_devices": "reports that it has just made",
    "deploy.audit.distributions.value_reports.set_bits": "a hash that it has just made",
    "deploy.commands.profile._found_in": "an address that a service wrote",
    "deploy.clients.local_cluster.Child.published": "files that its own child wrote",
    "deploy.clients.local_cluster.Cluster.shuffler_key": "files that its own child wrote",
    "deploy.clients.local_cluster.Cluster._start": "files that its own child wrote",
    "deploy.docker.deployment.Deployment._write": "lines for compose; others are kept as they are",
    "deploy.docker.deployment.Deployment.prepare": "what its own container wrote, in ASCII",
    "deploy.load.users.seal_values": "envelopes that its own workers made",
    "deploy.load.users.SealedUsers.save": "a signed task that is written",
    "deploy.demo.demo.collect": "the authority's certificate that its own child wrote; gRPC reads "
    "it",
    "deploy.clients.base.read_file": "the authority's certificate: gRPC reads it, and "
    "trusts nobody if it is none",
    "deploy.tasks.task_view.as_json": "a task's own bytes, made on the spot",
    "user_agent.budget._upgrade": "its own file, opened as common.runtime.database opens one",
}
"""Functions that look like readers of outside data, each with the reason why they are not."""


def _readers(source: str, module: str) -> set[str]:
    """Return the functions of a file that read bytes, by module and name."""
    found: set[str] = set()

    def visit(node: ast.AST, where: str, function: str | None) -> None:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            inner = function or f"{where}.{node.name}"  # a function inside one belongs to it
            if (
                node.name in _NAMES
                or node.name.endswith(_ENDINGS)
                or node.name.startswith("parse_")
            ):
                found.add(inner)
            for child in ast.iter_child_nodes(node):
                visit(child, where, inner)
            return
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and function is None:
            found.update({f"{where}.{node.id}"} if node.id.endswith(_ENDINGS) else ())
        if isinstance(node, ast.Call) and _reads(node):
            found.add(function or where)
        inside = f"{where}.{node.name}" if isinstance(node, ast.ClassDef) else where
        for child in ast.iter_child_nodes(node):
            visit(child, inside, function)

    visit(ast.parse(source), module, None)
    return found


def _reads(call: ast.Call) -> bool:
    written = ast.unparse(call.func)
    return written in _QUALIFIED or written.rpartition(".")[2] in _CALLS


@cache
def _found() -> set[str]:
    return {
        reader
        for folder in _FOLDERS
        for path in sorted((_ROOT / folder).rglob("*.py"))
        for reader in _readers(
            path.read_text(encoding="utf-8"),
            ".".join(path.relative_to(_ROOT).with_suffix("").parts).removesuffix(".__init__"),
        )
    }


def _called() -> set[str]:
    """Read every example, and return the functions that were called, by module and name."""
    called: set[str] = set()
    codecs: set[int] = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            name = frame.f_code.co_qualname.partition(".<locals>")[0]
            called.add(f"{frame.f_globals.get('__name__')}.{name}")
            if frame.f_code is Codec.from_wire.__code__:
                codecs.add(id(frame.f_locals["self"]))

    for parser in parsers().values():
        threading.setprofile(note)
        sys.setprofile(note)
        try:
            for example in parser.seeds:
                parser.read(example)
        finally:
            sys.setprofile(None)
            threading.setprofile(None)
    methods = {name: pkgutil.resolve_name(name) for name in _found() - called}
    return called | {
        name for name, one in methods.items() if id(getattr(one, "__self__", None)) in codecs
    }


def test_every_function_that_reads_from_outside_is_fed_by_the_fuzzer() -> None:
    """
    A new one is registered with valid examples in tests/support/*_parsers.py, or stands above with
    the reason why its bytes are the program's own. Every example is read without an error.
    """
    found = _found()

    assert set() == found - _called() - set(_NOT_FROM_OUTSIDE)
    assert set() == set(_NOT_FROM_OUTSIDE) - found


@pytest.mark.parametrize(
    ("source", "readers"),
    [
        ("def thing_from_wire(message): return message.field", {"m.thing_from_wire"}),
        ("class A:\n    def from_bytes(cls, raw): return cls()", {"m.A.from_bytes"}),
        ("to_wire, thing_from_wire = codec.pair", {"m.thing_from_wire"}),
        ("def f(path):\n    return json.loads(path.read_text())", {"m.f"}),
        ("def f(raw):\n    def g(): return np.frombuffer(raw)\n    return g", {"m.f"}),
        ("def f(raw): return struct.unpack('<I', raw)", {"m.f"}),
        ("KEY = bytes.fromhex(open('key').readline())", {"m"}),
        ("def f(raw): return raw.hex()", set()),
    ],
)
def test_a_reader_is_found_however_it_reads(source: str, readers: set[str]) -> None:
    """By its name, by what it calls, in a class, inside a function, or at load."""
    assert readers == _readers(source, "m")
