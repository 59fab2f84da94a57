"""The fuzzer covers every function that parses outside data."""

import ast
import pkgutil
import sys
import threading
from functools import cache
from types import FrameType
from typing import Final

import pytest

from shuffledp.common.wire.fields import Codec
from tests.support.parsers import parsers
from tests.support.source_tree import FOLDERS, ROOT, module_name

_READING: Final = [folder for folder in FOLDERS if folder not in {"protos", "audit", "shuffledp"}]
"""Protos is generated; the audit reads only data of services that it started itself."""
_NAMES: Final = ("from_bytes", "parse", "unpack")
_ENDINGS: Final = ("_from_wire", "_from_bytes", "_from_hex")
_CALLS: Final = {
    *("loads", "FromString", "ParseFromString", "read_text", "read_bytes", "readline"),
    *("fromhex", "frombuffer", "unpack_from", "iter_unpack", "read_schema", "read_table"),
    *("ParquetFile", "load_pem_private_key", "load_pem_public_key", "load_der_private_key"),
    *("load_pem_x509_certificate", "load_pem_x509_certificates", "decompress", "validate_json"),
    *("read_toml", "literal_eval", "fromstring", "load_npz", "genfromtxt", "loadtxt"),
}
"""Calls by which bytes become values, by their last name."""
_QUALIFIED: Final = {
    *("json.load", "tomllib.load", "pickle.load", "csv.reader", "csv.DictReader", "gzip.open"),
    *("np.load", "struct.unpack", "int.from_bytes", "sqlite3.connect", "yaml.safe_load"),
}

_NOT_FROM_OUTSIDE: Final = {
    "what the function, or its own workers or child processes, have just made": (
        "shuffledp.analyzer.batch_counts.count_reports",  # reports are fed to every mechanism
        "shuffledp.analyzer.count_job.CountJob.cells",
        "shuffledp.common.messages.inclusion_proof.salted_leaves",
        "shuffledp.common.mechanisms.base.null_reports",
        "shuffledp.common.mechanisms.hashing.local_hashing.Placement.__call__",
        "shuffledp.common.mechanisms.hashing.string_hashing.StringHashing._digests",
        "shuffledp.common.mechanisms.numeric.coordinate_sampling.projection",
        "shuffledp.common.mechanisms.rappor.bloom.positions",
        "shuffledp.common.mechanisms.rappor.permanent_response.cohort_of",
        "shuffledp.common.mechanisms.rappor.rappor.Rappor.permanent",
        "shuffledp.deploy.clients.local_cluster.Cluster._start",
        "shuffledp.deploy.clients.local_cluster.PageCluster.__init__",
        "shuffledp.deploy.clients.local_parties.LocalParties.published",
        "shuffledp.deploy.clients.issuer.draw_people",
        "shuffledp.deploy.clients.local_cluster.kept_address",
        "shuffledp.deploy.clients.local_parties.LocalParties._public_key",
        "shuffledp.deploy.clients.local_parties.LocalParties.start_issuer",
        "shuffledp.deploy.commands.issuer.fetch",
        "shuffledp.deploy.commands.load._explain",
        "shuffledp.deploy.commands.profile._found_in",
        "shuffledp.deploy.commands.up._ask",
        "shuffledp.deploy.demo.demo.contribute",
        "shuffledp.deploy.docker.bill_of_materials.bill_of",
        "shuffledp.deploy.docker.deployment.Deployment._write",
        "shuffledp.deploy.docker.deployment.Deployment.prepare",
        "shuffledp.deploy.load.users.SealedUsers.save",
        "shuffledp.deploy.load.users.seal_values",
        "shuffledp.deploy.results.result_view._found_values",  # of a parsed result
        "shuffledp.deploy.tasks.task_view.as_json",
        "shuffledp.shuffler.inclusion.InclusionProofs.keep",
        "shuffledp.shuffler.relay.layer_jobs.LayerJob.open",
        "shuffledp.shuffler.storage.group.Group.entries",
        "shuffledp.shuffler.storage.postgres_store._lock_key",
        "shuffledp.shuffler.storage.postgres_connection._UuidsDumper.dump",
    ),
    "constants that are shipped with the program": (
        "shuffledp.common.crypto.privacy_tokens",
        "shuffledp.deploy.docker.bill_of_materials._needed",
        "shuffledp.deploy.docker.bill_of_materials.pins",
        "shuffledp.lab.planning.capacity",
        "shuffledp.lab.planning.cluster_law.shipped_laws",
    ),
    "data that opened under the batch's key": (
        "shuffledp.common.receiving.received_job.rows_from",
        "shuffledp.shuffler.shuffle_job.PermutingJob._rows",
        "shuffledp.shuffler.storage.group.open_group",
        "shuffledp.shuffler.storage.submissions.Deduplication.classify",
        "shuffledp.shuffler.storage.submissions.Deduplication.remember",
    ),
    "the operating system's, the service's own, or read by gRPC": (
        "shuffledp.common.crypto.randomness._bits",
        "shuffledp.common.runtime.clock._boot_id",
        "shuffledp.common.runtime.health_check.check",
        "shuffledp.common.runtime.metrics.memory_limit",
        "shuffledp.issuer.issuance_store.IssuanceStore.mark",
        "shuffledp.shuffler.delivery.Deliveries.resume",
        "shuffledp.shuffler.storage.sqlite_store.SqliteGroups.read",
    ),
}
"""Functions that only look like parsers of outside data, by the reason."""


def _readers(source: str, module: str) -> set[str]:
    """Return the functions of a file that parse bytes, by module and name."""
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
        for folder in _READING
        for path in sorted((ROOT / folder).rglob("*.py"))
        for reader in _readers(path.read_text(encoding="utf-8"), module_name(path))
    }


def _called() -> set[str]:
    """Parse every example, and return the called functions, by module and name."""
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


def test_the_fuzzer_covers_every_parser_of_outside_data() -> None:
    """
    Every valid example is parsed without an error.

    Register a new parser with examples in tests/support/*_parsers.py, or exempt it above with the
    reason why its data is the program's own.
    """
    found, exempt = _found(), {name for names in _NOT_FROM_OUTSIDE.values() for name in names}

    assert set() == found - _called() - exempt
    assert set() == exempt - found


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
def test_a_parser_is_found_by_each_of_its_forms(source: str, readers: set[str]) -> None:
    """Its name or its calls reveal it: in a class, in a function or at module level."""
    assert readers == _readers(source, "m")
