"""Several tests and facts that make one finding."""

import math
from typing import Any

from deploy.audit.finding import Finding, Heading
from deploy.audit.statistics import CONFIDENCE, TEST_LEVEL


class Checks:
    """Collects tests and facts; `finding` tells whether all hold."""

    def __init__(self) -> None:
        self._tests: dict[str, float] = {}
        self._n_tests = 0
        self._facts: dict[str, bool] = {}

    def test(self, name: str, p_value: float | None) -> None:
        """
        Add a test; of one name the smallest p counts.

        None stands for a test with too few draws, and is not counted. NaN fails.
        """
        if p_value is None:
            return
        self._n_tests += 1
        level = 0.0 if math.isnan(p_value) else p_value
        self._tests[name] = min(level, self._tests.get(name, 1.0))

    def must(self, name: str, holds: bool) -> None:  # noqa: FBT001  # what is noted
        """Add a fact that must be true, whatever was drawn."""
        self._facts[name] = holds and self._facts.get(name, True)

    @property
    def broken(self) -> list[str]:
        """Names of the tests and facts that failed."""
        return [
            *(name for name, holds in self._facts.items() if not holds),
            *(name for name, p_value in self._tests.items() if p_value < TEST_LEVEL),
        ]

    def finding(
        self,
        *,
        scenario: str,
        title: str,
        heading: Heading,
        sentence: str,
        **fields: Any,  # noqa: ANN401  # as a Finding takes them
    ) -> Finding:
        """
        Make the finding.

        Args:
            scenario: Name of the scenario.
            title: Title of the finding.
            heading: Heading in the report.
            sentence: Its meaning if everything holds.
            **fields: Other fields of the finding; `advice` is used if something failed.
        """
        broken, advice = self.broken, fields.pop("advice", "")
        return Finding(
            scenario=scenario,
            title=title,
            heading=heading,
            coalition=fields.pop("coalition", "nobody"),
            verdict="broken" if broken else "holds",
            sentence=f"Failed: {'; '.join(broken)}." if broken else sentence,
            advice=advice if broken else "",
            statistic=self._statistic(),
            confidence=CONFIDENCE if self._n_tests else None,
            tests=self._n_tests,
            **fields,
        )

    def _statistic(self) -> str:
        parts = []
        if self._tests:
            name = min(self._tests, key=lambda test: self._tests[test])
            among = f"least p of {self._n_tests} tests" if self._n_tests > 1 else "p of one test"
            parts.append(f"{among} {self._tests[name]:.2g}, of: {name}")
        if self._facts:
            facts = "facts" if len(self._facts) > 1 else "fact"
            parts.append(f"{len(self._facts)} {facts} checked")
        return "; ".join(parts)
