from bertvision.records import write_record
from studies.claims import claims_tables, count_statuses, further_evidence, settle_claims, summary_table

CLAIM = "After one epoch the shared adapter is above BERT."
COUNTED = "A head has 0.001% to 6.2% of BERT-large's parameters."


def write_runs(make_record, folder, experiment, gains, encoder="somewhere/gte-small", score="f1"):
    for row, kind, values in (("encoder", "encoder", [0.0] * len(gains)), ("adapter_386_shared", "head", gains)):
        for seed, gain in enumerate(values, start=1):
            record = make_record(
                model=row, kind=kind, seed=seed, experiment=experiment, fraction=1.0, scores={score: 50 + gain}
            )
            record = record.model_copy(update={"config": {"encoder": encoder}})
            write_record(folder / "results" / experiment / "records", record)


def settled(folder, text=CLAIM):
    return next(each for each in settle_claims(folder / "results") if each.claim.text == text)


def test_a_claim_without_records_is_untested_and_what_is_settled_needs_none(tmp_path):
    (tmp_path / "results").mkdir()
    assert settled(tmp_path).status == "untested"
    assert settled(tmp_path, COUNTED).status == "confirmed"


def test_records_confirm_or_contradict_a_claim_and_are_named(tmp_path, make_record):
    write_runs(make_record, tmp_path, "one", [2.0, 2.1, 1.9])
    found = settled(tmp_path)
    assert found.status == "confirmed"
    table = next(each for each in claims_tables([found]) if each.title == "BERTVision 2020")
    assert table.texts[0][-2:] == ("confirmed", "f1 +2.0 (+1.8 to +2.2), 3 seeds, gte-small: one")
    assert further_evidence([found]).rows == ()


def test_an_encoder_that_a_run_tuned_is_named_by_that_run(tmp_path, make_record):
    write_runs(make_record, tmp_path, "one", [2.0, 2.1, 1.9], "somewhere/runs/mine/encoder/1")
    (table,) = claims_tables([settled(tmp_path)])
    assert table.texts[0][-1].endswith("3 seeds, mine/encoder/1: one")


def test_one_seed_cannot_tell_and_changes_nothing_beside_several(tmp_path, make_record):
    write_runs(make_record, tmp_path, "single", [9.0])
    assert settled(tmp_path).status == "cannot tell"
    write_runs(make_record, tmp_path, "several", [-2.0, -2.1, -1.9])
    assert settled(tmp_path).status == "contradicted"
    assert len(settled(tmp_path).evidence) == 2


def test_experiments_that_contradict_each_other_cannot_tell(tmp_path, make_record):
    write_runs(make_record, tmp_path, "one", [2.0, 2.1, 1.9])
    write_runs(make_record, tmp_path, "two", [-2.0, -2.1, -1.9])
    assert settled(tmp_path).status == "cannot tell"


def test_a_line_shows_the_strongest_evidence_and_all_other_stands_below(tmp_path, make_record):
    write_runs(make_record, tmp_path, "single", [9.0])
    write_runs(make_record, tmp_path, "wide", [2.0, 3.0, 1.0])
    write_runs(make_record, tmp_path, "narrow", [2.0, 2.1, 1.9])
    found = settled(tmp_path)
    (table,) = claims_tables([found])
    assert table.texts[0][0] == "1"
    assert table.texts[0][-1] == "f1 +2.0 (+1.8 to +2.2), 3 seeds, gte-small: narrow; 2 more below"
    below = further_evidence([found]).texts
    assert {(number, text.rpartition(": ")[2]) for number, text in below} == {("1", "single"), ("1", "wide")}


def test_of_experiments_that_contradict_each_other_both_are_shown(tmp_path, make_record):
    for experiment, gain in (("one", 2.0), ("two", -2.0)):
        write_runs(make_record, tmp_path, experiment, [gain, gain + 0.1, gain - 0.1])
    (table,) = claims_tables([settled(tmp_path)])
    assert ": one; " in table.texts[0][-1]
    assert ": two" in table.texts[0][-1]


def test_a_claim_without_records_names_the_command_that_makes_them(tmp_path):
    (tmp_path / "results").mkdir()
    (table,) = claims_tables([settled(tmp_path)])
    assert table.texts[0][-1] == "python -m studies run span_tables runs it"


def test_runs_under_a_condition_speak_of_its_claims_alone(tmp_path, make_record):
    write_runs(make_record, tmp_path, "people", [2.0, 2.1, 1.9])
    assert settled(tmp_path).status == "untested"
    text = (
        "On an encoder whose rate fell to 0 the head is still above the same adapter on the last state, at threshold 0."
    )
    for experiment, status in (("people", "untested"), ("decayed", "confirmed")):
        for row, gain in (("adapter_386_shared_skip", 3.0), ("last_adapter", 0.0)):
            for seed in (1, 2, 3):
                scores = {"f1": 50 + gain + seed / 10}
                record = make_record(model=row, seed=seed, experiment=experiment, fraction=1.0, scores=scores)
                write_record(tmp_path / "results" / experiment / "records", record)
        assert settled(tmp_path, text).status == status


def test_every_claim_has_one_line_and_one_status(tmp_path):
    (tmp_path / "results").mkdir()
    found = settle_claims(tmp_path / "results")
    tables = claims_tables(found)
    assert sum(len(table.rows) for table in tables) == len(found) == sum(count_statuses(found).values())
    assert len(found) > 80
    papers, counts, *_ = zip(*summary_table(found).texts, strict=True)
    assert papers == tuple(table.title for table in tables)
    assert sum(map(int, counts)) == len(found)


def test_the_headline_comes_first_then_the_rest_of_its_paper(tmp_path):
    (tmp_path / "results").mkdir()
    first, *others = settle_claims(tmp_path / "results")
    assert first.claim.text == "One epoch of BERT and one of the head equal BERT after two epochs."
    papers = [each.study.paper for each in others]
    assert papers[: papers.count("BERTVision 2020")] == ["BERTVision 2020"] * papers.count("BERTVision 2020")
    assert sorted(set(papers), key=papers.index)[1:] == [
        "BERT 2018",
        "BERTVision 2021",
        "Our own finding",
        "Hulburd 2019",
    ]


def test_of_as_many_seeds_the_papers_own_score_is_shown_before_a_narrower_interval(tmp_path, make_record):
    write_runs(make_record, tmp_path, "own", [2.0, 2.4, 1.6], score="paper_v1_f1")
    write_runs(make_record, tmp_path, "official", [2.0, 2.1, 1.9])
    assert [each.score for each in settled(tmp_path).evidence] == ["f1", "paper_v1_f1"]
    table = next(each for each in claims_tables([settled(tmp_path)]) if each.rows)
    assert table.texts[0][-1].startswith("paper_v1_f1 +2.0")
