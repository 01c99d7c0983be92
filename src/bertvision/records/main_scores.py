"""The score that stands for a task: runs choose models by it, and reports lead with it."""

import math

from bertvision.records.runs import RunRecord

# Of GLUE's tasks with two scores, the one that BERT's paper reports (Devlin et al. 2019, table 1).
MAIN_SCORES = {
    "squad1": "f1",
    "squad2": "f1",
    "answerability": "accuracy",
    "cola": "matthews",
    "sst2": "accuracy",
    "mrpc": "f1",
    "qqp": "f1",
    "stsb": "spearman",
    "mnli": "accuracy",
    "qnli": "accuracy",
    "rte": "accuracy",
    "wnli": "accuracy",
    "swag": "accuracy",
    "ner": "f1",
    "classification": "accuracy",
    "multilabel": "micro_f1",
    "regression": "pearson",
}


def main_score(record: RunRecord) -> float:
    """Return the score that stands for the record's task; one that has no value is beaten by any."""
    return record.scores.get(MAIN_SCORES.get(record.task, ""), -math.inf)
