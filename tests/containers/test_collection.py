"""5,000 users through the containers, each of which is killed once in the middle."""

import time
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final

import numpy as np

from shuffledp.deploy.docker.deployment import SERVICES, Deployment
from tests.support import containers

_USERS: Final = 5000
_PERSON: Final = "anna"
_VALUE: Final = 40
"""The user who contributes through the user agent, and their value."""
_BEFORE: Final = 2000
"""Other users who are acknowledged before anything is killed."""
_SEEDS: Final = (7, 8)
"""Seeds of the users' values; their reports are random in each run."""
_RESULT_SECONDS: Final = 120.0
_BEGIN_SECONDS: Final = 180.0

_LAST_WRITE: Final = (
    "import json, pathlib\n"
    "state = pathlib.Path('/var/lib/shuffledp/state')\n"
    "print(json.dumps(max(p.stat().st_mtime_ns for p in state.glob('spool.sqlite*'))))"
)


def test_a_collection_outlives_the_death_of_every_service(deployment: Deployment) -> None:
    """
    Every acknowledged submission is counted once, and the histogram is right.

    The shuffler is killed while users submit, and then the others. The engine restarts each. Users
    send the same bytes until they are acknowledged, each with a token.
    """
    key = containers.make_token_key(deployment, "2030-01-31T12:00:00")
    created = containers.operator(
        deployment, *("task", "create", "/drafts/cities.toml", "--json"), *("--token-key", key)
    )
    digest = created["task_digest"]
    assert _USERS == created["task"]["target_size"]
    assert [True, True] == [*created["cosigned"].values()]
    rest = _USERS - _BEFORE - 1
    tokens = containers.fetch_tokens(deployment, digest, _BEFORE, rest)
    containers.say("tokens are fetched")

    runs = [containers.submit_users(deployment, digest, _BEFORE, _SEEDS[0], tokens[0])]
    assert not containers.contribute_person(deployment, digest, _PERSON, _VALUE)
    containers.say(f"{_BEFORE + 1} users are through")
    with ThreadPoolExecutor() as pool:
        written = containers.inside(deployment, "shuffler", _LAST_WRITE)
        running = pool.submit(
            containers.submit_users, deployment, digest, rest, _SEEDS[1], tokens[1]
        )
        _wait_for_submissions(deployment, written, running)
        containers.kill(deployment, "shuffler")
        assert not running.done(), "all users were done before the shuffler was killed"
        for service in ("analyzer", "issuer", "user_agent", "publisher"):
            containers.kill(deployment, service)
        assert containers.contribute_person(deployment, digest, _PERSON, _VALUE)
        runs.append(running.result())
    containers.say(f"{_USERS} users are through")
    deployment.wait()

    assert {1} == {containers.inspect(deployment, service)["RestartCount"] for service in SERVICES}
    assert _USERS == sum(run["users_acknowledged"] for run in runs) + 1
    assert [0, 0] == [run["users_given_up"] + run["users_dropped"] for run in runs]
    assert runs[1]["retries"] > 0
    result = _result(deployment, digest)
    containers.say("the result is released")
    assert _USERS == result["n_users"]
    assert (2 * _USERS, 0) == (result["n_reports"], sum(result["refused"].values()))
    counts = np.bincount([_VALUE], minlength=containers.ITEMS)
    for users, seed in zip((_BEFORE, rest), _SEEDS, strict=True):
        counts += containers.values_of_users(deployment, users, seed)
    _check_histogram(result, counts / _USERS)


def _wait_for_submissions(
    deployment: Deployment, written: int, running: "Future[dict[str, Any]]"
) -> None:
    """Wait until the shuffler stores further submissions."""
    give_up = time.monotonic() + _BEGIN_SECONDS
    while containers.inside(deployment, "shuffler", _LAST_WRITE) == written:
        assert time.monotonic() < give_up
        assert not running.done(), running.result()


def _result(deployment: Deployment, digest: str) -> dict[str, Any]:
    give_up = time.monotonic() + _RESULT_SECONDS
    while True:
        found: dict[str, Any] | None = containers.operator(
            deployment, "result", digest, "--json", check=time.monotonic() > give_up
        )
        if found is not None:
            return found


def _check_histogram(result: dict[str, Any], truth: np.ndarray) -> None:
    """
    Compare the estimate with the true values.

    An item's support is a sum of 10,000 independent indicators with a standard deviation of 13.6 or
    more. By Bernstein's inequality it is off by 7.5 of them with probability 5e-11 at most, one of
    915 items to either side with 9e-8; the printed standard errors are within 6 % of the true ones.
    """
    found, errors = np.array(result["frequencies"]), np.array(result["standard_errors"])

    assert np.abs(found - truth).max() < 8 * errors.max()
    assert (np.abs(found - truth) < 8 * errors).all()
    # The mean of 915 nearly independent squares: twice its expectation is 20 standard deviations.
    assert np.mean((found - truth) ** 2) < 2 * result["mse_theory"]
    assert int(np.argmax(truth)) == int(np.argmax(result["refined"]))
