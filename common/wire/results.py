"""Convert results and the ledger between protocol buffers and values."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, get_args

import numpy as np

from shuffledp.common.errors import LedgerError, WireError
from shuffledp.common.limits import parse_bounded, parse_count, parse_positive, parse_word
from shuffledp.common.messages import ledger_entry, result
from shuffledp.common.messages.guarantee import Coalition, Guarantee, Waived
from shuffledp.common.messages.ledger_entry import ChainedEntry, DecisionEntry, LedgerEntry
from shuffledp.common.protocols import PROTOCOLS
from shuffledp.common.task.spec_forms import MECHANISMS
from shuffledp.common.task.specs import MAX_BITS, MAX_COHORTS, MAX_DOMAIN_SIZE
from shuffledp.common.task_digest import TaskDigest
from shuffledp.common.wire.fields import Codec, digest_from_wire, parse_stored
from shuffledp.protos.shuffledp.v1 import analyzer_pb2

MAX_LEDGER_ENTRIES: Final = 10_000
"""Maximum number of entries in one answer."""
MAX_ENTRY_NUMBER: Final = 2**63 - 1

_HISTOGRAM: Final = Codec(result.Histogram, analyzer_pb2.GetResultResponse)
_MEANS: Final = Codec(result.Means, analyzer_pb2.Means, apart=frozenset({"unbiased"}))
_KEY_VALUES: Final = Codec(
    result.KeyValues, analyzer_pb2.KeyValues, writers={"reports": np.ndarray.tolist}
)
_FOUND_VALUES: Final = Codec(
    result.FoundValues, analyzer_pb2.FoundValues, writers={"reports": np.ndarray.tolist}
)
_SHARE_TABLE: Final = Codec(result.ShareTable, analyzer_pb2.ShareTable)
_SHARE_TABLES: Final = Codec(
    result.ShareTables,
    analyzer_pb2.ShareTables,
    dict.fromkeys(("tables", "attributes"), lambda _, raw: tuple(map(_SHARE_TABLE.from_wire, raw))),
    dict.fromkeys(("tables", "attributes"), partial(map, _SHARE_TABLE.to_wire)),
)
_GUARANTEE: Final = Codec(
    Guarantee,
    analyzer_pb2.Guarantee,
    {"coalition": lambda _, coalition: parse_word("a coalition", coalition, get_args(Coalition))},
)
_RESULT: Final = Codec(
    result.Result,
    analyzer_pb2.GetResultResponse,
    {
        "protocol": lambda _, protocol: parse_word("the protocol", protocol, tuple(PROTOCOLS)),
        "mechanism": lambda _, mechanism: parse_word("the mechanism", mechanism, MECHANISMS),
        "guarantees": lambda _, messages: tuple(map(_GUARANTEE.from_wire, messages)),
        "waived": lambda _, text: Waived.parse(text),
    },
    {"refused": dict, "guarantees": partial(map, _GUARANTEE.to_wire), "waived": str},
    apart=frozenset({"estimate"}),
)


_CODED: Final[Mapping[type[result.Estimate], tuple[str, Codec[Any, Any]]]] = {
    result.KeyValues: ("key_values", _KEY_VALUES),
    result.FoundValues: ("found_values", _FOUND_VALUES),
    result.ShareTables: ("share_tables", _SHARE_TABLES),
}
_NESTED: Final = ("means", "bit_table", "key_values", "found_values", "share_tables")
"""Fields of estimates other than histograms."""


def estimate_to_wire(estimate: result.Estimate, message: analyzer_pb2.GetResultResponse) -> None:
    """Encode an estimate into the message of a result."""
    if isinstance(estimate, result.Histogram):
        message.MergeFrom(_HISTOGRAM.to_wire(estimate))
    elif isinstance(estimate, result.Means):
        message.means.CopyFrom(_MEANS.to_wire(estimate))
        message.means.biased = not estimate.unbiased
    elif isinstance(estimate, result.BitTable):
        message.bit_table.cohort_sizes.extend(estimate.cohort_sizes.tolist())
        message.bit_table.bit_counts.extend(estimate.bit_counts.ravel().tolist())
    else:
        name, codec = _CODED[type(estimate)]
        getattr(message, name).CopyFrom(codec.to_wire(estimate))


def estimate_from_wire(message: analyzer_pb2.GetResultResponse) -> result.Estimate:
    """Parse a result's estimate; raise WireError unless there is exactly one."""
    stated = [name for name in _NESTED if message.HasField(name)]
    stated += ["frequencies"] if message.frequencies else []
    if len(stated) != 1:
        raise WireError(f"a result holds {len(stated)} estimates; it must hold 1")
    if stated == ["means"]:
        parse_positive("the number of means", len(message.means.means), MAX_DOMAIN_SIZE)
        return _MEANS.from_wire(message.means, unbiased=not message.means.biased)
    if stated == ["bit_table"]:
        return _bit_table_from_wire(message.bit_table)
    for name, codec in _CODED.values():
        if stated == [name]:
            estimate: result.Estimate = codec.from_wire(getattr(message, name))
            return estimate
    parse_positive("the number of values", len(message.frequencies), MAX_DOMAIN_SIZE)
    histogram = _HISTOGRAM.from_wire(message)
    if message.half_widths:  # of an earlier version, in five times as many steps
        widths = result.parse_figures(
            "half_widths", message.half_widths, minimum=0, maximum=result.MAX_FIGURE
        )
        return replace(histogram, table=result.IntervalTable.alike(widths[::5]))
    return histogram


