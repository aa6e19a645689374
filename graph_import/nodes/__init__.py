"""graph_import/nodes"""
