"""Tianshou's A2C on EnvPool, with its own Atari network and the hyper-parameters of the preset `atari`.

EnvPool as Tianshou's AtariEnvFactory asks for it: episodes end with a life (the game goes on), rewards are clipped.
Done for its speed: pixels are divided in float32 (Tianshou's own wrapper divides in float64), the buffer holds a single
rollout, there is no progress bar, log or test game. Included: next observations are stored, since the bootstrap value
is wrong without them. RMSProp is PyTorch's, which is as much work as TF1's.
"""

from __future__ import annotations

from typing import Any

import envpool
import numpy as np
import torch
from protocol import Settings, Train, serve, updates_per_call
from tianshou.algorithm import A2C
from tianshou.algorithm.modelfree.reinforce import DiscreteActorPolicy
from tianshou.algorithm.optim import RMSpropOptimizerFactory
from tianshou.data import Collector, CollectStats, VectorReplayBuffer
from tianshou.env.atari.atari_network import DQNet, layer_init
from tianshou.trainer import OnPolicyTrainerParams
from tianshou.utils.net.discrete import DiscreteActor, DiscreteCritic


class ScaledDQNet(DQNet):
    """Tianshou's Nature network on bytes."""

    def forward(self, obs: Any, state: Any = None, info: Any = None) -> tuple[torch.Tensor, Any]:
        """Features of obs [N, 4, 84, 84] uint8."""
        return super().forward(torch.as_tensor(obs).float().div_(255), state, info)


def build(settings: Settings) -> Train:
    """There are no variants."""
    torch.set_num_threads(settings.threads)
    envs = envpool.make_gymnasium(
        f"{settings.game}-v5",
        num_envs=settings.num_envs,
        num_threads=settings.threads,
        stack_num=4,
        episodic_life=True,
        reward_clip=True,
    )
    algorithm = make_algorithm(envs)
    steps = settings.rollout_length * settings.num_envs
    epoch = updates_per_call(steps) * steps
    params = OnPolicyTrainerParams(
        training_collector=Collector[CollectStats](
            algorithm, envs, VectorReplayBuffer(steps, buffer_num=settings.num_envs), raise_on_nan_in_buffer=False
        ),
        max_epochs=np.iinfo(np.int64).max,
        epoch_num_steps=epoch,
        collection_step_num_env_steps=steps,
        batch_size=None,  # the whole rollout at once
        test_in_training=False,
        show_progress=False,
        verbose=False,
    )
    trainer = algorithm.create_trainer(params)
    trainer.reset()

    def train() -> int:
        trainer.execute_epoch()
        return epoch

    return train


def make_algorithm(envs: Any) -> A2C:
    """Actor and critic share the network; `max_batchsize` is above any rollout's size."""
    actions = int(envs.action_space.n)
    network = ScaledDQNet(
        *envs.observation_space.shape, actions, features_only=True, output_dim_added_layer=512, layer_init=layer_init
    )
    actor = DiscreteActor(preprocess_net=network, action_shape=actions, softmax_output=False)
    return A2C(
        policy=DiscreteActorPolicy(actor=actor, action_space=envs.action_space),
        critic=DiscreteCritic(preprocess_net=network),
        optim=RMSpropOptimizerFactory(lr=7e-4, alpha=0.99, eps=1e-5),
        vf_coef=0.25,
        ent_coef=0.01,
        max_grad_norm=0.5,
        gae_lambda=1.0,
        gamma=0.99,
        max_batchsize=4096,
    )


if __name__ == "__main__":
    serve(build, ["tianshou", "envpool", "torch", "gymnasium", "numpy"])
