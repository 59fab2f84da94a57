"""The audit's own rules of who may call what."""

import pytest

from common.runtime.access import CALLS, Caller
from deploy.audit.services.callers import RULES, Who
from deploy.audit.services.tape import METHODS, Party

_WORDS: dict[Caller, Who] = {
    Caller.ANYONE: "anybody",
    Caller.SHUFFLER: "the shuffler",
    Caller.OPERATOR: "the operator",
    Caller.TOKEN_HOLDER: "who holds the operator's token",
}


@pytest.mark.parametrize("party", list(METHODS))
def test_the_rules_of_the_audit_are_those_of_the_services(party: Party) -> None:
    """Two tables, written apart: whoever changes one is asked to think of the other."""
    table = {
        method.name: CALLS[f"/{method.containing_service.full_name}/{method.name}"]
        for method in METHODS[party]
    }

    assert {name: _WORDS[call.caller] for name, call in table.items()} == {
        name: who for name, who in RULES[party].items() if name != "Check"
    }
