"""Small heads on all layers of any Hugging Face encoder.

Its public names stand in `__init__.pyi`, and each is imported when it is first used. `bertvision.heads`, `.tuning`,
`.data` and `.serving` have public names of their own; all else is private and may move.
"""

import os
from importlib.util import find_spec

from bertvision.doors import open_door
from bertvision.version import VERSION

__getattr__, __dir__, __all__ = open_door(__name__, __file__)
__version__ = VERSION
if find_spec("torch") is None:  # transformers, whose tokenizers work without it, would say so at every start
    os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")
