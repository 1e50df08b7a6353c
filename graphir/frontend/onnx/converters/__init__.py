"""Define the converters, one small function for each ONNX operator; all modules here are imported before the first
model.

A converter maps inputs and attributes to graph operators. Mathematics that cannot be composed of them becomes a new
operator of the graph.
"""
