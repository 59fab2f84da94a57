"""
Who may call what: every call of every service, tried by everybody.

The rules are written out here, apart from the table that the services go by.
"""

from typing import Final, Literal

from deploy.audit.checks import Checks
from deploy.audit.finding import Finding
from deploy.audit.services.facts import OF_CALLERS, must_hold
from deploy.audit.services.record import Record
from deploy.audit.services.tape import METHODS, Party
from deploy.audit.services.visits import Knock

Who = Literal["anybody", "the shuffler", "the operator", "who holds the operator's token"]

RULES: Final[dict[Party, dict[str, Who]]] = {
    "analyzer": {
        "CreateTask": "the operator",
        "RegisterSentinels": "the operator",
        "GetResult": "the operator",
        "ListTasks": "the operator",
        "DescribeTask": "the operator",
        "GetLedger": "the operator",
        "GetTask": "the shuffler",
        "DeliverBatch": "the shuffler",
        "Check": "anybody",
    },
    "shuffler": {
        "FetchTask": "anybody",
        "Submit": "anybody",
        "SubmitBulk": "anybody",
        "GetBatchStatus": "anybody",
        "GetInclusion": "anybody",
        "GetBatchProgress": "who holds the operator's token",
        "CloseBatch": "who holds the operator's token",
        "Check": "anybody",
    },
    "user_agent": {
        "Contribute": "anybody",
        "GetReceipt": "anybody",
        "Check": "anybody",
    },
}
"""Who is to be served, by service and call."""
_NO_ENTRY: Final = frozenset({"none", "plaintext", "foreign"})
_ASK_FOR_CERTIFICATES: Final = "analyzer"
_SHUT: Final = frozenset({"UNAUTHENTICATED", "PERMISSION_DENIED", "UNAVAILABLE"})
"""What callers are told who may not make a call. Others may be told of what they asked for."""
_UNCLEAR: Final = frozenset(
    {"UNIMPLEMENTED", "INTERNAL", "UNKNOWN", "CANCELLED", "DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED"}
)
"""Neither served nor refused for who calls."""


def finding(record: Record) -> Finding:
    """Compare who was let in with who may be."""
    checks = Checks()
    for party, rules in RULES.items():
        named = {method.name for method in METHODS[party]}
        checks.must(f"there is a rule for every call of the {_called(party)}", named <= set(rules))
    for knock in record.seen.knocks:
        _judge(checks, knock)
    must_hold(checks, record.seen.facts, OF_CALLERS)
    n_calls = sum(len(rules) for rules in RULES.values())
    return checks.finding(
        scenario="services",
        title="Who may call what",
        heading="correctness",
        sentence=(
            f"Each of {n_calls} calls of the running services was tried: the analyzer's without a "
            "certificate, in plaintext, and with the certificate of another authority, of the "
            "shuffler, of the operator and of a device; the shuffler's in plaintext, without a "
            "certificate and with the operator's. Who could connect to these two showed no token, "
            "an empty one, a part of the right one, more than it, another service's and the right "
            "one. Served was who may be, and nobody else. Settings and connections in plaintext "
            "beyond one's own machine were refused."
        ),
        advice="Do not run this version where others can connect.",
        trials=len(record.seen.knocks),
    )


def _judge(checks: Checks, knock: Knock) -> None:
    name, party = knock.method.rpartition("/")[2], _called(knock.party)
    if knock.certificate == "plaintext" and knock.party != "user_agent":
        checks.must(f"nobody talks to the {party} in plaintext", knock.status == "UNAVAILABLE")
        return
    if knock.party == _ASK_FOR_CERTIFICATES and knock.certificate in _NO_ENTRY:
        checks.must(
            f"nobody connects to the {party} without a certificate by its authority",
            knock.status == "UNAVAILABLE",
        )
        return
    who = RULES[knock.party].get(name)
    if who is None:
        checks.must(f"the {party} serves no other calls", knock.status == "UNIMPLEMENTED")
        return
    if _may(who, knock):
        served = knock.status not in _SHUT | _UNCLEAR
        checks.must(f"{name} of the {party} is served to {who}", served)
    else:
        checks.must(f"{name} of the {party} is served to {who} alone", knock.status in _SHUT)


def _may(who: Who, knock: Knock) -> bool:
    right = knock.token == "right"  # noqa: S105  # no password: which one was shown
    return {
        "anybody": True,
        "the shuffler": knock.certificate == "shuffler",
        "the operator": knock.certificate == "operator" and right,
        "who holds the operator's token": right,
    }[who]


def _called(party: Party) -> str:
    return party.replace("_", " ")
