"""``geocaps bench``: the product against the paper's formulas taken literally, and its own rates."""
