import dataclasses
import json
import math
import re
from pathlib import Path
from typing import Any

import pytest

from shuffledp.common.crypto.hpke import SUITES
from shuffledp.common.crypto.signing import SigningIdentity, digest_of
from shuffledp.common.errors import ProofError, TaskError
from shuffledp.common.limits import stated_rules
from shuffledp.common.protocols import PROTOCOLS
from shuffledp.common.task.canonical import INTEGERS_AS_TEXT, key_of
from shuffledp.common.task.domain_spec import BreakdownSpec, EdgesSpec
from shuffledp.common.task.draft import OpenDraft
from shuffledp.common.task.dummy_forms import DUMMIES
from shuffledp.common.task.shuffler_spec import NOISES
from shuffledp.common.task.spec_forms import FORMS
from shuffledp.common.task.task import Task, honest_share
from shuffledp.common.task.task_parts import TaskShuffler, TaskView
from shuffledp.common.task.token_spec import TokenSpec
from shuffledp.common.task.uniform_dummies import FixedDummies
from shuffledp.common.task_digest import TaskDigest
from tests.support.changed_tasks import changed
from tests.support.kind_tasks import kind_task
from tests.support.protocol_tasks import protocol_task
from tests.support.tables import table
from tests.support.tasks import published
from tests.vectors.make_task_vectors import FILE, accepted_tasks

_SMALL = published().task
_SPEC = _SMALL.item_mechanism
_WITH_TWO_NOISES = tuple(
    dataclasses.replace(each, noises=2 * each.noises) for each in _SMALL.shufflers
)


def test_a_task_is_verified_by_its_digest_and_the_pinned_identity() -> None:
    """Without a pinned identity the digest decides alone."""
    case, stranger = published(), SigningIdentity.generate().public_identity()
    digest = case.signed.digest()

    assert case.task == Task.verified(case.signed, digest, case.identity.public_identity())
    assert case.task == Task.verified(case.signed, digest, None)
    with pytest.raises(ProofError, match="not signed by the pinned analyzer identity"):
        Task.verified(case.signed, digest, stranger)
    with pytest.raises(ProofError, match="not the requested task"):
        Task.verified(case.signed, TaskDigest(bytes(32)), None)


def test_a_task_has_one_byte_form_only() -> None:
    """Spaces, another key order, an unknown key and bytes that are no JSON are refused."""
    raw = published().task.to_bytes()
    fields = json.loads(raw)

    for other in (
        json.dumps(fields).encode(),
        json.dumps(dict(reversed(fields.items())), separators=(",", ":")).encode(),
        raw.replace(b'{"', b'{"a":1,"', 1),
        raw + b"\n",
        b"\xff",
        b"",
    ):
        with pytest.raises(TaskError):
            Task.from_bytes(other)


