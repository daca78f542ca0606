"""Which classes are confused, predicted from label words."""
