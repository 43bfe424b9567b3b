"""What the model refuses to look at, said in one sentence."""

from __future__ import annotations

from geocaps.errors import InvalidInputError

MAX_COORDINATE = 1e15
"""Beyond this, squared distances overflow float32 even after centring in float64 and scaling back is meaningless."""


def require_points(points: object, minimum: int, name: str = "points") -> None:
    """Raises unless ``points`` is a float batch ``[B, N, 3]`` that the model can work with."""
    import torch
    from torch import Tensor

    if not isinstance(points, Tensor):
        raise InvalidInputError(f"{name} must be a tensor [B, N, 3], not {type(points).__name__}")
    if points.ndim != 3 or points.shape[-1] != 3:
        raise InvalidInputError(f"{name} must have shape [B, N, 3], not {list(points.shape)}")
    if not points.dtype.is_floating_point:
        raise InvalidInputError(f"{name} must be floating point, not {points.dtype}: convert with .float()")
    if len(points) == 0:
        raise InvalidInputError(f"{name} is an empty batch: give at least one cloud")
    if points.shape[1] < minimum:
        raise InvalidInputError(
            f"{name} has {points.shape[1]} points per cloud; at least {minimum} are needed, one for each part"
        )
    largest = points.detach().abs().amax()
    if not torch.isfinite(largest):
        bad = int((~torch.isfinite(points)).any(-1).sum())
        raise InvalidInputError(f"{name} has {bad} points that are NaN or infinite: remove them first")
    if largest > MAX_COORDINATE:
        raise InvalidInputError(
            f"{name} has a coordinate of {float(largest):.3g}; more than {MAX_COORDINATE:.0e} cannot be worked with"
        )