@table(
    ("change", "message"),
    [
        ({"domain_size": 1}, "domain_size is 1; it must lie between 2"),
        ({"delta": 0.0}, "delta is 0.0"),
        ({"delta": 1.0}, "delta is 1.0"),
        ({"local_epsilon": 0.0}, "local_epsilon is 0.0; it must be above 0.0"),
        ({"local_epsilon": math.nan}, "local_epsilon is nan"),
        ({"local_epsilon": 20.5}, "local_epsilon is 20.5; it must be above 0.0 and at most 20.0"),
        ({"central_epsilon": 2.5}, "central_epsilon is 2.5"),
        ({"local_epsilon": math.inf}, "must be infinite if and only if they have none"),
        ({"central_epsilon": math.nan}, "central_epsilon is nan"),
        ({"central_epsilon": math.inf}, "the task would guarantee nothing"),
        ({"central_epsilon": -0.5}, "central_epsilon is -0.5; it must lie between 0"),
        ({"n_min": 0}, "n_min is 0"),
        ({"target_size": 5}, "target_size is 5; it must lie between 10"),
        ({"deadline": 0}, "deadline is 0"),
        ({"assumed_honest_fraction": True}, "must be a number"),
        ({"assumed_honest_fraction": 0.0}, "assumed_honest_fraction is 0.0"),
        ({"assumed_honest_fraction": 1.5}, "assumed_honest_fraction is 1.5"),
        ({"protocol": "no-such"}, "the known ones are ldp-warner"),
        ({"suite": "rot13"}, "the suite must be one of"),
        ({"nonce": b"short"}, "nonce has 5 bytes"),
        ({"analyzer_key": b""}, "analyzer_key has 0 bytes"),
        ({"labels": ("a", "b")}, "there are 2 labels for a domain_size of 100"),
        ({"labels": ("a",) * 100}, "two items have the same label"),
        ({"labels": (*map(str, range(99)), " 98")}, "two items have the same label"),
        ({"labels": (*map(str, range(98)), "é", "e\u0301")}, "two items have the same label"),
        ({"labels": (*map(str, range(99)), "a\ud800")}, "the label of item 99 contains half"),
        ({"population": " staff"}, "population must not begin or end with whitespace"),
        ({"population": "Müller"}, "population must be printable ASCII"),
        ({"views": ()}, "the task has 0 views; the protocol od-hp needs one"),
        ({"views": 2 * _SMALL.views}, "the task has 2 views, of 100, 100 items; this"),
        ({"shufflers": ()}, "the task lists 0 shufflers"),
        ({"shufflers": 2 * _SMALL.shufflers}, "the protocol od-hp hides a user among others"),
        ({"shufflers": _WITH_TWO_NOISES}, "the shuffler has 2 distributions of noise; it must"),
        ({"coalition_epsilon": 1.0}, "coalition_epsilon is 1.0; with one shuffler it must equal"),
        ({"title": "x" * 81}, "title has 81 characters; it may have at most 80"),
        ({"prompt": "Why? "}, "prompt must not begin or end with whitespace"),
        ({"purpose": "a\u202eb"}, "purpose must be printable text"),
        ({"series": "daily"}, "round is 0; it must lie between 1"),
        ({"round": 1}, "round is 1; a task without a series must leave it out"),
        ({"population": "x" * 65}, "population has 65 characters; it may have at most 64"),
        ({"budget_epsilon": 0.0}, "budget_epsilon is 0.0; it must be above 0 and finite"),
        ({"budget_epsilon": math.nan}, "budget_epsilon is nan"),
        ({"budget_epsilon": 0.5}, "budget_epsilon is 0.5; this task alone claims"),
        ({"budget_delta": 1e-7}, "budget_delta is 1e-07; it must be at least delta, 1e-06"),
        ({"budget_delta": 1.0}, "budget_delta is 1.0"),
        ({"dummies": FixedDummies(per_user=20_000)}, "a submission would have"),
        (
            {"domain_size": 5, "mechanism": dataclasses.replace(_SPEC, name="grr", buckets=6)},
            "GRR over 5 items",
        ),
        ({"mechanism": dataclasses.replace(_SPEC, digits=1)}, "1 digits in base 13 cannot"),
        (
            {"mechanism": dataclasses.replace(_SPEC, true_weight=1, other_weight=0)},
            "local_epsilon is 2.0, and reports have no local noise",
        ),
    ],
)
def test_a_task_that_breaks_a_rule_cannot_exist(change: dict[str, Any], message: str) -> None:
    """The message names the rule and the number that breaks it."""
    with pytest.raises(TaskError) as caught:
        changed(published().task, **change)

    assert message in str(caught.value)


@table(
    "change",
    [
        {"true_weight": 2**63, "other_weight": 1},
        {"true_weight": 1, "other_weight": 2},
        {"other_weight": 0},
        {"other_weight": -1, "true_weight": 1},
        {"buckets": 1},
        {"digits": 0},
        {"report_bytes": 0},
        {"buckets": 2**24, "other_weight": 2**40, "true_weight": 2**41},
    ],
)
def test_integer_weights_stay_within_exact_arithmetic(change: dict[str, Any]) -> None:
    """Weights are ordered and their sum stays below 2^63."""
    spec = published().task.mechanism

    with pytest.raises(TaskError):
        dataclasses.replace(spec, **change)


_NOISELESS = {
    "local_epsilon": math.inf,
    "dummies_per_user": 100,
    "buckets": 0,
    "n_min": 100,
    "target_size": 100,
}


