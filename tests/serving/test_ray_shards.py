"""Shards on a local Ray cluster: the same files as in one process, also when an actor is killed."""

import json
import os
import signal

import pytest
from faults import content_of

from bertvision.errors import DataError
from bertvision.serving.shards import ShardActor, predict_on_ray, predict_shards

# Ray warns of its own settings.
# Starting a cluster and replacing an actor took eight minutes beside other tests: `make faults`, which installs Ray.
pytestmark = [pytest.mark.faults, pytest.mark.filterwarnings("ignore")]
CPU = {"device": "cpu"}


def dying_actor():
    """Return an actor that dies of the third shard, but for its successor; a class of a function is sent by value."""

    class DyingActor(ShardActor):
        def __call__(self, batch):
            place = str(batch["target"][0])
            if place.endswith("2.jsonl") and not os.path.exists(f"{place}.died"):
                open(f"{place}.died", "w").close()
                os.kill(os.getpid(), signal.SIGKILL)
            return super().__call__(batch)

    return DyingActor


@pytest.fixture
def shards(tmp_path):
    (tmp_path / "shards").mkdir()
    for number in range(5):
        rows = [{"text": f"the weir of {number}{row}"} for row in range(3)]
        (tmp_path / "shards" / f"{number}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows) + "bad\n")
    return str(tmp_path / "shards")


def test_actors_write_what_one_process_writes_also_when_one_of_them_is_killed(make_shared, shards, tmp_path):
    import ray

    model = make_shared("classification", ("bad", "good"))
    predict_shards(model, [shards], tmp_path / "one", CPU)
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    try:
        found = predict_on_ray(model, [shards], tmp_path / "two", CPU, actors=2, actor=dying_actor())
        died = tmp_path / "two" / "2.jsonl.died"
        assert died.exists()
        died.unlink()
        assert (found.rows, found.bad, len(found.shards)) == (15, 5, 5)
        assert content_of(tmp_path / "two") == content_of(tmp_path / "one")
        (tmp_path / "shards" / "9.jsonl.gz").write_bytes(b"no gzip")
        with pytest.raises(DataError, match="damaged or cut off; .* all others are done"):
            predict_on_ray(model, [shards], tmp_path / "two", CPU, actors=2)
    finally:
        ray.shutdown()
