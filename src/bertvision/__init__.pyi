from bertvision.errors import BertVisionError as BertVisionError
from bertvision.evaluate.analyze import analyze_folder, score_file
from bertvision.evaluate.compare import compare_files
from bertvision.evaluate.ensemble import ensemble_folders
from bertvision.experiment import Experiment as Experiment
from bertvision.experiment import build_experiment as build_experiment
from bertvision.experiment import read_experiment as read_experiment
from bertvision.records import RunRecord as RunRecord
from bertvision.records import read_records as read_records
from bertvision.report.page import write_report as write_report
from bertvision.serving.calibrate_model import calibrate_model
from bertvision.serving.predict_file import predict_file
from bertvision.serving.predictor import load as load
from bertvision.steps.encode import encode as encode
from bertvision.steps.run import run as run
from bertvision.training_result import train as train

analyze = analyze_folder
calibrate = calibrate_model
compare = compare_files
ensemble = ensemble_folders
predict = predict_file
score = score_file

__all__: list[str]
__version__: str
