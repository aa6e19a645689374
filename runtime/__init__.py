"""The plant: scheduler, coordinator, executors, data plane and models."""

if __name__ != "nodeloom.runtime":
    raise ImportError(f"this package is nodeloom.runtime; it must not be imported as {__name__!r}")
