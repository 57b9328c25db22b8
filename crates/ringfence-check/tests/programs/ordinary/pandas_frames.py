# profiles: data_science
import numpy as np
import pandas as pd

frame = pd.DataFrame({"city": ["a", "b", "a"], "n": [1, 2, 3]})
frame["double"] = frame["n"].apply(lambda n: n * 2)
print(frame.groupby("city")["n"].agg(["sum", "mean"]).to_dict(), frame[frame.n > 1].shape)
print(pd.to_datetime(["2024-01-01"]).year[0], frame.pivot_table(index="city", values="n").loc["a", "n"], np.nan)
