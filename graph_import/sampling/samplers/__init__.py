"""graph_import/sampling/samplers"""