def test_the_distribution_of_the_dummies_is_in_the_bytes() -> None:
    """extra_weight is an integer in a text, and nothing else is parsed as one."""
    task = published(dummies_per_user=1.3).task
    raw = task.to_bytes()

    fields = b'{"distribution":"fractional","extra_weight":"1288490189",%b"per_user":1}'
    assert fields % b"" in raw
    assert task == Task.from_bytes(raw)
    assert (2, 3) == task.lengths
    padded = Task.from_bytes(raw.replace(fields % b"", fields % b'"one_length":true,'))
    assert (3,) == padded.lengths
    with pytest.raises(TaskError, match="canonical"):
        Task.from_bytes(raw.replace(fields % b"", fields % b'"one_length":false,'))
    for other in (b'"0"', b"1288490189", b'"4294967296"', b'"-1"', b'"01"', b'"1_0"', b"true"):
        with pytest.raises(TaskError):
            Task.from_bytes(raw.replace(b':"1288490189"', b":" + other))


@table(
    "other",
    ['"-inf"', '"Inf"', '"infinity"', '"nan"', "NaN", "Infinity", "-Infinity", "1e999", "null"],
)
def test_an_infinite_local_epsilon_has_one_form_only(other: str) -> None:
    """The form is the text "inf"; no other number may be infinite."""
    task = published(local_epsilon=math.inf, dummies_per_user=100).task
    raw = task.to_bytes()
    assert (task, raw) == (Task.from_bytes(raw), Task.from_bytes(raw).to_bytes())
    assert math.inf == task.local_epsilon
    changed = raw.replace(b'"local_epsilon":"inf"', b'"local_epsilon":' + other.encode())
    assert raw != changed

    with pytest.raises(TaskError):
        Task.from_bytes(changed)
    for name in ("central_epsilon", "delta", "assumed_honest_fraction"):
        document = json.loads(raw) | {name: "inf"}
        written = json.dumps(document, sort_keys=True, separators=(",", ":"))
        for infinite in (written, written.replace(f'"{name}":"inf"', f'"{name}":1e999')):
            with pytest.raises(TaskError):
                Task.from_bytes(infinite.encode())


@pytest.mark.parametrize(
    ("protocol", "changes", "message"),
    [
        ("sh", {}, "the protocol sh uses the mechanism grr; the task has local-hashing, with 13"),
        ("mixdump", {}, "the protocol mixdump uses the mechanism grr; the task has local"),
        ("murs", {}, "the protocol murs has no dummies; the task has up to 1 for each user"),
        ("puredump", {"buckets": 0}, "puredump has no local noise: local_epsilon must be inf"),
        ("mixdump", _NOISELESS, "mixdump needs local noise: local_epsilon must be finite"),
    ],
)
def test_a_task_keeps_its_protocols_row(
    protocol: str, changes: dict[str, Any], message: str
) -> None:
    """A task of od-hp cannot claim another protocol."""
    task = published(**changes).task
    with pytest.raises(TaskError, match=message):
        dataclasses.replace(task, protocol=protocol)


@pytest.mark.parametrize(
    ("protocol", "changes", "message"),
    [
        ("ldp-warner", {"domain_size": 3}, "ldp-warner collects a bit; domain_size is 3"),
        ("ldp-olh-strings", {}, "ldp-olh-strings hashes labels; the task has none"),
        (
            "ldp-oue",
            {"local_epsilon": math.inf},
            "ldp-oue needs local noise: local_epsilon must be finite",
        ),
    ],
)
def test_a_task_meets_its_protocols_conditions(
    protocol: str, changes: dict[str, Any], message: str
) -> None:
    """A bit has two values, strings are hashed for candidates, and bits need noise."""
    with pytest.raises(TaskError, match=message):
        published(protocol=protocol, dummies_per_user=0, buckets=0, **changes)


@pytest.mark.parametrize(
    ("fraction", "users", "honest"), [(0.9, 10, 9), (1.0, 7, 7), (0.29, 100, 29), (0.1, 9, 0)]
)
def test_the_honest_fraction_is_the_decimal_that_is_shown(
    fraction: float, users: int, honest: int
) -> None:
    """.29 of 100 is 29, not the 28 of floats or of the exact binary fraction."""
    assert honest == honest_share(users, fraction)


