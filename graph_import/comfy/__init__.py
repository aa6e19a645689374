"""graph_import/comfy"""
