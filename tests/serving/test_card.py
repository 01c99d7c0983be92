from bertvision.model_config import Calibration
from bertvision.serving.card import About, Measured, model_card


def test_an_author_adds_title_name_text_and_scores_with_their_command(shared_reader):
    measured = Measured("bertvision predict default --data dev.json", {"f1": 61.2345, "NoAns_f1": 58.0, "total": 11873})
    about = About("The weir's model", "default", "It reads English.\n", (measured,))
    card = model_card(shared_reader.served.config, Calibration(threshold=1.25), [], about)
    assert "# The weir's model\n" in card
    assert 'bertvision.load("default")' in card
    assert "\nIt reads English.\n\n## Settings" in card
    assert "```text\nbertvision predict default --data dev.json\n```" in card
    assert "| f1 | 61.23 |\n| NoAns_f1 | 58.00 |\n| total | 11,873 |" in card
    assert "| null threshold | 1.2500 |" in card


def test_without_an_author_a_card_is_named_after_head_and_task(shared_reader):
    card = model_card(shared_reader.served.config, Calibration(), [])
    assert "# learned_pooling for squad2\n" in card
    assert "Scores" not in card
