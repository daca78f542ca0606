"""Single demonstrations: which are read, and what leaving one out changes."""
