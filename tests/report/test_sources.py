import json

from bertvision.records import DataFile
from bertvision.report.page import config_texts, data_table, facts, notes


def texts_of(head, records):
    return next((fact.texts for fact in facts(records) if fact.head == head), None)


def test_data_are_listed_once_with_counts_and_the_start_of_their_hash(make_record):
    train = DataFile(name="train.json", sha256="0123456789abcdef" * 4, examples=130_319, dropped=2, windows=131_754)
    hub = DataFile(name="rajpurkar/squad_v2", sha256=None, examples=7, dropped=0, windows=8)
    table = data_table([make_record(seed=seed, data={"train": train, "dev": hub}) for seed in (1, 2)])
    assert table.texts == (
        ("train", "train.json", "130,319", "2", "131,754", "0123456789ab"),
        ("dev", "rajpurkar/squad_v2", "7", "0", "8", ""),
    )


def test_a_dirty_tree_is_marked_and_an_unknown_commit_said_to_be_unknown(make_record):
    origin = make_record().provenance
    changed = [origin.model_copy(update=update) for update in ({"dirty": True}, {"commit": None, "dirty": None})]
    assert texts_of("Code", [make_record()]) == ["commit 0123456789ab"]
    assert texts_of("Code", [make_record(provenance=changed[0])]) == ["commit 0123456789ab with uncommitted changes"]
    assert "unknown" in texts_of("Code", [make_record(provenance=changed[1])])[0]


def test_records_from_two_machines_name_both(make_record):
    other = make_record().provenance.model_copy(update={"device": "NVIDIA H200"})
    assert texts_of("Device", [make_record(), make_record(seed=2, provenance=other)]) == ["2 CPU cores", "NVIDIA H200"]


def test_a_horizon_is_explained_only_where_there_is_one(make_record):
    assert texts_of("Schedule", [make_record()]) is None
    assert "fraction 3;" in texts_of("Schedule", [make_record(schedule_horizon=3.0)])[0]


def test_settings_are_written_as_they_are_overridden(make_record):
    (text,) = texts_of("finetune", [make_record()])
    assert text == "fractions=[0.1, 1.0], optim.lr=0.0001, optim.schedule=linear, batch.tokens=8192"


def test_heads_are_listed_by_name(make_record):
    assert "train=[learned_pooling, last_linear]" in texts_of("heads", [make_record()])[0]


def test_an_encoder_is_named_whether_its_config_is_a_name_or_a_section(make_record):
    assert texts_of("Encoder", [make_record(config={"encoder": "gte-small"})])[0].startswith("gte-small; 30,000,000 ")
    assert texts_of("Encoder", [make_record()])[0].startswith("name=gte-small, max_length=384; ")
    assert texts_of("Encoder", [make_record(config={})])[0].startswith("30,000,000 parameters")


def test_a_note_names_its_rows_unless_it_is_about_all(make_record):
    head = make_record(notes=["short run", "diverged once"])
    encoder = make_record(model="encoder", kind="encoder", notes=["short run"])
    assert notes([head, encoder]) == ["short run", "diverged once (learned_pooling)"]


def test_every_different_config_is_written_out_once(make_record):
    texts = config_texts([make_record(), make_record(seed=2), make_record(seed=3, config={"name": "é"})])
    assert [json.loads(text)["name"] for text in texts] == ["squad2_small", "é"]


def test_near_misses_are_counted_where_there_are_some(make_record):
    made = DataFile(
        name="train.json", sha256=None, examples=90, dropped=0, windows=99, near_misses={"swap": 20, "cut": 5}
    )
    table = data_table([make_record(data={"train": made}), make_record(model="other", data={"train": made})])
    assert table.header == ("split", "file", "examples", "near misses", "dropped", "windows")
    assert table.texts == (("train", "train.json", "90", "25", "0", "99"),)
    assert "near misses" not in data_table([make_record()]).header
