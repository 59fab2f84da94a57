"""Several tests and facts that make one row of an audit."""

import math
from typing import Any

from deploy.audit.finding import Finding, Heading
from deploy.audit.significance import CONFIDENCE, TEST_LEVEL


class Checks:
    """Gathers what must be true of one thing; `finding` says whether all of it is."""

    def __init__(self) -> None:
        self._tests: dict[str, float] = {}
        self._n_tests = 0
        self._facts: dict[str, bool] = {}

    def test(self, name: str, p_value: float | None) -> None:
        """
        Note a test of something that must be true; of one name the least p counts.

        None is of a test that could not be made: it is not counted. What is no number is broken.
        """
        if p_value is None:
            return
        self._n_tests += 1
        level = 0.0 if math.isnan(p_value) else p_value
        self._tests[name] = min(level, self._tests.get(name, 1.0))

    def must(self, name: str, holds: bool) -> None:  # noqa: FBT001  # what is noted
        """Note a fact that must be true, whatever was drawn."""
        self._facts[name] = holds and self._facts.get(name, True)

    @property
    def broken(self) -> list[str]:
        """What is not true, by name."""
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
        Make the row.

        Args:
            scenario: Its name.
            title: What was checked.
            heading: Under which it stands.
            sentence: What it means that all of it is true.
            **fields: Of the finding; `advice` is given where something is not true.
        """
        broken, advice = self.broken, fields.pop("advice", "")
        return Finding(
            scenario=scenario,
            title=title,
            heading=heading,
            coalition=fields.pop("coalition", "nobody"),
            verdict="broken" if broken else "holds",
            sentence=f"Not so: {'; '.join(broken)}." if broken else sentence,
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
