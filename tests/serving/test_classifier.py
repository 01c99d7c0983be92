import numpy as np
import pytest
import torch

import bertvision
from bertvision.data.example import ChoiceRow, Question, TextRow
from bertvision.encoder.encode import encode_cls
from bertvision.errors import DataError
from bertvision.model_folder import load_model
from bertvision.windows.batches import collate
from bertvision.windows.cut import cut_choices, cut_rows
from bertvision.windows.window import WindowConfig, cut_windows

# These heads' logits reach 20, of which float32 keeps about 1e-4 through so many sums, whose order is the CPU's own.
NEAR = {"rel": 1e-4, "abs": 1e-4}
PLACES = ("river", "weir", "stone")
TEXTS = ["the river was in the stone", "hannah coyle", "who built the weir in 1887?"]
CONTEXT = "the weir was built in 1887 by hannah coyle. the river was by the stone, where the weir was built in 1912"


def logits_one_by_one(folder, windows):
    """Return [window, column], from the model itself, one window at a time."""
    model = load_model(folder)
    found = []
    for row in range(len(windows)):
        batch = collate(windows, np.array([row]), 0)
        with torch.no_grad():
            states = encode_cls(model.encoder, batch)
            found.append(model.head.eval()(states, batch.mask[:, :1], batch.segments[:, :1])[0].double().numpy())
    return np.stack(found)


def softmax(logits):
    return np.exp(logits) / np.exp(logits).sum()


def tokenizer_of(folder):
    return load_model(folder).encoder.tokenizer


def test_a_text_gets_its_likeliest_class(make_folder):
    folder = make_folder("classification", PLACES, "xception_abbr_cls")
    classifier = bertvision.load(folder, device="cpu")
    rows = [TextRow(str(place), (text,), None) for place, text in enumerate(TEXTS)]
    logits = logits_one_by_one(folder, cut_rows(rows, tokenizer_of(folder), 20, "class"))
    for found, expected in zip(classifier(TEXTS), map(softmax, logits), strict=True):
        assert found.label == PLACES[int(expected.argmax())]
        assert found.probability == pytest.approx(expected.max(), **NEAR)
        assert list(found.probabilities) == list(PLACES)
        assert list(found.probabilities.values()) == pytest.approx(expected, **NEAR)
    assert classifier(TEXTS[0]).as_dict()["label"] == classifier(TEXTS)[0].label
    assert classifier([]) == []


def test_a_pair_of_texts_gets_any_number_of_labels(make_folder):
    folder = make_folder("multilabel", PLACES, "xception_abbr_cls", pair=True)
    rows = [TextRow("0", (TEXTS[0], TEXTS[1]), None)]
    (logits,) = logits_one_by_one(folder, cut_rows(rows, tokenizer_of(folder), 20, "class"))
    found = bertvision.load(folder, device="cpu")(TEXTS[0], TEXTS[1])
    expected = 1 / (1 + np.exp(-logits))
    assert list(found.probabilities.values()) == pytest.approx(expected, **NEAR)
    assert found.label == tuple(name for name, share in zip(PLACES, expected, strict=True) if share > 0.5)
    assert found.probability is None
    assert found.as_dict()["label"] == list(found.label)


def test_a_number_is_the_logit_itself(make_folder):
    folder = make_folder("regression", (), "xception_abbr_cls")
    rows = [TextRow("0", (TEXTS[0],), None)]
    ((logit,),) = logits_one_by_one(folder, cut_rows(rows, tokenizer_of(folder), 20, "number"))
    found = bertvision.load(folder, device="cpu")(TEXTS[0])
    assert found.label == pytest.approx(logit, **NEAR)
    assert (found.probability, found.probabilities) == (None, {})


def test_the_best_ending_is_chosen(make_folder):
    folder = make_folder("swag", ("0", "1", "2"), "xception_abbr_cls")
    chooser = bertvision.load(folder, device="cpu")
    windows = cut_choices([ChoiceRow("0", "who built the", PLACES, None)], tokenizer_of(folder), 20)
    expected = softmax(logits_one_by_one(folder, windows)[:, 0])
    found = chooser("who built the", list(PLACES))
    assert found.label == PLACES[int(expected.argmax())]
    assert list(found.probabilities.items()) == [
        (place, pytest.approx(share, **NEAR)) for place, share in zip(PLACES, expected, strict=True)
    ]
    assert chooser(["who built the"] * 2, [list(PLACES)] * 2)[1].label == found.label


def test_a_question_has_no_answer_only_if_all_its_windows_say_so(make_folder):
    folder = make_folder("answerability", ("answer", "no answer"), "xception_abbr_cls")
    config = WindowConfig(max_length=20, stride=4, max_question_length=8)
    windows = cut_windows([Question("q", "who?", CONTEXT, (), "")], tokenizer_of(folder), config)
    assert len(windows) > 1
    lowest = min(softmax(each)[1] for each in logits_one_by_one(folder, windows))
    found = bertvision.load(folder, device="cpu")("who?", CONTEXT)
    assert found.label == ("no answer" if lowest > 0.5 else "answer")
    assert found.probabilities["no answer"] == pytest.approx(lowest, **NEAR)


@pytest.mark.parametrize(
    ("task", "arguments", "message"),
    [
        ("classification", ("",), "text: is empty"),
        ("classification", (["a", None],), "text 1: expected a text, got NoneType"),
        ("classification", ("a", "b"), "reads one text, got 2"),
        ("mrpc", ("a",), "reads two texts"),
        ("mrpc", (["a", "b"], ["c", "d", "e"]), "2 texts and 3 second texts"),
        ("swag", ("a", ["b", "c"]), "chooses among 3 endings, got 2"),
        ("swag", ("a", "b"), "chooses among 3 endings, got str"),
        ("swag", (["a", "b"], [["c", "d", "e"]]), "2 texts need as many lists of endings"),
        ("swag", ("a", ["b", "c", "b"]), "two of its endings are equal"),
        ("swag", ("a", ["b", "c", " "]), "text 0, ending 2: is blank"),
    ],
)
def test_what_does_not_fit_the_task_is_refused(make_folder, task, arguments, message):
    labels = ("0", "1", "2") if task == "swag" else ("no", "yes")
    with pytest.raises(DataError, match=message):
        bertvision.load(make_folder(task, labels, "xception_abbr_cls"), device="cpu")(*arguments)
