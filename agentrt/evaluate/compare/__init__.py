"""Comparison of finished evaluations: episodes paired by question, differences with intervals, flips."""
