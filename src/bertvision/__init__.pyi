from bertvision.api import train as train
from bertvision.errors import BertVisionError as BertVisionError
from bertvision.evaluate.compare import compare_files
from bertvision.evaluate.ensemble import ensemble_folders
from bertvision.evaluate.score import analyze_folder, score_file
from bertvision.experiment import Experiment as Experiment
from bertvision.experiment import build_experiment as build_experiment
from bertvision.experiment import read_experiment as read_experiment
from bertvision.records import RunRecord as RunRecord
from bertvision.records import read_records as read_records
from bertvision.report.page import write_report as write_report
from bertvision.serving.calibrate import calibrate_model
from bertvision.serving.load import load as load
from bertvision.serving.predict import predict_file
from bertvision.stages.encode import encode as encode
from bertvision.stages.run import run as run

analyze = analyze_folder
calibrate = calibrate_model
compare = compare_files
ensemble = ensemble_folders
predict = predict_file
score = score_file

__all__: list[str]
__version__: str
