import json
import threading
import urllib.request
from contextlib import contextmanager
from dataclasses import replace

import pytest
import uvicorn
from playwright.sync_api import expect

import bertvision
from bertvision.model_config import Calibration
from bertvision.serving.http.app import build_app
from bertvision.serving.http.config import ServeConfig
from bertvision.windows.window import WindowConfig

CONTEXT = "the weir was built in 1887 by hannah coyle. the river was by the stone"
QUESTION = "who built the weir?"
ABSTAINS = Calibration(threshold=-1000.0)
MARKUP = '<img src="x" onerror="window.broken=1"><script>window.broken=1</script> 😀 the <b>weir</b> &amp; ${7*7}'


@contextmanager
def serving(models, **settings):
    server = uvicorn.Server(uvicorn.Config(build_app(models, ServeConfig(**settings)), port=0, log_level="warning"))
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started and thread.is_alive():
        thread.join(0.02)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()


@pytest.fixture(scope="module")
def models(make_shared):
    windows = WindowConfig(max_length=40, stride=8, max_question_length=8)
    made = {
        "reader": make_shared(windows=windows),
        "mood": make_shared("sst2", ("bad", "good"), windows=windows),
        "names": make_shared("ner", ("O", "B-A"), windows=windows),
    }
    (made["reader"] / "calibration.json").write_text('{"threshold": 1.0, "temperature": 2.0}')
    return {name: bertvision.load(folder, device="cpu") for name, folder in made.items()}


@pytest.fixture(scope="module")
def reader(models):
    return models["reader"]


@pytest.fixture(scope="module")
def address(reader):
    with serving({"weir": reader}) as found:
        yield found


@pytest.fixture
def visit(browser):
    """Return a function that opens the page; at the end, nothing was refused, broken or fetched from elsewhere."""
    pages, problems = [], []

    def open_page(address, **settings):
        page = browser.new_page(**settings)
        page.set_default_timeout(10_000)
        pages.append(page)
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("dialog", lambda dialog: problems.append(dialog.message))
        # A refused request is told to the console, too; tests of refusals look at what the page says.
        page.on("console", lambda said: problems.append(said.text) if is_problem(said) else None)
        page.on("request", lambda sent: None if sent.url.startswith(address) else problems.append(sent.url))
        page.goto(address)
        return page

    yield open_page
    for page in pages:
        page.close()
    assert problems == []


def is_problem(said):
    return said.type in ("error", "warning") and not said.text.startswith("Failed to load resource")


def ask(page, question=QUESTION, context=CONTEXT):
    page.get_by_label("Passage", exact=True).fill(context)
    page.get_by_label("Question", exact=True).fill(question)
    page.get_by_role("button", name="Ask", exact=True).click()


def post(address, path, body):
    request = urllib.request.Request(
        f"{address}{path}", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request) as response:
        return json.load(response)


def test_every_candidate_is_marked_in_its_passage_when_it_is_chosen(visit, address, reader):
    page = visit(address)
    ask(page)
    found = reader(QUESTION, CONTEXT, top_k=20)
    expect(page.locator("#given")).to_contain_text(found[0].text or next(each.text for each in found if each.text))
    shown = sorted(found, key=lambda answer: -answer.probability)[:6]
    expect(page.locator(".candidate")).to_have_count(len(shown) + all(answer.text for answer in shown))
    for place, answer in enumerate(shown):
        page.locator(".candidate input").nth(place).check()
        if not answer.text:
            expect(page.locator("#passage mark")).to_have_count(0)
            continue
        before = page.locator("#passage mark").evaluate("mark => mark.previousSibling.textContent.length")
        assert (page.locator("#passage mark").inner_text(), before) == (answer.text, answer.start)
    expect(page.locator("#passage")).to_have_text(CONTEXT)


def test_a_long_passage_is_scrolled_to_the_marked_answer(visit, address):
    page = visit(address, viewport={"width": 1280, "height": 900})
    ask(page, context="\n".join(f"{place}: {CONTEXT}" for place in range(60)))
    expect(page.locator("#found")).to_be_visible()
    places = """mark => {
        const [box, own] = [mark.parentElement, mark].map((each) => each.getBoundingClientRect());
        return [own.top - box.top, box.bottom - own.bottom, mark.parentElement.scrollTop];
    }"""
    scrolled = []
    for candidate in page.locator(".candidate", has=page.locator(".text:not(.nothing)")).all():
        candidate.locator("input").check()
        above, below, by = page.locator("#passage mark").evaluate(places)
        assert min(above, below) >= 0
        scrolled.append(by)
    assert max(scrolled) > 0


