"""Where candidates come from: code bases at one revision with something wrong in them, and the patch that mends it."""
