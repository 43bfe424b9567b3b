"""Follow an object through partial, noisy frames; for ten of them it is gone, and then it is found again.

Writes nothing.

    python examples/07_track.py [FOLDER]
"""

from __future__ import annotations

import numpy as np

import geocaps
from geocaps.data.sequences import sequence

# The true poses are known of a sequence of the embedded ones; of your own, give paths or arrays [N, 3].
made = sequence(0, points=600, vanishes=True)
gone = np.flatnonzero(made.hidden >= 1)

tracker = geocaps.Tracker(made.reference)
for index in range(gone[0] - 5, gone[-1] + 6):
    found = tracker.update(made.frames[index])
    error = np.degrees(float(found.pose.angle_to(made.poses[index])))
    state = f"lost ({found.reason})" if found.lost else f"{found.parts_visible.sum()} parts visible"
    print(f"frame {index}: {error:5.1f} degrees off, confidence {found.confidence:.2f}, {state}")
