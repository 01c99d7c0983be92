import pytest

from bertvision.hub import without_hub


def test_within_the_block_the_hub_is_not_asked_whatever_a_library_tries(monkeypatch):
    from huggingface_hub import constants, hf_hub_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr("socket.getaddrinfo", lambda *given, **more: pytest.fail(f"looked {given[0]} up"))
    with without_hub(), pytest.raises(LocalEntryNotFoundError):
        hf_hub_download("nobody/nothing", "config.json")
    assert constants.HF_HUB_OFFLINE is False
