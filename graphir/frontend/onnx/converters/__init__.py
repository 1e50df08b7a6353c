"""The converters, one small function for each ONNX operator: each module here is imported before the first model is.

A converter maps inputs and attributes to graph operators. What is missing in mathematics is an operator of the graph.
"""
