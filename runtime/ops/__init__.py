"""runtime/ops"""
