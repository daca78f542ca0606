"""Bad inputs, what they raise and what the message says: `python -m tests.bad_inputs` lists them."""
