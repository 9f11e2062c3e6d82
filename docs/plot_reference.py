"""Draw docs/pong-reference.png from runs/pong-reference/metrics.jsonl (needs `pip install matplotlib`)."""

import json
from pathlib import Path

import matplotlib.pyplot as plt

ROOT = Path(__file__).resolve().parents[1]
lines = [json.loads(line) for line in (ROOT / "runs/pong-reference/metrics.jsonl").read_text().splitlines()]
lines = [line for line in lines if line["episode_return_mean"] is not None]

figure, axes = plt.subplots(figsize=(8, 3.6), layout="constrained")
axes.plot([line["seconds"] / 60 for line in lines], [line["episode_return_mean"] for line in lines], color="#1f4e79")
axes.axhline(18, color="grey", linewidth=0.8, linestyle="--")
axes.set_xlabel("minutes, on two cores")
axes.set_ylabel("mean return of the last 100 games")
axes.set_title("Pong, seed 0, no sticky actions; agent steps above", fontsize=10)
axes.set_ylim(-21.5, 21.5)
axes.grid(alpha=0.3)
steps = axes.secondary_xaxis("top", functions=(lambda m: m, lambda m: m))
ticks = [lines[round(i * (len(lines) - 1) / 8)] for i in range(9)]
steps.set_xticks(
    [line["seconds"] / 60 for line in ticks], [f"{line['env_steps'] / 1e6:.2f} M" for line in ticks], fontsize=7
)
steps.tick_params(length=2)
figure.savefig(ROOT / "docs/pong-reference.png", dpi=130)