def test_a_passage_without_candidates_is_not_said_to_have_a_model_that_always_answers(visit, reader):
    with serving({"weir": replace(reader, served=replace(reader.served, calibration=ABSTAINS))}) as address:
        page = visit(address)
        ask(page, context=". ! -- .")
        expect(page.locator("#decision-text")).to_have_text("Probability 100 %; the passage has no other candidate.")


def test_the_answer_says_which_model_gave_it(visit, reader):
    with serving({"weir": reader, "other": reader}) as address:
        page = visit(address)
        ask(page)
        expect(page.get_by_role("heading", name="Answer model: weir")).to_be_visible()
        page.locator("#answer-model").select_option("other")
        ask(page)
        expect(page.get_by_role("heading", name="Answer model: other")).to_be_visible()


def test_the_decision_is_shown_by_the_numbers_of_the_answer_and_of_the_list(visit, address, reader):
    page = visit(address)
    with page.expect_request("**/answer") as sent:
        ask(page)
    assert sent.value.post_data_json["top_k"] > reader.served.config.answers.n_best  # "no answer" may be the last
    found = reader(QUESTION, CONTEXT, top_k=20)
    best = next(answer for answer in found if answer.text)
    nothing = found[0].no_answer_probability
    said, listed = page.locator("#decision-text"), page.locator(".candidate")
    expect(said).to_contain_text(f"{round(100 * best.probability)} %")
    expect(said).to_contain_text(f"against {round(100 * nothing)} % for “no answer”")
    expect(listed.filter(has_text="no answer").locator(".number")).to_have_text(f"{round(100 * nothing)} %")
    verdict = "answers" if best.probability >= nothing else "abstains"
    expect(said).to_contain_text(f"so it {verdict}.")
    assert verdict == ("answers" if found[0].text else "abstains")
    expect(page.locator(".needed span")).to_have_text(f"“no answer”: {round(100 * nothing)} %")
    track, tick = (page.locator(name).bounding_box() for name in (".track", ".tick"))
    assert (tick["x"] + tick["width"] / 2 - track["x"]) / track["width"] == pytest.approx(nothing, abs=0.01)
    page.wait_for_function(
        "share => Math.abs(document.querySelector('.fill').offsetWidth / "
        "document.querySelector('.track').clientWidth - share) < 0.01",
        arg=best.probability,
    )


def test_markup_is_shown_and_not_run(visit, address):
    page = visit(address)
    ask(page, question=MARKUP, context=MARKUP)
    page.locator("#heat tbody td").first.wait_for()
    for radio in page.locator(".candidate input").all():
        radio.check()
        expect(page.locator("#passage")).to_have_text(MARKUP)
    expect(page.locator("#notes")).to_contain_text("The question is longer than the model reads")
    assert page.evaluate("window.broken") is None
    assert page.locator("main img, main b, main script").count() == 0


def test_nothing_but_the_page_itself_may_run_on_it(address):
    with urllib.request.urlopen(address) as response:
        policy = dict(part.strip().split(" ", 1) for part in response.headers["Content-Security-Policy"].split(";"))
        assert response.headers["X-Content-Type-Options"] == "nosniff"
        assert response.headers["Referrer-Policy"] == "no-referrer"
        assert response.headers["Content-Type"] == "text/html; charset=utf-8"
        text = response.read().decode()
    assert policy["default-src"] == "'none'"
    assert policy["frame-ancestors"] == "'none'"
    assert {policy[name] for name in ("script-src", "style-src", "connect-src")} == {"'self'"}
    assert " style=" not in text
    assert "<style" not in text


