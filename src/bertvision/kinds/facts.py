"""What sets kinds of tasks apart and is no behaviour: one value each, which a kind may set otherwise."""

from typing import ClassVar, Literal

from bertvision.predictions.ensemble import How

Per = Literal["token", "row"]
PredictorName = Literal["reader", "classifier", "tagger"]
# A linear layer; one that scores pairs of start and end too; a recurrent network over the tokens; or the encoder's own
# output layer as it is, with one or two numbers to train.
Readout = Literal["linear", "joint", "bilstm", "null_offset", "null_offset_scale"]
Contrast = Literal["rows", "texts"]  # what contrastive tuning compares: rows with each other, or a row's two texts


class KindFacts:
    """Facts about a kind; as they stand here, they are those of most."""

    name: ClassVar[str]
    per: ClassVar[Per] = "row"  # whether there are logits for each token or for each window
    noun: ClassVar[str] = "row"  # one example
    cluster: ClassVar[str | None] = None  # what examples are like each other in: articles, documents
    # What a softmax of the logits runs over, if any: the tokens of a window, its columns, or the windows of a group.
    softmax: ClassVar[Literal["tokens", "columns", "windows"] | None] = "columns"
    readouts: ClassVar[tuple[Readout, ...]] = ("linear", "bilstm")
    in_context: ClassVar[bool] = False  # whether the answer is a place in the window's second text
    asks_questions: ClassVar[bool] = False  # whether examples are questions about contexts, in SQuAD's files
    can_be_taught: ClassVar[bool] = False  # by another model's logits
    contrast: ClassVar[Contrast | None] = None  # None: it has no contrastive tuning
    has_baseline: ClassVar[bool] = True  # whether a guess that needs no model is a result of its own
    has_null: bool = False  # whether a model may abstain
    loses_ends: ClassVar[bool] = False  # whether texts that are too long lose their end, rather than be cut in two
    hows: ClassVar[tuple[How, ...]] = ("max", "mean", "logits", "weighted")  # in which logits can be combined
    labels_words: ClassVar[bool] = False  # whether words, not examples, have labels
    needs_two_labels: ClassVar[bool] = False  # whether there is nothing to learn where all examples have one label
    names_labels: ClassVar[bool] = False  # whether prediction files hold names that own data may have more of
    may_lack_scores: ClassVar[bool] = True  # whether a score may have no value, as a correlation of equal numbers
    is_right_or_wrong: ClassVar[bool] = True  # whether a prediction is either of them
    right: ClassVar[str] = "Who is right"  # the title of a table of this
    pipeline: ClassVar[str] = "text-classification"  # the hub's word for a model of it
    usage: ClassVar[str] = 'model("The weir was built in 1887.").label'
    predictor: ClassVar[PredictorName] = "classifier"  # what `bertvision.load` gives for a model of it
    first: ClassVar[str] = "text"  # what a row begins with
    second: ClassVar[str] = "second text"  # what is given beside it
    has_endings: ClassVar[bool] = False  # whether several are given beside it, to choose from

    def __str__(self) -> str:
        return self.name

    @property
    def learns_unanswerable(self) -> bool:
        """Return whether questions without an answer can be learned from."""
        return self.asks_questions

    @property
    def nouns(self) -> str:
        """Several examples."""
        return f"{self.noun}s"

    @property
    def others(self) -> str:
        """Examples that are not like given ones."""
        return f"other {self.nouns}"
