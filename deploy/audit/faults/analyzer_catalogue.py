"""Faults of the analyzer, with the scenario that must see each."""

from typing import Final

from deploy.audit.faults import analyzer
from deploy.audit.faults.fault import Fault

ANALYZER_FAULTS: Final = (
    Fault(
        name="budget-when-published",
        says="a budget is asked for when a task is published, and never again",
        scenario="analyzer-budgets",
        check="beyond the budget is refused when it is delivered",
        plant=analyzer.budget_when_published,
    ),
    Fault(
        name="budget-of-the-release-alone",
        says="a release must keep the budget by itself, whatever was released before",
        scenario="analyzer-budgets",
        check="all earlier releases leave no budget for",
        plant=analyzer.budget_when_delivered,
    ),
    Fault(
        name="newest-budget",
        says="the newest task's budget is kept, and no earlier one's",
        scenario="analyzer-budgets",
        check="exceeds what an earlier task had promised",
        plant=analyzer.newest_budget,
    ),
    Fault(
        name="last-release-only",
        says="a release is composed with the one before, and with no earlier one",
        scenario="analyzer-budgets",
        check="charged with all before it",
        plant=analyzer.last_release_only,
    ),
    Fault(
        name="ledger-unverified",
        says="the analyzer starts on a ledger that was altered",
        scenario="analyzer-ledger",
        check="no analyzer starts on a ledger that was altered",
        plant=analyzer.ledger_unverified,
    ),
    Fault(
        name="charged-later",
        says="a result is kept before it is charged",
        scenario="analyzer-ledger",
        check="nothing is released that is not charged",
        plant=analyzer.charged_later,
    ),
    Fault(
        name="any-padding",
        says="any number of null reports is taken for padding",
        scenario="analyzer-intake",
        check="padding beyond its room is malformed",
        plant=analyzer.any_padding,
    ),
    Fault(
        name="unconfirmed-sentinels",
        says="sentinels that were never confirmed count as users",
        scenario="analyzer-intake",
        check="sentinels are not users",
        plant=analyzer.unconfirmed_sentinels,
    ),
    Fault(
        name="sampling-unjudged",
        says="sentinels of a task that samples are never judged",
        scenario="analyzer-intake",
        check="of its sentinels is suspect",
        plant=analyzer.sampling_unjudged,
    ),
    Fault(
        name="sentinel-copies",
        says="copies of sentinels are not counted as refused",
        scenario="analyzer-intake",
        check="copies are refused as repeats",
        plant=analyzer.sentinel_copies,
    ),
    Fault(
        name="half-the-errors",
        says="standard errors are published at half their size",
        scenario="estimates",
        check="published as they are estimated",
        plant=analyzer.half_the_errors,
    ),
    Fault(
        name="uniform-refinement",
        says="the refined histogram is where the refinement begins",
        scenario="estimates",
        check="refined by em follow its rule",
        plant=analyzer.uniform_refinement,
    ),
    Fault(
        name="blunt-projection",
        says="refined shares lose a thousandth to all items",
        scenario="estimates",
        check="refined by norm-sub follow its rule",
        plant=analyzer.blunt_projection,
    ),
    Fault(
        name="early-salt",
        says="the salt of what is signed is drawn before the reports come",
        scenario="analyzer-intake",
        check="the salt is drawn after the last report",
        plant=analyzer.early_salt,
    ),
    Fault(
        name="repeats-forgotten",
        says="a report is known again for four chunks, and then no more",
        scenario="analyzer-intake",
        check="comes again after",
        plant=analyzer.repeats_forgotten,
    ),
    Fault(
        name="claim-for-more-users",
        says="a paper's claim is stated for a thousand times the users",
        scenario="analyzer-intake",
        check="a paper's claim",
        plant=analyzer.claim_for_more_users,
    ),
    Fault(
        name="damage-unseen",
        says="a batch is released that the disk has damaged",
        scenario="analyzer-intake",
        check="the disk has damaged",
        plant=analyzer.damage_unseen,
    ),
    Fault(
        name="any-manifest",
        says="a batch is taken again under another manifest",
        scenario="analyzer-intake",
        check="under another manifest",
        plant=analyzer.any_manifest,
    ),
    Fault(
        name="refusals-halved",
        says="guarantees count half of the refused reports",
        scenario="analyzer-intake",
        check="without the refused reports",
        plant=analyzer.refusals_halved,
    ),
    Fault(
        name="no-word-of-both",
        says="a result does not say what holds against shuffler and analyzer together",
        scenario="analyzer-intake",
        check="against both together",
        plant=analyzer.no_word_of_both,
    ),
)
