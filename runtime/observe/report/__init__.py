"""Write one HTML page that shows how a model was compiled and how fast it runs."""
