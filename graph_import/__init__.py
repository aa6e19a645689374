"""The compiler: workflow text in, verified Graph out. No torch, sockets, threads or clock."""

if __name__ != "nodeloom.graph_import":
    raise ImportError(
        f"this package is nodeloom.graph_import; it must not be imported as {__name__!r}"
    )
