from bertvision.data.example import DataConfig as DataConfig
from bertvision.data.example import NearMissConfig as NearMissConfig
from bertvision.data.near_miss import make_near_misses as make_near_misses
from bertvision.data.squad import read_squad as read_squad
from bertvision.windows.cut import cut_choices as cut_choices
from bertvision.windows.cut import cut_rows as cut_rows
from bertvision.windows.cut import cut_words as cut_words
from bertvision.windows.window import WindowConfig as WindowConfig
from bertvision.windows.window import cut_windows as cut_windows

__all__: list[str]
