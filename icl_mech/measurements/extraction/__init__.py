"""Whether attention to label words decides the prediction."""
