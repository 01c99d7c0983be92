"""Data files -> examples. The door for users: unanswerable questions made from answerable ones, into a file."""

from bertvision.data.near_miss import make_near_misses

__all__ = ["make_near_misses"]
