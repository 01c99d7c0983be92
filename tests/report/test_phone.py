"""The page in a real browser, as wide as a phone."""

from bertvision.records import Mistake, MistakesRecord
from bertvision.report.page import write_report

PHONE = {"width": 400, "height": 800}


def test_nothing_on_a_page_is_wider_than_a_phone_and_the_score_stands_beside_its_model(
    browser, make_task_records, tmp_path
):
    records = make_task_records("sst2", {"accuracy": 80.0}, intervals={"accuracy": (75.0, 85.0)}, position=1)
    record, long = records[1], "Unbreakable" * 40
    shown = Mistake(split="dev", id=long, texts={"text": long}, gold=long, predicted="no", probability=0.9)
    own = {
        key: getattr(record, key) for key in ("experiment", "variant", "task", "model", "position", "fraction", "seed")
    }
    mistakes = MistakesRecord(
        **own, examples=9, wrong=1, errors=[shown], checked={"dev": 9}, suspects={"dev": 1}, mislabelled=[shown]
    )
    page = browser.new_page(viewport=PHONE)
    page.goto(write_report(records, tmp_path, mistakes=[mistakes]).as_uri())
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    box = page.get_by_role("cell", name="81.5").first.bounding_box()
    assert box["x"] + box["width"] <= PHONE["width"]
    assert page.get_by_text("Rows that look mislabelled").is_visible()
    page.close()
