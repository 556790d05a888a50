"""Policies: frozen values, the state that they need, and pure decisions.

Time and random numbers come in as arguments; nothing here waits or reads a clock.
"""
