"""Shards answered on a Ray cluster: Ray Data hands them to actors, each of which holds the model."""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bertvision.errors import BertVisionError, DataError, LockedError, MissingExtraError
from bertvision.progress import SILENT, Progress, SilentBar
from bertvision.serving.predict_file import open_model_in_use
from bertvision.serving.predict_shards import Shard, ShardedPredictions, ShardPredictor, counts_or_error, open_shards
from bertvision.settings import Settings


class ShardActor:
    """A model in a process of the cluster; when that is killed, Ray starts another and gives it the shard again."""

    def __init__(self, model_folder: str, settings: Settings | None, allow_outside: bool) -> None:
        self._predictor = ShardPredictor(open_model_in_use(Path(model_folder), settings, allow_outside))

    def __call__(self, batch: Mapping[str, Sequence[str]]) -> dict[str, list[Any]]:
        """Answer some shards, given as the paths of their files; return what is wrong with each, if anything."""
        paths = zip(*(batch[name] for name in ("source", "target", "bad", "finished")), strict=True)
        shards = [Shard(*map(Path, each)) for each in paths]
        return {"bytes": [each.source.stat().st_size for each in shards], "problem": [*map(self._predict, shards)]}

    def _predict(self, shard: Shard) -> str:
        try:
            self._predictor.predict(shard, SilentBar())
        except LockedError:
            return ""
        except DataError as error:
            return str(error)
        return ""


def predict_on_ray(
    model_folder: Path,
    sources: Sequence[str],
    out: Path,
    settings: Settings | None = None,
    progress: Progress = SILENT,
    *,
    allow_outside: bool = False,
    actors: int = 1,
    actor: type[Any] = ShardActor,
) -> ShardedPredictions:
    """Do what `predict_shards` does in so many actors of a Ray cluster, or of this machine; the files are the same.

    All machines need the same paths to model, shards and `out`. Each actor has a GPU where the model runs on one.
    """
    ray = _load_ray()
    shards, predictor = open_shards(model_folder, sources, out, settings, allow_outside=allow_outside)
    left = [shard for shard in shards if shard.counts() is None]
    problems = list[str]()
    with progress.bar("predict", sum(shard.source.stat().st_size for shard in left)) as bar:
        for row in _rows(ray, left, actor, (str(model_folder), settings, allow_outside), actors, predictor.num_gpus):
            bar.advance(int(row["bytes"]))
            problems += [row["problem"]] if row["problem"] else []
    return counts_or_error(sources, out, problems, predictor.needs)


def _rows(
    ray: Any,  # noqa: ANN401 (the package)
    shards: Sequence[Shard],
    actor: type[Any],
    given: tuple[Any, ...],
    actors: int,
    num_gpus: int,
) -> Any:  # noqa: ANN401 (Ray's iterator over rows)
    if not shards:
        return ()
    names = ("source", "target", "bad", "finished")
    items = [{name: str(getattr(shard, name).absolute()) for name in names} for shard in shards]
    data = ray.data.from_items(items, override_num_blocks=len(items))  # a block is what an actor is given at once
    answered = data.map_batches(
        actor,
        fn_constructor_args=given,
        batch_size=1,
        compute=ray.data.ActorPoolStrategy(size=min(actors, len(items))),
        num_gpus=num_gpus,
    )
    return answered.iter_rows()


def _load_ray() -> Any:  # noqa: ANN401 (the package)
    try:
        import ray
        import ray.data
    except ImportError:
        raise MissingExtraError("ray", "ray") from None
    if not ray.is_initialized():
        try:
            # RAY_ADDRESS names a cluster; progress is ours to show.
            ray.init(include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
        except ConnectionError as error:
            raise BertVisionError(f"no Ray cluster to be reached ({error}); see RAY_ADDRESS") from None
    logging.getLogger("ray.data").setLevel(logging.WARNING)
    return ray
