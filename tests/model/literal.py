"""The paper's formulas, written naively: dense R over all N × J points, loops where the paper loops.

Only the parameters are the product's; every operation is written out again, from the paper.
"""

import torch


def res(block, x):
    """Res_D(x) = Relu(x + W2 Relu(W1 x))."""
    hidden = torch.relu(x @ block.first.weight.T + block.first.bias)
    return torch.relu(x + hidden @ block.second.weight.T + block.second.bias)


def network(sequence, x):
    """in → width → Relu → Res × n (→ out)."""
    layers = list(sequence)
    x = torch.relu(x @ layers[0].weight.T + layers[0].bias)
    for layer in layers[2:]:
        x = res(layer, x) if hasattr(layer, "first") else x @ layer.weight.T + layer.bias
    return x


def rotation(q):
    w, x, y, z = q
    return torch.stack(
        [
            torch.stack([w * w + x * x - y * y - z * z, 2 * (x * y - w * z), 2 * (x * z + w * y)]),
            torch.stack([2 * (x * y + w * z), w * w - x * x + y * y - z * z, 2 * (y * z - w * x)]),
            torch.stack([2 * (x * z - w * y), 2 * (y * z + w * x), w * w - x * x - y * y + z * z]),
        ]
    )


def hamilton(a, b):
    scalar = a[0] * b[0] - a[1:] @ b[1:]
    vector = a[0] * b[1:] + b[0] * a[1:] + torch.linalg.cross(a[1:], b[1:])
    return torch.cat([scalar[None], vector])


def compose(a, b):
    t = rotation(a[1]) @ b[0] + a[0]
    r = hamilton(a[1], b[1])
    return t, torch.where(r[0] < 0, -r, r)


def inverse(a):
    r = torch.cat([a[1][:1], -a[1][1:]])
    return -(rotation(r) @ a[0]), r


def vote_to_pose(vote):
    r = vote[3:] / vote[3:].norm()
    return vote[:3], torch.where(r[0] < 0, -r, r)


def observe(points, z):
    """x|z = z⁻¹ ⊙ x, one point at a time."""
    t, r = inverse(z)
    return torch.stack([rotation(r) @ x + t for x in points])


def routed_vote(vote, points, z, weights):
    """project(maxpool_i R_ij embed(x_i|z)) for one part: every point is embedded, whatever its R."""
    local = (points - z[0]) @ rotation(z[1])
    embedded = network(vote.embed, local)
    return network(vote.project, (weights[:, None] * embedded).max(dim=0).values)


def fold(decoder, feature, square):
    """G([v_f, s]) on the concatenation, as the appendix has it."""
    weight = torch.cat([decoder.from_feature.weight, decoder.from_square.weight], dim=1)
    both = torch.cat([feature.expand(len(square), -1), square], dim=1)
    hidden = torch.relu(both @ weight.T + decoder.from_feature.bias)
    for block in decoder.blocks:
        hidden = res(block, hidden)
    return hidden @ decoder.to_point.weight.T + decoder.to_point.bias


def decode_parts(layer, parts, square):
    """PartsToPointsDecoder(V): [j][m, 3]."""
    return [fold(layer.decoder, feature, square) @ rotation(pose[1]).T + pose[0] for pose, feature in parts]


def routing(points, surfaces, log_sigma):
    """b_ij for each i, j, then softmax over j: dense."""
    b = torch.zeros(len(points), len(surfaces), dtype=points.dtype)
    sigma = torch.exp(torch.tensor(log_sigma, dtype=points.dtype))
    for j, surface in enumerate(surfaces):
        distance = (points[:, None] - surface[None]).square().sum(-1)
        b[:, j] = -(distance / sigma**2 + torch.log(sigma)).min(dim=1).values
    return torch.softmax(b, dim=1)


def encode_parts(layer, points, R, viewpoints, epsilon, steps=1):
    """PointsToPartsEncoder: viewpoints [j][k] are given (already perturbed), epsilon [j, d] is the noise of line 16."""
    out = []
    for j, views in enumerate(viewpoints):
        percepts, poses = [], []
        for z in views:
            for _ in range(steps):
                z = compose(z, vote_to_pose(routed_vote(layer.pose_vote, points, z, R[:, j])))
            percepts.append(routed_vote(layer.feature_vote, points, z, R[:, j]))
            poses.append(z)
        f = torch.stack(percepts)
        mean = f.mean(dim=0)
        variance = ((f - mean) ** 2).mean(dim=0)
        out.append((poses[0], mean + variance * epsilon[j]))
    return out


def chamfer(x, y):
    square = torch.zeros(len(x), len(y), dtype=x.dtype)
    for i, point in enumerate(x):
        square[i] = ((point - y) ** 2).sum(-1)
    return square.min(dim=0).values.mean() + square.min(dim=1).values.mean()


def object_vote(vote, parts, z):
    """project(maxpool_j embed(v_j|z)) with the 7-D relative pose and the feature concatenated."""
    rows = []
    for pose, feature in parts:
        relative = compose(inverse(z), pose)
        rows.append(network(vote.embed, torch.cat([relative[0], relative[1], feature])))
    return network(vote.project, torch.stack(rows).max(dim=0).values)


def decode_object(layer, pose, feature):
    """J separate decoders in a loop, then u_q = h_q ∘ (u_q|h_q)."""
    parts = []
    for j in range(layer.decoder.decoders):
        first, _, *blocks, last = layer.decoder.layers
        x = torch.relu(feature @ first.weight[j] + first.bias[j, 0])
        for block in blocks:
            hidden = torch.relu(x @ block.first.weight[j] + block.first.bias[j, 0])
            x = torch.relu(x + hidden @ block.second.weight[j] + block.second.bias[j, 0])
        out = x @ last.weight[j] + last.bias[j, 0]
        parts.append((compose(pose, vote_to_pose(out[:7])), out[7:]))
    return parts


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
    Y = [fold(model.parts.decoder, u_f, S) @ rotation(r).T + t for ((t, r), u_f), S in zip(U, squares, strict=True)]
    reached = [bool((R[:, j] > 1e-6).any()) for j in range(len(U))]
    distances = [capsule_distance(u, t) for u, t in zip(U, T, strict=True)]
    part = sum(d for d, seen in zip(distances, reached, strict=True) if seen)
    far = chamfer(X, torch.cat(Y))  # line 13
    return part, far, part + chamfer_weight * far, reached  # line 14, equation 4
