from dataclasses import replace

from analyzer.task_builder import complete
from common.crypto.hpke import DEFAULT_SUITE, HpkePrivateKey
from deploy.load.plan import Crowd
from deploy.load.target import load_draft
from deploy.tasks.demo_task import demo_draft


def test_a_load_run_without_a_draft_loads_the_demos_task() -> None:
    """But for the moment at which it was made."""
    key = HpkePrivateKey.generate(DEFAULT_SUITE).public_key().raw
    demo = demo_draft(915, 1000, now=0.0, shuffler_key=key)
    load = load_draft(None, Crowd(n_users=1000), None, key=key)

    assert demo == replace(load, deadline=demo.deadline)
    assert 24 * 3600 == demo.deadline
    task = complete(load, analyzer_key=key, nonce=bytes(32))
    assert 0 < task.central_epsilon < task.local_epsilon