def test_everything_can_be_done_with_the_keyboard(visit, address):
    page = visit(address)
    page.get_by_label("Question", exact=True).wait_for()
    for _ in range(4):
        page.keyboard.press("Tab")  # three examples, then the passage
    page.keyboard.press("Control+A")
    page.keyboard.type(CONTEXT)
    page.keyboard.press("Tab")
    page.keyboard.press("Control+A")
    page.keyboard.type(QUESTION)
    page.keyboard.press("Enter")
    page.locator("#heat tbody td").first.wait_for()
    assert focused(page, "id") == "question"
    for wanted in ("passage", "candidate", "bound", "whole", "scroll", "cell"):
        walk_to(page, wanted)
        assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
        if wanted == "candidate":
            before = page.locator(".candidate:has(:checked)").inner_text()
            page.keyboard.press("ArrowDown")
            assert page.locator(".candidate:has(:checked)").inner_text() != before
            page.locator("#xray[aria-busy=false]").wait_for()
    before = page.evaluate("document.activeElement.dataset.part")
    page.keyboard.press("ArrowRight")
    assert int(page.evaluate("document.activeElement.dataset.part")) == int(before) + 1
    told = page.evaluate("document.activeElement.title")
    expect(page.locator("#detail")).to_have_text(told)


def walk_to(page, wanted):
    """Press Tab until something is focused, from which it is not far."""
    for _ in range(6):
        page.keyboard.press("Tab")
        role = page.evaluate("document.activeElement.closest('td') ? 'cell' : ''")
        if wanted in (focused(page, "id"), focused(page, "name"), focused(page, "class"), role):
            return
    raise AssertionError(f"{wanted} is not reached")


def focused(page, name):
    return page.evaluate("name => document.activeElement.getAttribute(name)", name)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_shows_it_without_scrolling_sideways(visit, address, scheme):
    page = visit(address, viewport={"width": 360, "height": 740}, color_scheme=scheme)
    ask(page, context=f"{CONTEXT} {'x' * 200}")
    page.locator("#heat tbody td").first.wait_for()
    page.get_by_label("Whole window").check()
    assert page.evaluate("document.documentElement.scrollWidth") == 360
    back = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (back == "rgb(15, 20, 26)") == (scheme == "dark")


def test_a_phone_shows_all_of_the_question_and_the_logits_of_the_x_ray_within_its_card(visit, address):
    page = visit(address, viewport={"width": 360, "height": 740})
    question = page.get_by_label("Question", exact=True)
    ask(page, question="In which year was the old weir at the mouth of the river built by Hannah Coyle?")
    page.locator("#heat tbody td").first.wait_for()
    question.press("End")
    assert question.evaluate("field => [field.scrollLeft, field.scrollHeight - field.clientHeight]") == [0, 0]
    card = page.locator("#xray").bounding_box()
    for logit in page.locator("#heat .total, #heat thead tr:first-child th:last-child").all():
        box = logit.bounding_box()
        assert box["x"] + box["width"] <= card["x"] + card["width"]


def test_where_it_abstains_the_page_says_what_comes_closest_and_where(visit, make_shared):
    folder = make_shared(windows=WindowConfig(max_length=40, stride=8, max_question_length=8))
    (folder / "calibration.json").write_text('{"threshold": -1000.0, "temperature": 2.0}')
    reader = bertvision.load(folder, device="cpu")
    text = f"stone\n{CONTEXT}"
    nothing, closest = reader(QUESTION, text, top_k=2)
    assert nothing.text == ""
    with serving({"weir": reader}) as own:
        page = visit(own)
        ask(page, context=text)
        place = f"(line {text.count(chr(10), 0, closest.start) + 1})"
        expect(page.locator("#given")).to_have_text(f"No sure answer; closest: \u2068{closest.text}\u2069 {place}")


def test_the_page_of_a_classifier_is_titled_for_texts(visit, models):
    with serving({"mood": models["mood"]}) as own:
        page = visit(own)
        expect(page.locator("header")).to_contain_text("Classify a text")
        assert "question" not in page.locator("header").inner_text()


def test_a_phone_shows_the_answer_to_an_example_that_was_tapped_above_the_form(visit, address):
    page = visit(address, viewport={"width": 360, "height": 640})
    page.get_by_role("button", name="A weir").click()
    expect(page.locator("#given")).not_to_be_empty()
    expect(page.locator("#given")).to_be_in_viewport(ratio=1)
    expect(page.locator("#decision-text")).to_be_in_viewport(ratio=1)