@pytest.mark.parametrize(
    ("suite", "key_bytes", "overhead"),
    list(zip(SUITES, [32, 32, 1216], [48, 48, 1136], strict=True)),
)
def test_lengths_follow_from_the_suite(suite: str, key_bytes: int, overhead: int) -> None:
    """Lengths of keys, sealed reports and envelopes; an envelope has at most 1 MiB."""
    task = published(dummies_per_user=3, suite=suite).task
    assert 12 + overhead == task.sealed_report_bytes
    assert (16 + 4 * (12 + overhead) + overhead,) == task.envelope_sizes
    assert task == Task.from_bytes(task.to_bytes())
    for name, noun in (("analyzer_key", "analyzer_key"), ("shuffler_key", "the shuffler's key")):
        with pytest.raises(TaskError, match=f"{noun} has 33 bytes; it must have {key_bytes}"):
            changed(task, **{name: bytes(33)})
    with pytest.raises(TaskError, match="the limit is 1048576"):
        published(dummies_per_user=2**20 // (12 + overhead), suite=suite)


def test_a_task_too_long_to_be_read_is_never_written() -> None:
    """Every task that is signed can be read."""
    task = published().task
    labels = tuple(f"{number:0>200}" for number in range(12_000))
    with pytest.raises(TaskError, match="the limit is 2097152"):
        changed(
            task,
            domain_size=12_000,
            labels=labels,
            mechanism=dataclasses.replace(task.item_mechanism, digits=4),
        ).to_bytes()


@pytest.mark.parametrize(
    ("protocol", "remedy"),
    [
        ("sbin", "it needs a shuffler that adds more dummies of each item"),
        ("od-hp", "it needs local noise, more dummies, or a larger n_min"),
    ],
)
def test_the_error_of_a_task_without_a_guarantee_names_a_remedy(protocol: str, remedy: str) -> None:
    """More users do not help where only the shuffler's dummies hide values."""
    task = protocol_task(protocol)

    with pytest.raises(TaskError, match=remedy):
        dataclasses.replace(task, central_epsilon=math.inf)


@pytest.mark.parametrize("protocol", ["sbin", "sageo", "od-hp"])
def test_a_domain_size_of_any_length_is_refused(protocol: str) -> None:
    """The range is checked before any other rule uses it."""
    fields = json.loads(published().task.to_bytes())
    fields["views"][0]["domain_size"] = 10**400
    fields["protocol"] = protocol
    written = json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()

    with pytest.raises(TaskError, match="domain_size is 1000"):
        Task.from_bytes(written)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"views": {}}, "views must be a list"),
        ({"delta": 0}, "delta is 0.0; it must be at least 1e-15"),
        ({"mechanism": 4.0}, "mechanism must be a table"),
        ({"mechanism": {"name": "magic"}}, "name of mechanism must be one of: grr"),
        ({"nonce": 1}, "nonce must be a text"),
        ({"version": 7}, "this program reads version 2 of tasks of the kinds categorical"),
        ({"kind": "unknown"}, "this program reads version 2"),
    ],
)
def test_a_field_of_another_type_is_refused(change: dict[str, Any], message: str) -> None:
    """The message names the field, where it is one."""
    fields = json.loads(_SMALL.to_bytes()) | change
    with pytest.raises(TaskError, match=message):
        Task.from_bytes(json.dumps(fields).encode())


_ROOT = Path(__file__).parents[4]
_PAGE = (_ROOT / "docs" / "wire.md").read_text("utf-8")
_VECTORS = json.loads(FILE.read_text(encoding="utf-8"))


def test_a_tasks_canonical_bytes_never_change() -> None:
    """A task of every protocol keeps the bytes and the digest that earlier versions gave."""
    tasks, vectors = accepted_tasks(), _VECTORS["accepted"]

    assert tasks.keys() == vectors.keys()
    for name, task in tasks.items():
        assert vectors[name]["bytes"].encode() == task.to_bytes()
        assert vectors[name]["digest"] == digest_of(task.to_bytes()).hex()
        assert task == Task.from_bytes(vectors[name]["bytes"].encode())


@table("reason", _VECTORS["refused"])
def test_bytes_in_another_form_are_refused(reason: str) -> None:
    """A former format by its name."""
    message = "task format 1 is no longer read" if reason == "task format 1" else "."
    with pytest.raises(TaskError, match=message):
        Task.from_bytes(_VECTORS["refused"][reason].encode())


