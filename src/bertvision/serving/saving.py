"""A loaded model -> a folder that holds all of it, and the hub."""

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bertvision.errors import FolderError, reason_of
from bertvision.files import check_folder, whole_folder
from bertvision.records import RunRecord
from bertvision.serving.interface import Served


class Saveable:
    """What can be saved: anything that serves a model."""

    served: Served

    def save_pretrained(
        self, folder: str | Path, records: Sequence[RunRecord] | None = None, *, changes_of: str | None = None
    ) -> Path:
        """Write encoder, head, settings, calibration and model card into a new folder that `bertvision.load` reads.

        The card shows the scores of `records`; where none are given, those of the run that the model lies in. With
        `changes_of` (`default` or a hub id: the encoder that this one was tuned from), the folder holds what differs
        from that encoder in the place of a whole one, rounded to float16.
        """
        place = check_folder(Path(folder))
        if place.is_dir() and any(place.iterdir()):
            raise FolderError(f"{place}: is not empty; choose a new folder")
        with whole_folder(place) as beside:
            self.served.write(beside, records, changes_of)
        return place

    def push_to_hub(
        self,
        repo_id: str,
        *,
        private: bool = False,
        records: Sequence[RunRecord] | None = None,
        client: Any = None,  # noqa: ANN401 (huggingface_hub.HfApi, or something that has its two methods)
    ) -> str:
        """Save the model and upload it, with the user's own token; gives the address of the commit."""
        client = _hub_client() if client is None else client
        with tempfile.TemporaryDirectory() as folder:
            self.save_pretrained(Path(folder) / "model", records)
            try:
                client.create_repo(repo_id, private=private, exist_ok=True)
                done = client.upload_folder(
                    repo_id=repo_id, folder_path=str(Path(folder) / "model"), commit_message="A model of bertvision"
                )
            except Exception as error:  # the hub's own, or without a network any of its HTTP library
                raise FolderError(
                    f"{repo_id}: the hub did not take it ({reason_of(error)}); `save_pretrained` writes a folder"
                ) from None
        return str(done)


def _hub_client() -> Any:  # noqa: ANN401 (huggingface_hub.HfApi)
    from huggingface_hub import HfApi  # comes with transformers

    return HfApi()
