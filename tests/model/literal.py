"""Algorithm 2 for one cloud, written naively on the literal Algorithm 1 of ``geocaps.evaluation.literal``.

Only the parameters are the product's; every operation is written out again, from the paper.
"""

import torch

from geocaps.evaluation.literal import (
    chamfer,
    compose,
    decode_parts,
    encode_parts,
    network,
    part_decoders,
    rotation,
    routing,
    vote_to_pose,
)


def inverse(a):
    r = torch.cat([a[1][:1], -a[1][1:]])
    return -(rotation(r) @ a[0]), r


def object_vote(vote, parts, z):
    """project(maxpool_j embed(v_j|z)) with the 7-D relative pose and the feature concatenated."""
    rows = []
    for pose, feature in parts:
        relative = compose(inverse(z), pose)
        rows.append(network(vote.embed, torch.cat([relative[0], relative[1], feature])))
    return network(vote.project, torch.stack(rows).max(dim=0).values)


def decode_object(layer, pose, feature):
    """J separate decoders, then u_q = h_q ∘ (u_q|h_q)."""
    return [(compose(pose, vote_to_pose(out[:7])), out[7:]) for out in part_decoders(layer.decoder, feature)]


def capsule_distance(u, v):
    (u_pose, u_feature), (v_pose, v_feature) = u, v
    return (
        ((u_pose[0] - v_pose[0]) ** 2).sum() + 1 - (u_pose[1] @ v_pose[1]) ** 2 + ((u_feature - v_feature) ** 2).sum()
    )


def points_to_parts(layer, points, parts, iterations):
    """Algorithm 1, lines 1-7, of a fixed layer: no perturbation, no noise, the grid for the square. Also the last R."""
    for _ in range(iterations):
        R = routing(points, decode_parts(layer, parts, layer.square), layer.config.log_sigma)
        silence = torch.zeros(len(parts), layer.config.feature)
        parts = encode_parts(layer, points, R, [[pose] for pose, _ in parts], silence)
    return parts, R


def algorithm_2(model, X, V_init, h_q, perturbations, epsilon, squares, chamfer_weight):
    """The Object Capsule Autoencoder for one cloud, line by line: L_part, d_Chamfer, L, and which parts have points.

    ``V_init`` and the random draws are given: the pose of line 2, the r_k of line 4, the ε of line 8 and the J samples
    of the square of line 13.
    """
    with torch.no_grad():  # "while keeping the first model fixed"
        V, _ = points_to_parts(model.parts, X, V_init, 3)  # line 1
    z, f = [], []
    for r_k in perturbations:  # line 3
        z_k = compose(h_q, r_k)  # line 4
        for _ in range(model.config.object.voting_steps):  # more than once in setting E
            z_k = compose(z_k, vote_to_pose(object_vote(model.object.pose_network, V, z_k)))  # line 5
        z.append(z_k)
        f.append(object_vote(model.object.feature_network, V, z_k))  # line 6
    mean = sum(f) / len(f)
    variance = sum((f_k - mean) ** 2 for f_k in f) / len(f)  # line 7
    h_f = mean + variance * epsilon  # line 8
    U = decode_object(model.object, z[0], h_f)  # lines 9-11
    with torch.no_grad():
        T, R = points_to_parts(model.parts, X, U, 3)  # line 12
    Y = decode_parts(model.parts, U, squares)
    reached = [bool((R[:, j] > 1e-6).any()) for j in range(len(U))]
    distances = [capsule_distance(u, t) for u, t in zip(U, T, strict=True)]
    part = sum(d for d, seen in zip(distances, reached, strict=True) if seen)
    far = chamfer(X, torch.cat(Y))  # line 13
    return part, far, part + chamfer_weight * far, reached  # line 14, equation 4
