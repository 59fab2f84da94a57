"""What operators set and ask for, and whom services talk to: every default, bound and field."""

import numpy as np

from deploy.audit.audited import Audited
from deploy.audit.checks import Checks
from deploy.audit.code.admission import check_admission
from deploy.audit.code.channels import check_channels
from deploy.audit.code.configuration import check_configuration
from deploy.audit.code.drafts import check_drafts
from deploy.audit.code.servers import check_servers
from deploy.audit.finding import Outcome


def play_settings(audited: Audited, rng: np.random.Generator) -> Outcome:
    """Check them all; nothing is drawn."""
    del audited, rng
    checks = Checks()
    check_configuration(checks)
    check_channels(checks)
    check_servers(checks)
    check_admission(checks)
    check_drafts(checks)
    finding = checks.finding(
        scenario="settings",
        title="Settings, connections and drafts",
        heading="correctness",
        sentence="Settings that nobody made were as they are written down here, and those that "
        "protect nothing were refused; channels were opened to the party that was meant, and "
        "servers with bounds; each connection got its share of calls and no more; and every field "
        "of an operator's draft reached the analyzer.",
        advice="Do not run this version where others can connect.",
    )
    return Outcome(findings=(finding,))
