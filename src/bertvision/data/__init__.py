"""Examples from files, and the windows that an encoder reads of them."""

from bertvision.doors import open_door

__getattr__, __dir__, __all__ = open_door(__name__, __file__)
