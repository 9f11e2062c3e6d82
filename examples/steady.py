"""A Gymnasium wrapper of your own, around each environment: this one charges for every change of action.

In this folder:

    a2c train --env Catch --wrapper steady:Steady --run-dir runs/steady
    a2c eval runs/steady --wrapper steady:Steady

With arguments: `--set 'env.wrappers=[{steady:Steady: {cost: 0.05}}]'` in place of `--wrapper`. No command imports code
that you do not name. The scores that are printed are those of the game, without the charge.
"""

import gymnasium as gym


class Steady(gym.Wrapper):
    """Pays `cost` less if the action is not the one before.

    What it remembers is forgotten in `reset`: so it is a function of the seed and the actions, and a resumed run plays
    as if it had never stopped.
    """

    def __init__(self, env, cost=0.01):
        super().__init__(env)
        self.cost, self.last = cost, None

    def reset(self, *, seed=None, options=None):
        self.last = None
        return self.env.reset(seed=seed, options=options)

    def step(self, action):
        observation, reward, terminated, truncated, info = self.env.step(action)
        charge = self.cost if self.last not in (None, action) else 0.0
        self.last = action
        return observation, reward - charge, terminated, truncated, info