def test_errors_are_said_and_what_was_typed_is_kept(visit, address):
    page = visit(address)
    ask(page, question="  ")
    expect(page.get_by_role("alert")).to_have_text("Question: is blank; write something there")
    assert focused(page, "id") == "question"
    assert focused(page, "aria-invalid") == "true"
    page.route("**/answer", lambda route: route.fulfill(status=429, json={"detail": ""}))
    ask(page)
    expect(page.get_by_role("alert")).to_have_text("The server is busy; try again in a moment.")
    page.unroute_all()
    page.route("**/answer", lambda route: route.abort())
    ask(page)
    expect(page.get_by_role("alert")).to_contain_text("The server cannot be reached.")
    page.unroute_all()
    page.route("**/answer", lambda route: None)  # no answer ever comes
    ask(page)
    expect(page.get_by_label("Waiting for the answer")).to_be_visible()
    page.get_by_role("button", name="Stop").click()
    expect(page.get_by_role("alert")).to_contain_text("Stopped.")
    expect(page.get_by_label("Waiting for the answer")).to_be_hidden()
    assert page.get_by_label("Passage", exact=True).input_value() == CONTEXT
    page.unroute_all()
    ask(page)
    expect(page.get_by_role("alert")).to_have_count(0)
    expect(page.locator("#passage")).to_have_text(CONTEXT)


def test_an_answer_does_not_stand_beside_the_error_of_the_next_request(visit, address):
    page = visit(address)
    ask(page)
    page.locator("#heat tbody td").first.wait_for()
    ask(page, question="  ")
    expect(page.get_by_role("alert")).to_be_visible()
    for stale in ("#found", "#xray", "#passage", "#heat"):
        expect(page.locator(stale)).to_be_hidden()
    for stale in ("#given", "#decision-text", "#answered-by"):
        expect(page.locator(stale)).to_have_text("")
    expect(page.locator("#waiting")).to_be_visible()
    page.route("**/xray", lambda route: None)  # none ever comes
    ask(page)
    expect(page.locator("#passage")).to_have_text(CONTEXT)
    expect(page.locator("#xray")).to_be_visible()
    expect(page.locator("#heat")).to_be_hidden()
    page.unroute_all()
    ask(page)
    expect(page.locator("#heat")).to_be_visible()


def test_classes_and_tags_do_not_stand_beside_the_error_of_the_next_request(visit, models):
    with serving(models) as address:
        page = visit(address)
        for task, shown in (("classify", "#classes"), ("tag", "#tags")):
            page.locator(f"#tasks [data-task={task}]").click()
            for text, is_empty in ((CONTEXT, False), (" ", True)):
                page.locator(f"#{task}-text").fill(text)
                page.locator(f"#{task}-form .main").click()
                expect(page.locator(f"#{task}-form .error")).to_be_visible(visible=is_empty)
                if is_empty:
                    expect(page.locator(shown)).to_be_empty()
                else:
                    expect(page.locator(shown)).not_to_be_empty()


def test_emoji_count_as_one_character_each(visit, address, reader):
    page = visit(address)
    context = "😀 😀 😀 😀 the weir 👩‍🔬 was built"
    ask(page, context=context)
    found = [answer for answer in reader(QUESTION, context, top_k=20) if answer.text]
    page.locator("#heat tbody td").first.wait_for()
    for radio in page.locator(".candidate:not(:has(.nothing)) input").all():
        radio.check()
        before, text = page.locator("#passage mark").evaluate("mark => [mark.previousSibling.data, mark.textContent]")
        assert (text, len(before)) in [(answer.text, answer.start) for answer in found]
        expect(page.locator("#notes")).to_be_hidden()  # all of it was read at once
    assert (
        page.evaluate("import('/parts.js').then((parts) => parts.shorten('a' + '😀'.repeat(60)))") == f"a{'😀' * 37}…"
    )


@pytest.mark.parametrize(("context", "direction"), [("הסכר נבנה בשנת", "rtl"), ("the weir was built", "ltr")])
def test_texts_have_their_own_direction(visit, address, context, direction):
    page = visit(address)
    ask(page, question=context, context=context)
    page.locator("#heat tbody td").first.wait_for()
    candidate = page.locator(".candidate .text:not(.nothing)").first
    token = page.locator("#heat tr.answer .token .text").first
    page.locator(".candidate:not(:has(.nothing)) input").first.check()
    for place in (*map(page.locator, ("#context", "#question", "#passage")), candidate, token):
        expect(place).to_have_css("direction", direction)
    assert page.evaluate("getComputedStyle(document.body).direction") == "ltr"


