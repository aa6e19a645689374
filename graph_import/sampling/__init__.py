"""graph_import/sampling"""
