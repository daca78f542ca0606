"""Label probabilities with what the model says whatever the text taken out."""
