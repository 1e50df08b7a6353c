"""Define the operators of neural networks: ``gi.nn.conv2d`` and the like."""
