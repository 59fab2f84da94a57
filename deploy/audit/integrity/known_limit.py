"""An attack that nothing prevents: what it gains is checked, and stated as a limit."""

from dataclasses import replace

from deploy.audit.finding import Finding


def known_limit(finding: Finding) -> Finding:
    """Say of a row whose checks hold that it is a limit, not a defence."""
    return replace(finding, verdict="known limit") if finding.verdict == "holds" else finding
