"""What the audit looks for on disks: files, columns, keys and byte strings."""

import os
import secrets
from pathlib import Path

import pytest

from common.runtime.database import Database
from common.runtime.state_directory import StateDirectory
from deploy.audit.raw_bytes import found, kinds_found
from deploy.audit.services.inventory import (
    missing_tables,
    open_to_others,
    unknown_batches,
    unknown_columns,
    unknown_files,
)
from deploy.audit.services.look import columns, look, secret_ways
from deploy.audit.services.watch import DatabaseSettings, Watch


@pytest.fixture
def state(tmp_path: Path) -> StateDirectory:
    """Give a state directory with one sealed key."""
    made = StateDirectory.open(tmp_path / "shuffler")
    made.secret("identity.key", lambda: bytes(range(32)))
    return made


def test_a_sealed_key_is_opened_and_its_file_left_as_it_is(state: StateDirectory) -> None:
    """Its content is looked for, wherever it may lie."""
    seen = look(state.path, "shuffler", "over")

    assert {"identity.key": bytes(range(32))} == seen.secrets
    assert bytes(range(32)) in secret_ways([seen])
    assert seen.state_key in secret_ways([seen])
    assert [] == unknown_files(seen) == [*open_to_others(seen)]


def test_a_key_in_plain_is_none_that_is_sealed(state: StateDirectory) -> None:
    """And looking does not seal it, as its owner's next start would."""
    (state.path / "identity.key").write_bytes(bytes(32))
    seen = look(state.path, "shuffler", "over")

    assert {"identity.key": None} == seen.secrets
    assert bytes(32) == (state.path / "identity.key").read_bytes()


@pytest.mark.parametrize(
    "name",
    [
        "order-0.npy",
        "generator.json",
        f"recovery-{'ab' * 16}.key",
        "arrivals.log",
        "plain.bin",
        "batch-1.key",
        "identity.key.bak",
        "reports.sqlite",
        f"batches/{'ab' * 16}/order",
        "x/identity.key",
    ],
)
def test_a_file_of_another_name_is_noticed(state: StateDirectory, name: str) -> None:
    """Whatever it holds."""
    path = state.path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()

    assert name == unknown_files(look(state.path, "shuffler", "over"))[0]


@pytest.mark.parametrize("name", ["groups", f"batches/{'ab' * 16}/parts", "keys"])
def test_a_folder_of_another_name_is_noticed(state: StateDirectory, name: str) -> None:
    """An empty one; and a link, wherever it leads."""
    (state.path / name).mkdir(parents=True)
    (state.path / "link").symlink_to("nowhere")

    assert {f"{name}/", "link"} == set(unknown_files(look(state.path, "shuffler", "over")))


def test_a_folder_of_no_batch_is_noticed(state: StateDirectory) -> None:
    """By its id, which none has."""
    for digit in "ab":
        (state.path / "batches" / (digit * 32)).mkdir(parents=True)
    seen = look(state.path, "shuffler", "over")

    assert [] == unknown_files(seen)
    assert [f"batches/{'b' * 32}/"] == unknown_batches(seen, {"a" * 32})


def test_a_directory_or_a_key_that_others_may_read_is_noticed(state: StateDirectory) -> None:
    """Each by its name."""
    state.path.chmod(0o750)
    (state.path / "identity.key").chmod(0o640)
    (state.path / "address").touch(0o644)

    assert [".", "identity.key"] == [*open_to_others(look(state.path, "shuffler", "over"))]


def test_columns_and_tables_are_compared_with_those_that_are_known(tmp_path: Path) -> None:
    """One that is new is named; one that is missing was not looked at."""
    schema = (
        "CREATE TABLE refusals (batch_id PRIMARY KEY, outcome, n, moment) WITHOUT ROWID;"
        "CREATE TABLE orders (place);"
    )
    Database(tmp_path / "spool.sqlite", schema).close()
    there = columns(tmp_path)

    expected = ["orders.place", "orders.rowid", "refusals.moment"]
    assert expected == sorted(unknown_columns("shuffler", there))
    assert {"batches", "submission_groups", "used_tokens"} == missing_tables("shuffler", there)


def test_what_is_drawn_and_how_databases_are_kept_is_noted(tmp_path: Path) -> None:
    """While the block runs, and not afterwards."""
    watch = Watch(tmp_path / "links")
    with watch.watching():
        drawn = {secrets.token_bytes(32), os.urandom(32)}
        secrets.token_bytes(12)
        Database(tmp_path / "spool.sqlite", "").close()
    secrets.token_bytes(32)
    as_it_should_be = DatabaseSettings(name="spool.sqlite", synchronous=2, secure_delete=1)

    assert drawn == watch.watched().drawn
    assert (as_it_should_be,) * 2 == watch.watched().settings


def test_settings_that_change_later_are_noted(tmp_path: Path) -> None:
    """They are asked for again when the database is closed."""
    watch = Watch(tmp_path / "links")
    with watch.watching():
        database = Database(tmp_path / "spool.sqlite", "")
        for pragma in ("synchronous=OFF", "secure_delete=OFF"):
            database._thread.submit(database._connection.execute, f"PRAGMA {pragma}").result()
        database.close()

    last = watch.watched().settings[-1]
    assert (0, 0) == (last.synchronous, last.secure_delete)


@pytest.mark.parametrize("overwritten", [True, False])
def test_what_is_left_of_a_deleted_key_is_read(state: StateDirectory, *, overwritten: bool) -> None:
    """Its second name shows what its place on the disk holds."""
    watch, name = Watch(state.path.with_name("links")), "batch-1.key"
    state.secret(name, lambda: bytes(32))
    watch.hold(state.path)
    if overwritten:
        state.destroy(name)
    else:
        (state.path / name).unlink()

    assert overwritten is not any(watch.watched().at_places[name])
    assert not (state.path / name).exists()


def test_kinds_of_patterns_are_told_apart() -> None:
    """At every place, and in however short a haystack."""
    patterns = {"a": [b"0123456789"], "b": [b"abcdefgh", b"xyz"], "c": [b"12345678_"]}

    assert {"a", "b"} == kinds_found(patterns, b"--0123456789--xyz")
    assert set() == kinds_found(patterns, b"")
    assert {"b"} == kinds_found(patterns, b"abcdefgh")
    for offset in range(9):
        haystack = b"-" * offset + b"0123456789"
        assert [b"0123456789"] == found(patterns["a"], haystack)
