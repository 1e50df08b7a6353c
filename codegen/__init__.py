"""Scheduled loop IR to machine code."""
