"""The version, of a clone that is not installed too."""

__version__ = "0.1.0"
