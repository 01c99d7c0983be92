from bertvision.serving.classifier import Classifier as Classifier
from bertvision.serving.reader import Reader as Reader
from bertvision.serving.tagger import Tagger as Tagger
from bertvision.serving.xray import Xray as Xray
from bertvision.serving.xray import XrayToken as XrayToken
from bertvision.serving.xray import xray as xray

__all__: list[str]
