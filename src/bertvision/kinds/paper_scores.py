"""Scores as the 2020 system computed them, beside the official ones, where `answers.decoders` asks for them."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bertvision.data.example import Pieces, Question
from bertvision.metrics.scores import score_pieces
from bertvision.metrics.squad import Scores
from bertvision.predictions.logits import Logits, TokenGrid
from bertvision.predictions.paper_decoder import decode_pieces
from bertvision.predictions.prediction import AnswerConfig
from bertvision.windows.tokens import Int32s, Tokenizer, gold_pieces
from bertvision.windows.window import Window


class PaperGold(NamedTuple):
    """What `paper-v1` needs beside logits, the same for every model of an encoder."""

    pieces: Int32s  # [token] of all windows
    golds: list[list[Pieces]]  # of every question


def paper_gold(
    config: AnswerConfig, windows: Sequence[Window], questions: Sequence[Question], tokenizer: Tokenizer
) -> PaperGold | None:
    """Look up the word pieces of windows and golds; None where nobody asked for them."""
    if "paper-v1" not in config.decoders:
        return None
    return PaperGold(np.concatenate([window.ids for window in windows]), gold_pieces(questions, tokenizer))


def paper_scores(
    grid: TokenGrid, logits: Logits, gold: PaperGold | None, *, are_log_probabilities: bool = False
) -> Scores:
    """Return `paper_v1_exact` and `paper_v1_f1`, or nothing where they were not asked for or cannot be computed."""
    if gold is None or logits.shape[1] > 2:  # a joint readout scores pairs: its starts alone mean nothing
        return {}
    answers = decode_pieces(grid, gold.pieces, logits, are_log_probabilities=are_log_probabilities)
    return score_pieces(gold.golds, answers)
