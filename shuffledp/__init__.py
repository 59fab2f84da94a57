"""A three-party protocol framework for shuffle-model differential privacy."""


def check_name(module: str) -> None:
    """Raise ImportError unless a room is imported below this package: `shuffledp.common`.

    In a checkout the folder `common` stands at the root too, so that Python would find it under a
    second name, and each class would exist twice. Called by every room.
    """
    if not module.startswith(f"{__name__}."):
        raise ImportError(f"there is no package {module!r}: import {__name__}.{module}")
