"""Import models that other programs wrote."""
