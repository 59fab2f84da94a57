"""Faults of what the shuffler stores, draws and begins, each with the check that must see it."""

from collections.abc import Iterator
from typing import Final

from deploy.audit.faults import stores
from deploy.audit.faults.fault import Fault


def _faults() -> Iterator[Fault]:
    for name, says, scenario, check, plant in (
        (
            "wrong-part-stored",
            "another submission's reports are stored beside the hashes of what is new",
            "bulk-clients",
            "each beside its own hashes",
            stores.wrong_part_stored,
        ),
        (
            "places-of-readable",
            "an envelope that does not open shifts what the others are told",
            "bulk-clients",
            "each is told what became of it",
            stores.places_of_readable,
        ),
        (
            "one-run-searched",
            "a submission is found among those that came last alone",
            "stores",
            "however long ago it was added",
            stores.one_run_searched,
        ),
        (
            "bits-once",
            "very many items share the shuffler's coins",
            "draws",
            "each item has coins of its own",
            stores.bits_once,
        ),
        (
            "each-item-cut",
            "where too many items are named the last are left off",
            "draws",
            "dummies that name items",
            stores.each_item_cut,
        ),
        (
            "flanks-clamped",
            "geometric numbers above the most become the most",
            "draws",
            "geometric dummies",
            stores.flanks_clamped,
        ),
        (
            "seconds-of-all",
            "the time of shuffling is told with that of making dummies",
            "mixing",
            "is none of reading and sealing",
            stores.seconds_of_all,
        ),
        (
            "expired-in-a-race",
            "a user who comes just before a batch expires is lost with it",
            "restarts",
            "to which a user came since",
            stores.expired_in_a_race,
        ),
        (
            "spool-task-unchecked",
            "a task that was altered in the shuffler's database is gone on with",
            "restarts",
            "no shuffler starts on a task that was altered",
            stores.spool_task_unchecked,
        ),
        (
            "shuffler-takes-unsigned",
            "the shuffler collects for tasks of any signer",
            "thresholds",
            "that a stranger has signed",
            stores.shuffler_takes_unsigned,
        ),
        (
            "pinned-digest",
            "the shuffler collects for another task than was asked for",
            "thresholds",
            "in the place of the one that is asked for",
            stores.pinned_digest,
        ),
        (
            "most-dummies-off",
            "the shuffler makes as many dummies as a task asks for",
            "thresholds",
            "more dummies than the shuffler makes",
            stores.most_dummies_off,
        ),
        (
            "needed-forgotten",
            "the key of a batch that collects is destroyed when it expires",
            "thresholds",
            "the key of a batch that collects is kept",
            stores.needed_forgotten,
        ),
        (
            "serial-remembered",
            "any signature will do over a serial number that came before",
            "bulk-clients",
            "needs its signature again",
            stores.serial_remembered,
        ),
        (
            "target-under-minimum",
            "a target below the operator's minimum closes a batch",
            "thresholds",
            "has as many as its task aims at",
            stores.target_under_minimum,
        ),
        (
            "arrived-unchecked",
            "a batch is mixed without users that the disk has lost",
            "mixing",
            "of one user fewer than came",
            stores.arrived_unchecked,
        ),
        (
            "undelivered-count",
            "a part of an order is delivered as the whole",
            "restarts",
            "an order that was cut is not delivered",
            stores.undelivered_count,
        ),
        (
            "permuted-unflushed",
            "an order gets its name before it is on the disk",
            "stores",
            "whole, before it gets its name",
            stores.permuted_unflushed,
        ),
        (
            "group-numbers-short",
            "numbers of groups are of 16 bits",
            "stores",
            "drawn from all that there are",
            stores.group_numbers_short,
        ),
        (
            "bucket-leaves-left",
            "buckets stay on the disk when they have been read",
            "mixing",
            "no file is left beside the order",
            stores.bucket_leaves_left,
        ),
        (
            "refusals-logged",
            "each submission that is refused leaves a line in the log",
            "services",
            "submissions leave no line in a log",
            stores.refusals_logged,
        ),
    ):
        yield Fault(name=name, says=says, scenario=scenario, check=check, plant=plant)


STORES: Final = tuple(_faults())
