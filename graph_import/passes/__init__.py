"""graph_import/passes"""
