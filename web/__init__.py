"""The window: one page of plain ES modules, served as package data."""

if __name__ != "nodeloom.web":
    raise ImportError(f"this package is nodeloom.web; it must not be imported as {__name__!r}")
