"""The steps of ``geocaps.align``, in numpy: views, hypotheses, ICP, scores."""
