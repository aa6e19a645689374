"""Example workflows as package data: prompts in ComfyUI's API format, and workflows in Python.

They run on the models that ship with nodeloom. The pictures that some of them read are in
`pictures/`; a server that offers those models lays them into its input folder.
"""

if __name__ != "nodeloom.workflows":
    raise ImportError(
        f"this package is nodeloom.workflows; it must not be imported as {__name__!r}"
    )
