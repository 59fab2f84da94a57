"""A service as it is deployed, in this process, on a clock of the test's, that rotates at once."""

from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from common.runtime.key_store import KeyStore, Rotation
from deploy.audit.harness.clock import ManualClock


class Started:
    """What a composition root made of parts that are looked at."""

    def __init__(self, module: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
        """
        Let a composition root make noted parts.

        Args:
            module: The service's `server`.
            monkeypatch: Of the test.
        """
        self.clock = ManualClock()
        self.made: dict[str, dict[str, Any]] = {}
        self.forgotten = 0
        self._module, self._monkeypatch = module, monkeypatch
        monkeypatch.setattr(module, "SystemClock", lambda: self.clock)
        seen = self

        class Quick(Rotation):
            """Looks at the clock again and again, and counts when memory is to forget keys."""

            def __init__(self, *, forget: Callable[[], None], **given: Any) -> None:
                def forgetting() -> None:
                    seen.forgotten += 1
                    forget()

                super().__init__(forget=forgetting, **given)
                seen.made["Rotation"] = given

            async def run(self, tick: float = 0.001) -> None:
                """Run at once."""
                await super().run(tick)

        monkeypatch.setattr(module, "Rotation", Quick)

    def note(self, name: str) -> None:
        """Keep what a part is made of, under the part's name."""
        original: Callable[..., Any] = getattr(self._module, name)

        def noting(**given: Any) -> Any:
            self.made[name] = given
            return original(**given)

        self._monkeypatch.setattr(self._module, name, noting)

    @property
    def keys(self) -> KeyStore:
        """The keys that are rotated."""
        keys: KeyStore = self.made["Rotation"]["keys"]
        return keys
