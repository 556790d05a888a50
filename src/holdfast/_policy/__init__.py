"""Policies: frozen settings, the state that they need, and pure decisions.

Time and random numbers are arguments; no function here waits or reads a clock.
"""
