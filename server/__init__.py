"""The front: HTTP and websockets in, JSON out. No torch, no scheduling."""

if __name__ != "nodeloom.server":
    raise ImportError(f"this package is nodeloom.server; it must not be imported as {__name__!r}")
