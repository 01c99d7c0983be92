"""The Hugging Face hub: whether it can be asked, found out at once; no torch in here."""

from pathlib import Path

SECONDS = 5.0  # that a hub which answers has for it


def hub_problem() -> str | None:
    """Return why the hub cannot be asked, or None where it answers.

    huggingface_hub itself tries six times for each file of a repository: most of a minute without a network.
    """
    from huggingface_hub import constants, get_session, is_offline_mode

    if is_offline_mode():
        return "HF_HUB_OFFLINE forbids asking the hub (unset it to download)"
    unreachable = "the hub cannot be reached (HF_HUB_OFFLINE=1 uses earlier downloads without asking)"
    try:
        answer = get_session().head(constants.ENDPOINT, timeout=SECONDS)
    except Exception:  # of its HTTP library, which is another one in other versions
        return unreachable
    return unreachable if answer.status_code >= 500 else None  # a proxy that does not reach it says so


def find_download(hub_id: str, file: str) -> Path | None:
    """Return the place of a repository's file that was downloaded earlier."""
    from huggingface_hub import try_to_load_from_cache

    try:
        place = try_to_load_from_cache(hub_id, file)
    except ValueError:  # no name that a repository could have
        return None
    return Path(place) if isinstance(place, str) else None
