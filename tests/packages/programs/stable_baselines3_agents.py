"""stable_baselines3: PPO, A2C, DQN and SAC learn on gymnasium's environments, and are saved and loaded."""

import os
import tempfile

import numpy as np
from stable_baselines3 import A2C, DQN, PPO, SAC

folder = tempfile.mkdtemp()
for kind, environment, options in (
    (PPO, "CartPole-v1", {"n_steps": 128, "batch_size": 64}),
    (A2C, "CartPole-v1", {}),
    (DQN, "CartPole-v1", {"learning_starts": 50, "buffer_size": 500}),
    (SAC, "Pendulum-v1", {"learning_starts": 50, "buffer_size": 500}),
):
    name = kind.__name__
    policy = {"net_arch": [16, 16]}
    agent = kind("MlpPolicy", environment, seed=0, device="cpu", policy_kwargs=policy, **options)
    agent.learn(256)
    print(name, sum(float(p.double().sum()) for p in agent.policy.parameters()))
    agent.save(os.path.join(folder, name))
    loaded = kind.load(os.path.join(folder, name), device="cpu")
    seen = np.zeros(agent.observation_space.shape, dtype=np.float32)
    print(name, loaded.predict(seen, deterministic=True)[0].tolist())
