import numpy as np

from bertvision.data.example import Sentence
from bertvision.kinds.tags import predict_tags
from bertvision.predictions.prediction import TagPrediction

SENTENCES = [Sentence("a", ("New", "York", "is"), None, 0), Sentence("b", ("\u200b", "Leeds"), None, 0)]
TAGS = ("O", "B-LOC", "I-LOC")


def test_each_word_gets_the_best_tag_of_its_token_and_a_word_without_one_gets_o():
    # [CLS] New York ##er [SEP]   [CLS] York is [SEP] (York was seen already)   [CLS] Leeds [SEP]
    sentence_of = np.array([0] * 5 + [0] * 4 + [1] * 3)
    word_of = np.array([-1, 0, 1, -1, -1, -1, -1, 2, -1, -1, 1, -1])
    best = np.array([2, 1, 2, 1, 1, 1, 1, 0, 1, 2, 1, 2])
    logits = np.eye(3, dtype=np.float32)[best]
    assert predict_tags(SENTENCES, TAGS, sentence_of, word_of, logits) == [
        TagPrediction("a", ("B-LOC", "I-LOC", "O")),
        TagPrediction("b", ("O", "B-LOC")),
    ]
