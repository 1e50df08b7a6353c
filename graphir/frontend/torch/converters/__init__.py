"""Convert ATen overloads to expressions: one function for each overload, or for a few that differ in little.

A converter takes the node and then the overload's arguments, in the order of its schema and with its defaults: tensors
are expressions, sizes are integers or integer expressions, element types are those of the IR.
"""
