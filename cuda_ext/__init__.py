"""The metal: native allocators, and later the arenas and the device modules."""

if __name__ != "nodeloom.cuda_ext":
    raise ImportError(f"this package is nodeloom.cuda_ext; it must not be imported as {__name__!r}")
