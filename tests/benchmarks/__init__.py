"""Speed and memory as ratios of two sides measured in one run; `make bench` runs them all."""
