from bertvision.heads.build import list_heads as list_heads
from bertvision.heads.config import HeadConfig as HeadConfig
from bertvision.heads.config import HeadsConfig as HeadsConfig
from bertvision.heads.logits import row_logits as row_logits
from bertvision.heads.logits import token_logits as token_logits
from bertvision.heads.training import build_heads as build_heads
from bertvision.heads.training import train_heads_together as train_heads_together
from bertvision.model_folder import load_model as load_model
from bertvision.predictions.ensemble import combine_logits as combine_logits
from bertvision.predictions.logits import grid_of as grid_of
from bertvision.predictions.prediction import AnswerConfig as AnswerConfig
from bertvision.predictions.spans import predict_spans as predict_spans
from bertvision.scoring.squad import score_predictions as score_predictions
from bertvision.states.live import LiveStates as LiveStates
from bertvision.training.device import choose_compute as choose_compute
from bertvision.windows.plan import BatchConfig as BatchConfig

__all__: list[str]