def test_the_x_ray_has_a_cell_for_each_layer_and_token_with_the_numbers_of_the_server(visit, address, reader):
    page = visit(address)
    ask(page)
    given = reader(QUESTION, CONTEXT)
    asked = {"question": QUESTION, "context": CONTEXT, "start": given.start, "end": given.end}
    expected = post(address, "/xray", asked)
    page.get_by_label("Whole window").check()
    for bound in ("start", "end"):
        page.get_by_label(bound.title(), exact=True).check()
        shown = page.locator("#heat tbody tr").evaluate_all(
            "rows => rows.map(row => [...row.querySelectorAll('[data-value]')].map(cell => Number(cell.dataset.value)))"
        )
        assert shown == expected[f"{bound}s"]
        totals = page.locator("#heat .total").all_inner_texts()
        assert [float(each.replace("−", "-")) for each in totals] == pytest.approx(
            expected[f"{bound}_logits"], abs=0.051
        )
        row = expected[f"{bound}s"][expected["first" if bound == "start" else "last"]]
        most = max(range(3), key=lambda layer: row[layer])  # the tiny encoder's layers; then comes the bias
        expect(page.locator("#xray-says")).to_contain_text(f"Layer {most} said most for")
        expect(page.locator("#xray-says")).to_contain_text(f"{row[most]:+.1f}")
    tokens = page.locator("#heat .token .text").all_inner_texts()
    assert tokens == [token["text"] for token in expected["tokens"]]


def test_the_page_waits_as_long_as_the_server_does(visit, address):
    page = visit(address)
    page.evaluate("() => { AbortSignal.timeout = () => AbortSignal.abort(new DOMException('', 'TimeoutError')); }")
    ask(page)
    expect(page.locator("#passage")).to_have_text(CONTEXT)


def test_where_the_head_is_no_sum_over_layers_the_answer_stands_without_an_x_ray(visit, address):
    page = visit(address)
    ask(page)
    page.locator("#heat tbody td").first.wait_for()
    page.route("**/xray", lambda route: route.fulfill(status=422, json={"detail": "this head is no sum"}))
    ask(page)
    expect(page.locator("#xray-says")).to_have_text("No X-ray: this head is no sum")
    expect(page.locator("#heat")).to_be_hidden()
    expect(page.locator("#passage")).to_have_text(CONTEXT)


def test_a_token_is_asked_for_where_the_server_wants_one(visit, reader):
    with serving({"weir": reader}, token="right") as address:
        page = visit(address)
        for given, is_asked_again in (("wrong", True), ("right", False)):
            page.get_by_label("Token", exact=True).fill(given)
            page.keyboard.press("Enter")
            expect(page.get_by_label("Token", exact=True)).to_be_visible(visible=is_asked_again)
        ask(page)
        expect(page.locator("#passage")).to_have_text(CONTEXT)
        assert page.evaluate("[localStorage.length, sessionStorage.length, document.cookie]") == [0, 0, ""]


def test_texts_are_classified_and_tagged_where_such_models_are_loaded(visit, models):
    with serving(models) as address:
        page = visit(address)
        page.get_by_role("button", name="Classify").first.click()
        page.locator("#classify").get_by_label("Text", exact=True).fill(MARKUP)
        page.locator("#classify-form .main").click()
        expect(page.locator("#classes .given")).to_have_text(models["mood"](MARKUP).label)
        page.get_by_role("button", name="Tag").first.click()
        page.locator("#tag").get_by_label("Text", exact=True).fill(f"{MARKUP} {CONTEXT}")
        page.locator("#tag-form .main").click()
        expect(page.locator("#tags .passage")).to_contain_text("window.broken")
        marks = page.locator("#tags mark").evaluate_all("marks => marks.map(mark => mark.firstChild.textContent)")
        assert marks == [entity.text for entity in models["names"](f"{MARKUP} {CONTEXT}").entities]
        assert page.evaluate("window.broken") is None
