"""Steps of ``geocaps.align``, in numpy: prepared clouds, hypotheses, ICP, scores."""
