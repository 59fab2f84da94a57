"""Values that never leave a process by accident."""

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
