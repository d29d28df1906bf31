"""The inputs behind probe.json: known distributions, drawn again from their seeds (numpy PCG64)."""

import numpy as np

N = 4096


def dists(seed):
    """name -> float32 array (N,) drawn from a fresh generator each, so that each can be redrawn alone."""

    def g(k):
        return np.random.Generator(np.random.PCG64([seed, k]))

    d = {}
    d["normal"] = g(0).standard_normal(N)
    d["halfnormal"] = np.abs(g(1).standard_normal(N))
    d["relu_normal"] = np.maximum(g(2).standard_normal(N), 0)
    d["relu_shift"] = np.maximum(g(3).standard_normal(N) - 1.5, 0)
    d["laplace"] = g(4).laplace(size=N)
    d["uniform01"] = g(5).random(N)
    d["uniform_sym"] = g(6).random(N) * 2 - 1
    d["u8"] = g(7).integers(0, 256, N) / 255.0
    d["u8raw"] = g(8).integers(0, 256, N) * 1.0
    d["u8sparse"] = np.where(g(9).random(N) < 0.8, 0, g(10).integers(1, 256, N)) / 255.0
    d["expon"] = g(11).exponential(size=N)
    d["lognormal"] = g(12).lognormal(sigma=1.0, size=N)
    d["student3"] = g(13).standard_t(3, size=N)
    d["sigmoid"] = 1 / (1 + np.exp(-3 * g(14).standard_normal(N)))
    d["sparse90"] = np.where(g(15).random(N) < 0.9, 0, g(16).standard_normal(N))
    d["const1"] = np.full(N, 1.0)
    d["two"] = np.where(g(17).random(N) < 0.5, 0.25, 1.0)
    d["zeros"] = np.zeros(N)
    d["outlier"] = np.concatenate([g(18).standard_normal(N - 1), [50.0]])
    d["outlier2"] = np.concatenate([np.abs(g(19).standard_normal(N - 4)), [20.0, 21, 22, 23]])
    d["bimodal"] = np.where(g(20).random(N) < 0.5, g(21).normal(-3, 0.3, N), g(22).normal(3, 0.3, N))
    d["few"] = np.concatenate([np.zeros(N - 16), g(23).standard_normal(16)])
    d["gelu"] = (lambda x: 0.5 * x * (1 + np.tanh(0.79788456 * (x + 0.044715 * x**3))))(
        g(24).standard_normal(N) * 2
    )
    d["relu6"] = np.clip(g(25).standard_normal(N) * 4, 0, 6)
    d["softmax"] = (lambda z: (np.exp(z) / np.exp(z).sum(1, keepdims=True)).ravel())(
        g(26).standard_normal((N // 16, 16)) * 2
    )
    d["normal_small"] = g(27).standard_normal(N) * 1e-3
    d["normal_big"] = g(28).standard_normal(N) * 1e3
    d["negonly"] = -np.abs(g(29).standard_normal(N))
    d["ints"] = g(30).integers(-5, 6, N) * 1.0
    d["ramp"] = np.arange(1, N + 1) / N
    d["pow2"] = 2.0 ** -(g(31).integers(0, 12, N))
    d["tinynoise"] = 1.0 + g(32).standard_normal(N) * 1e-3
    return {k: np.ascontiguousarray(v, dtype=np.float32) for k, v in d.items()}


def scenario(name):
    """list of batches; each batch is name -> array."""
    if name == "one":
        return [dists(1)]
    if name == "four":
        return [dists(s) for s in (1, 2, 3, 4)]
    f = {"grow2": [1, 2, 4, 8], "grow5": [1, 5, 25], "shrink": [4, 2, 1, 0.5], "same2": [1, 1]}[name]
    return [
        {k: (v * np.float32(m)).astype(np.float32) for k, v in dists(i + 1).items()} for i, m in enumerate(f)
    ]
