"""The flow, one module per stage; `run.py` is the whole line on one screen."""
