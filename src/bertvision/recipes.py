"""The settings that an experiment starts from: of the papers' systems, or of its task; a YAML's own go on top."""

from typing import Any

from bertvision.errors import SettingsError
from bertvision.heads.config import DEFAULT_HEADS
from bertvision.settings import Settings, merge
from bertvision.tasks import TASKS

OPTIM_V2: Settings = {
    "eps": 1e-6,
    "bias_correction": False,
    "weight_decay": 0.01,
    "schedule": "linear",
    "warmup": 0.1,
    "max_grad_norm": None,
}
# What the original systems did, as far as it is known (SPEC 4, 5, 7 and 8); a YAML's own settings go on top.
RECIPES: dict[str, Settings] = {
    "default": {},
    "paper-v1": {  # summer 2020: BERT-large, Keras' Adam at a constant rate, float32, no clipping, no decay
        "windows": {"max_length": 386, "stride": 128, "stride_as": "step", "max_question_length": 64},
        "finetune": {
            "fractions": [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1],
            "batch": {"windows": 4},
            "lr": 1e-5,
            "loss": "sum",
            "optim": {"eps": 1e-7, "weight_decay": 0.0, "schedule": "constant", "max_grad_norm": None},
        },
        "heads": {
            "batch": {"windows": 16},
            "lr": 1e-3,
            "loss": "sum",
            "optim": {"weight_decay": 0.0, "schedule": "constant", "max_grad_norm": None},
        },
        "precision": "float32",
    },
    "paper-v2": {  # spring 2021: AdamW without bias correction, warmup and linear decay over one epoch
        "windows": {"max_length": 384, "stride": 128, "stride_as": "overlap", "max_question_length": None},
        "finetune": {
            "fractions": [1],
            "batch": {"windows": 16},
            "lr": 2e-5,
            "loss": "mean",
            "optim": OPTIM_V2,
        },
        "heads": {
            "batch": {"windows": 16},
            "lr": 2e-5,
            "loss": "mean",
            "optim": OPTIM_V2,
        },
    },
}


# Rows are fewer and shorter than questions: BERT's own recipe for them, three epochs of 32 rows a step.
THREE_EPOCHS: Settings = {
    "finetune": {"fractions": [3], "batch": {"windows": 32}, "optim": {"schedule": "linear", "warmup": 0.1}},
    "heads": {"epochs": 3, "batch": {"windows": 32}},
}
# And where one thing is asked of a row: what holds from 16 rows on, as tried in docs/log.md.
ROWS: Settings = merge(
    THREE_EPOCHS,
    {
        "finetune": {"min_rows": 2000, "min_steps": 200, "initial_bias": "prior"},
        "states": {"pooling": "auto"},
        "heads": {
            "train": ["regression", *DEFAULT_HEADS],
            "baseline": True,
            "min_steps": 300,
            "initial_bias": "prior",
        },
    },
)
# SetFit's recipe: batches of 16 pairs, a warmup over a tenth of one epoch, then linear decay; its rate of 2e-5 needs
# several times the steps (docs/log.md).
CONTRASTIVE: Settings = {"fractions": [1], "min_rows": 0, "min_steps": 0, "lr": 1e-4}
BASELINE = "last_regression"


def recipe_for(settings: Settings, origin: str) -> Settings:
    """Return the recipe that settings name or, where they name none, their task's own."""
    chosen: Any = settings.get("recipe", "default")
    if not isinstance(chosen, str) or chosen not in RECIPES:
        raise SettingsError(f"{origin}: no recipe {chosen!r}; known: {', '.join(RECIPES)}")
    return _rows_recipe(settings) if chosen == "default" else RECIPES[chosen]


def with_baseline(heads: Any) -> Any:  # noqa: ANN401 (what the YAML holds)
    """Add the regression on the last state to heads of rows, wherever there are any."""
    if not isinstance(heads, dict) or not heads.get("baseline"):
        return heads
    train = heads.get("train", list(DEFAULT_HEADS))
    names = [each.get("name") if isinstance(each, dict) else each for each in train] if isinstance(train, list) else []
    if not names or BASELINE in names:
        return heads
    return {**heads, "train": [*train, BASELINE]}


def _rows_recipe(settings: Settings) -> Settings:
    """Return the defaults of a task of rows; who gives epochs or batches gets no other ones."""
    info = next((info for name, info in TASKS.items() if name == settings.get("task")), None)
    if info is None or info.kind.asks_questions:
        return {}
    if info.kind.per != "row":
        return THREE_EPOCHS
    given = (settings.get(stage) for stage in ("finetune", "heads"))
    finetune, heads = (
        stage if isinstance(stage, dict) else {} for stage in given
    )  # what is no mapping is refused later
    if finetune.get("objective") == "contrastive":
        return merge(ROWS, {"finetune": CONTRASTIVE})
    unasked: dict[str, set[str]] = {"finetune": set(), "heads": set()}
    if "fractions" in finetune:
        unasked["finetune"] |= {"min_rows", "min_steps"}
    if "batch" in finetune:
        unasked["finetune"] |= {"min_steps"}
    if "epochs" in heads or "batch" in heads:
        unasked["heads"] |= {"min_steps"}
    without = {stage: {key: ROWS[stage][key] for key in ROWS[stage] if key not in unasked[stage]} for stage in unasked}
    return {**ROWS, **without}
