# profiles: data_science
import numpy as np
from numpy.linalg import norm

a = np.array([[1, 2], [3, 4]], dtype=float)
rng = np.random.default_rng(1)
print(a @ a, np.linalg.inv(a).round(2), a.mean(axis=0), np.select([a > 2], [1], 0), norm(a).round(2))
print(np.trace(a), np.copy(a).T.shape, rng.normal(size=3).shape, np.sum(a[a > 1]), np.fft.fft([1, 0]).real)
