import pytest
import yaml
from huggingface_hub import ModelCard

from bertvision.model_config import Calibration
from bertvision.records import DataFile
from bertvision.serving.card import About, BaseModel, find_base, model_card

APACHE = BaseModel("hannah/small-weir", {"license": "apache-2.0", "language": "en"})
OWN = DataFile(name="/home/hannah/weirs.json", sha256="ab" * 32, examples=120, dropped=0, windows=130)
HUB = DataFile(name="hannah/weirs/small:validation", sha256=None, examples=120, dropped=0, windows=130)


def read_head(card):
    """Return the card's head as the hub's own library reads it; it refuses a model-index that is none."""
    return ModelCard(card).data


def test_an_author_adds_title_name_and_text(shared_reader):
    about = About("The weir's model", "default", "It reads English.\n")
    card = model_card(shared_reader.served.config, Calibration(threshold=1.25), [], about)
    assert "# The weir's model\n" in card
    assert 'bertvision.load("default")' in card
    assert "\nIt reads English.\n\n## Settings" in card
    assert "| null threshold | 1.2500 |" in card


def test_without_an_author_a_card_is_named_after_head_and_task(shared_reader):
    card = model_card(shared_reader.served.config, Calibration(), [])
    assert "# learned_pooling for squad2\n" in card
    assert "Scores" not in card


def test_the_hub_reads_licence_base_model_language_and_kind(shared_reader):
    data = read_head(model_card(shared_reader.served.config, Calibration(), [], base=APACHE))
    assert (data.license, data.base_model, data.language) == ("apache-2.0", "hannah/small-weir", "en")
    assert (data.library_name, data.pipeline_tag, data.tags) == ("bertvision", "question-answering", ["bertvision"])


def test_what_is_not_known_of_the_base_is_left_out(shared_reader):
    card = model_card(shared_reader.served.config, Calibration(), [])
    assert yaml.safe_load(card.split("---\n")[1]).keys() == {"library_name", "pipeline_tag", "tags"}
    assert "a licence that is not known here" in card


@pytest.mark.parametrize(
    ("dev", "named"),
    [
        (OWN, {"dataset_name": "weirs.json", "dataset_type": "weirs.json", "dataset_config": None}),
        (HUB, {"dataset_name": "hannah/weirs", "dataset_type": "hannah/weirs", "dataset_config": "small"}),
    ],
)
def test_the_hub_reads_the_scores_of_the_record(shared_reader, make_record, dev, named):
    record = make_record(scores={"f1": 61.23456, "exact": 50.0, "tuned_threshold": 1.5})
    record = record.model_copy(update={"data": {"train": dev, "dev": dev}})
    data = read_head(model_card(shared_reader.served.config, Calibration(), [record]))
    found = {each.metric_name: each for each in data.eval_results}
    assert {name: (each.metric_type, each.metric_value) for name, each in found.items()} == {
        "f1 at null threshold 0.00": ("f1", 61.2346),
        "exact at null threshold 0.00": ("exact_match", 50.0),
    }
    first = found["f1 at null threshold 0.00"]
    assert first.task_type == "question-answering"
    assert {name: getattr(first, name) for name in named} == named
    assert data.metrics == ["f1", "exact_match"]
    assert data.get("datasets") == (["hannah/weirs"] if dev is HUB else None)


@pytest.mark.parametrize(
    ("calibration", "name", "value"),
    [
        (Calibration(threshold=1.5), "f1 at null threshold 1.50", 64.0),
        (Calibration(threshold=-2.0, official_threshold=1.5), "f1 at null threshold -2.00", 65.0),
        (Calibration(threshold=-3.0, official_threshold=4.0), "f1 at null threshold 0.00", 61.0),  # calibrated again
    ],
)
def test_the_hub_reads_the_scores_at_the_threshold_that_the_model_uses(
    shared_reader, make_record, calibration, name, value
):
    scores = {"f1": 61.0, "tuned_f1": 64.0, "tuned_threshold": 1.5}
    scores |= {"reader_tuned_f1": 65.0, "reader_tuned_threshold": -2.0}
    record = make_record(scores=scores).model_copy(update={"data": {"dev": OWN}})
    data = read_head(model_card(shared_reader.served.config, calibration, [record]))
    assert [(each.metric_name, each.metric_value) for each in data.eval_results] == [(name, value)]


def test_the_hub_reads_scores_of_tasks_without_a_threshold_by_their_names(shared_reader, make_record):
    record = make_record(scores={"accuracy": 70.0}).model_copy(update={"task": "rte", "data": {"dev": OWN}})
    data = read_head(model_card(shared_reader.served.config, Calibration(), [record]))
    assert [each.metric_name for each in data.eval_results] == ["accuracy"]


def test_a_card_says_what_such_a_model_cannot_do_unless_its_author_does(shared_reader, make_record):
    config = shared_reader.served.config
    assert "- A text longer than 20 tokens is read in parts" in model_card(config, Calibration(), [])
    assert "they flatter it" in model_card(config, Calibration(), [make_record()])
    assert "What it cannot do" not in model_card(config, Calibration(), [], About(text="It reads English."))


def test_the_licence_is_that_of_the_encoders_own_card(shared_reader, make_record, tmp_path):
    folder, config = shared_reader.served.folder, shared_reader.served.config
    of = lambda name: find_base(folder, config, make_record().model_copy(update={"config": {"encoder": name}}))  # noqa: E731
    assert of("default") == BaseModel(
        "sentence-transformers/all-MiniLM-L6-v2", {"language": "en", "license": "apache-2.0"}
    )
    (tmp_path / "README.md").write_text("---\nlicense: [mit, 3]\nlanguage: [en, fr]\n---\nText\n---\nlicense: mit\n")
    assert of(str(tmp_path)) == BaseModel(None, {"language": ["en", "fr"]})
    for text in ("license: mit", "---\nlicense: {a\n---\n", "---\n- mit\n---\n", "\ufffd"):
        (tmp_path / "README.md").write_text(text)
        assert of(str(tmp_path)) == BaseModel()
    assert of("nobody/never-downloaded") == BaseModel("nobody/never-downloaded")
    assert find_base(folder, config, None) == BaseModel()


def test_a_folder_of_the_hubs_cache_tells_its_hub_id(shared_reader, make_record, tmp_path):
    place = tmp_path / "models--hannah--small-weir" / "snapshots" / "0123"
    place.mkdir(parents=True)
    record = make_record().model_copy(update={"config": {"encoder": str(place)}})
    found = find_base(shared_reader.served.folder, shared_reader.served.config, record)
    assert found == BaseModel("hannah/small-weir")


def test_scores_come_with_their_intervals_where_the_run_kept_them(shared_reader, make_record):
    record = make_record(scores={"f1": 61.2, "exact": 50.0})
    kept = record.model_copy(update={"intervals": {"f1": (55.125, 67.5)}})
    card = model_card(shared_reader.served.config, Calibration(), [kept])
    assert "| score on dev | value | 95% interval |\n| --- | --- | --- |\n| f1 | 61.2 | 55.12 to 67.5 |\n" in card
    assert "| exact | 50 |  |" in card
    assert "| f1 | 61.2 |\n" in model_card(shared_reader.served.config, Calibration(), [record])
