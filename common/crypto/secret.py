"""Values that never leave a process by accident."""

import resource
from typing import NoReturn


class Secret:
    """Hidden in repr; cannot be pickled or copied. A method may return its bytes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"{type(self).__name__}(secret)"

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"a {type(self).__name__} must not be pickled or copied")

    def __getstate__(self) -> NoReturn:
        self.__reduce__()


def forbid_core_dumps() -> None:
    """Let neither this process nor those that it starts dump core, which would write secrets."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
