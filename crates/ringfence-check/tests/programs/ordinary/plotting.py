# profiles: data_science
import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

x = np.linspace(0, 2 * np.pi, 100)
figure, axes = plt.subplots()
axes.plot(x, np.sin(x), label="sin")
axes.legend()
plt.savefig("plot.png")
plt.close(figure)
print("saved")
