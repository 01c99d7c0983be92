"""Heads from the catalog or of your own, step by step: configure, build, train, read their logits."""

from bertvision.doors import open_door

__getattr__, __dir__, __all__ = open_door(__name__, __file__)
