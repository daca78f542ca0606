def span_figures(x): return []
def suppression_figures(x): return []
def token_figures(x): return []
