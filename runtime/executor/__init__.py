"""runtime/executor"""
