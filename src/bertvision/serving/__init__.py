"""What `bertvision.load` returns, and what each layer adds to an answer."""

from bertvision.doors import open_door

__getattr__, __dir__, __all__ = open_door(__name__, __file__)
