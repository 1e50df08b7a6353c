"""Explain the speed of each kernel of a model, from remarks, lowered loops, costs and a profile."""
