import json

from common.task_digest import TaskDigest
from deploy.results.result_json import as_json
from deploy.terminal.json_output import dumps
from tests.support.results import result


def test_infinite_numbers_are_text() -> None:
    """JSON has none; a task without local noise has one in its mechanism and one in a guarantee."""
    written = json.loads(dumps(as_json(result(TaskDigest(b"d" * 32)))))

    assert "inf" == written["mechanism"]["local_epsilon"]
    assert "inf" == written["guarantees"][0]["epsilon"]