def _bit_table_from_wire(message: analyzer_pb2.BitTable) -> result.BitTable:
    cohorts = parse_positive("the number of cohorts", len(message.cohort_sizes), MAX_COHORTS)
    bits, rest = divmod(len(message.bit_counts), cohorts)
    if rest:
        raise WireError(
            f"there are {len(message.bit_counts)} counts of bits for {cohorts} cohorts; "
            "each cohort must have the same number"
        )
    parse_positive("the number of bits", bits, MAX_BITS)
    return result.BitTable(
        cohort_sizes=result.parse_counts("cohort_sizes", message.cohort_sizes),
        bit_counts=result.parse_counts("bit_counts", message.bit_counts).reshape(cohorts, bits),
    )


def result_to_wire(released: result.Result) -> analyzer_pb2.GetResultResponse:
    """Encode a released result."""
    message = _RESULT.to_wire(released)
    estimate_to_wire(released.estimate, message)
    return message


def result_from_wire(message: analyzer_pb2.GetResultResponse) -> result.Result:
    """
    Parse a released result, which must have a guarantee against the analyzer.

    Only local_epsilon and guarantees' epsilon may be infinite. Texts are not checked.
    """
    if "analyzer" not in {guarantee.coalition for guarantee in message.guarantees}:
        raise WireError(
            f"a result has {len(message.guarantees)} guarantees; one must be against the analyzer"
        )
    return _RESULT.from_wire(message, estimate=estimate_from_wire(message))


def result_from_bytes(stored: bytes) -> result.Result:
    """Parse a stored result; raise WireError if it is damaged."""
    message = parse_stored(analyzer_pb2.GetResultResponse, stored, "result of this task")
    return result_from_wire(message)


_ENTRIES: Final[Mapping[type[ChainedEntry], Codec[Any, Any]]] = {
    kind: Codec(kind, analyzer_pb2.LedgerEntry, {"task_digest": lambda _, digest: digest})
    for kind in (LedgerEntry, DecisionEntry)
}
"""Entries check their own fields when they are parsed."""


def _entry_to_wire(entry: ChainedEntry) -> Any:  # noqa: ANN401  # as the codec's
    return _ENTRIES[type(entry)].to_wire(entry)


def _entry_from_wire(message: analyzer_pb2.LedgerEntry) -> ChainedEntry:
    try:
        entry: ChainedEntry = _ENTRIES[
            DecisionEntry if message.decision else LedgerEntry
        ].from_wire(message)
    except LedgerError as error:
        raise WireError(str(error)) from error
    return entry


def after_from_wire(message: analyzer_pb2.GetLedgerRequest) -> int:
    """Parse the number of the entry after which a page begins. Run by the analyzer."""
    return parse_count("after", message.after, MAX_ENTRY_NUMBER)


def ledger_to_wire(entries: Sequence[ChainedEntry]) -> analyzer_pb2.GetLedgerResponse:
    """Encode a page of ledger entries."""
    return analyzer_pb2.GetLedgerResponse(entries=map(_entry_to_wire, entries))


def ledger_from_wire(message: analyzer_pb2.GetLedgerResponse) -> list[ChainedEntry]:
    """Parse a page of ledger entries; `verify` checks that they form a chain."""
    parse_count("the number of ledger entries", len(message.entries), MAX_LEDGER_ENTRIES)
    return list(map(_entry_from_wire, message.entries))


def decision_to_wire(
    digest: TaskDigest, decision: ledger_entry.Decision, note: str
) -> analyzer_pb2.DecideBatchRequest:
    """Encode a decision on a batch without a result; raise WireError for a bad note."""
    return analyzer_pb2.DecideBatchRequest(task_digest=digest, decision=decision, note=_note(note))


def decision_from_wire(
    message: analyzer_pb2.DecideBatchRequest,
) -> tuple[TaskDigest, ledger_entry.Decision, str]:
    """Parse a decision on a batch without a result. Run by the analyzer."""
    decision = parse_word("the decision", message.decision, get_args(ledger_entry.Decision))
    return digest_from_wire(message.task_digest), decision, _note(message.note)


def _note(text: str) -> str:
    """Check a note, which may come from a command line that is no valid text."""
    if not text.strip() or text != text.encode(errors="replace").decode():
        raise WireError("the note must be text, and not blank")
    return parse_bounded("the note", text, ledger_entry.MAX_NOTE_CHARACTERS)


def decided_to_wire(entry: DecisionEntry) -> analyzer_pb2.DecideBatchResponse:
    """Encode the entry of a decision."""
    return analyzer_pb2.DecideBatchResponse(entry=_entry_to_wire(entry))


def decided_from_wire(message: analyzer_pb2.DecideBatchResponse) -> DecisionEntry:
    """Parse the entry of a decision; raise WireError unless it is one and has its own hash."""
    entry = _entry_from_wire(message.entry)
    if not isinstance(entry, DecisionEntry) or entry.entry_hash != entry.expected_hash():
        raise WireError("the answer is not an entry of a decision with its hash")
    return entry
