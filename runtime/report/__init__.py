"""One page that shows how a model was compiled and what it costs to run."""
