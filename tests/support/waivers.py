"""The table of docs/operators/monitoring.md: what waiving each check of a batch costs."""

from tests.support.commands import ROOT


def removed_assumptions() -> dict[str, set[str]]:
    """Return the assumptions that each check's waiver removes, by check."""
    page = (ROOT / "docs" / "operators" / "monitoring.md").read_text(encoding="utf-8")
    table = page.partition("| assumption removed by a waiver |")[2].partition("\n\n")[0]
    rows = [row.strip("| ").split(" | ") for row in table.splitlines()[2:]]
    return {check.strip("`"): set(removed.split("; ")) - {"none"} for check, _, removed, _ in rows}