def test_every_large_integer_of_a_task_is_a_text() -> None:
    """JavaScript's numbers are exact up to 2^53; the bounds are those of the fields' types."""
    for form in (*FORMS.values(), *DUMMIES.values(), *NOISES.values(), TaskShuffler):
        for name, (kind, rule) in stated_rules(form).items():  # type: ignore[arg-type]  # mypy calls types unhashable
            if kind is int and getattr(rule, "keywords", {}).get("maximum", 0) > 2**32:
                assert name in INTEGERS_AS_TEXT
    assert set() == {name for name in INTEGERS_AS_TEXT if f"`{name}`" not in _PAGE}


def test_the_wires_page_names_everything_in_a_task() -> None:
    """All names of protocols, tables and fields; and the labels of bytes, but for a party's own."""
    forms: set[Any] = {*FORMS.values(), *DUMMIES.values(), *NOISES.values(), TaskShuffler, TaskView}
    forms |= {Task, TokenSpec, EdgesSpec, BreakdownSpec}
    fields = {key_of(row) for form in forms for row in dataclasses.fields(form) if row.init}
    names = {*PROTOCOLS, *SUITES, *FORMS, *DUMMIES, *NOISES, *fields}
    folders = ("crypto", "messages", "transparency", "mechanisms")
    code = [path for name in folders for path in (_ROOT / "shuffledp/common" / name).rglob("*.py")]
    found = {
        label
        for path in code
        for label in re.findall(r'b"(shuffledp v1 .*)"', path.read_text("utf-8"))
    }

    assert set() == {name for name in names if f"`{name}`" not in _PAGE}
    own = {f"shuffledp v1 {name}" for name in ("key", "part", "ledger", "decision")}
    assert own == {label for label in found if label not in _PAGE}


def test_the_formats_page_states_the_defaults_of_mechanisms() -> None:
    """In one line, as they are in the code; a default other than 0 or empty with its value."""
    [line] = re.findall(r"Optional keys of mechanisms: (.*)", _PAGE)
    rows = [row for form in {*FORMS.values()} for row in dataclasses.fields(form)]
    optional = {row.name: row.default for row in rows if row.default is not dataclasses.MISSING}

    stated = {f"`{name}`" + f" ({default})" * bool(default) for name, default in optional.items()}
    assert stated == {*re.findall(r"`\w+`(?: \(\w+\))?", line)}


def test_clusters_and_their_protocol_need_each_other() -> None:
    """A task with a table of clusters is read back; without one, or in vain, it is refused."""
    signed, other = protocol_task("signed"), protocol_task("puredump")
    none = FixedDummies(per_user=0)
    with pytest.raises(TaskError, match="this protocol's dummies must be one of: clusters"):
        changed(signed, dummies=none)
    with pytest.raises(TaskError, match="the distribution of this protocol's dummies must be one"):
        changed(other, dummies=signed.dummies)
    assert signed == Task.from_bytes(signed.to_bytes())


@pytest.mark.parametrize(
    ("encoding", "fields", "rule"),
    [
        ("text", {"domain_size": 2}, "there are 0 labels, and domain_size is 2"),
        ("hash", {"labels": ("00" * 8,)}, "labels and domain_size are left out"),
        ("spell", {}, "needs as many labels as domain_size, 1, each a hash of 16"),
        ("spell", {"labels": ("00" * 8, "x" * 16)}, "needs as many labels as domain_size, 2"),
        ("spell", {"labels": tuple(f"{n:016x}" for n in range(257))}, "there are 257 hashes"),
        ("code", {"dummies_per_user": 1.0}, "discover has no dummies"),
        ("code", {"local_epsilon": math.inf}, "open data always needs noise"),
        ("code", {"local_epsilon": 0.0}, "local_epsilon is 0 or left out"),
    ],
)
def test_an_open_dictionary_has_hashes_as_labels_or_none(
    encoding: str, fields: dict[str, Any], rule: str
) -> None:
    """A message names the rule and the number; 256 hashes are the most for 257 buckets."""
    with pytest.raises(TaskError, match=rule):
        kind_task("discover", open=OpenDraft(encoding=encoding), **fields)
    labels = tuple(f"{number:016x}" for number in range(256))

    assert 256 == kind_task("discover", open=OpenDraft(encoding="spell"), labels=labels).domain_size
    many = tuple(f"{number:016x}" for number in range(2000))
    with pytest.raises(TaskError, match="domain_size times most_bytes is 400000"):
        kind_task(
            "discover",
            open=OpenDraft(encoding="spell", most_bytes=200),
            labels=many,
            local_epsilon=8.0,
        )
