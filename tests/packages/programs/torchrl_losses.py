"""torchrl: an environment of gymnasium with transforms, DQN on it, and PPO's loss with advantages, in tensordicts."""

import logging

import torch
from tensordict import TensorDict
from tensordict.nn import NormalParamExtractor, TensorDictModule, TensorDictSequential
from torch import nn
from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer
from torchrl.data.replay_buffers.samplers import SamplerWithoutReplacement
from torchrl.envs import Compose, GymEnv, RewardSum, StepCounter, TransformedEnv
from torchrl.modules import EGreedyModule, ProbabilisticActor, QValueActor, TanhNormal, ValueOperator
from torchrl.objectives import ClipPPOLoss, DQNLoss, SoftUpdate
from torchrl.objectives.value import GAE

logging.disable(logging.INFO)
torch.manual_seed(0)
environment = TransformedEnv(GymEnv("CartPole-v1"), Compose(StepCounter(), RewardSum()))
environment.set_seed(0)
network = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))
actor = QValueActor(network, in_keys=["observation"], spec=environment.action_spec)
policy = TensorDictSequential(actor, EGreedyModule(environment.action_spec, eps_init=0.2))
measure = DQNLoss(actor, action_space=environment.action_spec, delay_value=True)
update = SoftUpdate(measure, eps=0.95)
optimizer = torch.optim.Adam(measure.parameters(), 1e-2)
for _ in range(3):
    path = environment.rollout(20, policy)
    loss = measure(path)["loss"]
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    update.step()
    print("dqn", loss.item(), tuple(path.shape), path["next", "episode_reward"].max().item())

torch.manual_seed(0)
body = nn.Sequential(nn.Linear(3, 16), nn.Tanh(), nn.Linear(16, 2), NormalParamExtractor())
module = TensorDictModule(body, in_keys=["observation"], out_keys=["loc", "scale"])
policy = ProbabilisticActor(module, in_keys=["loc", "scale"], distribution_class=TanhNormal,
                            distribution_kwargs={"low": -1, "high": 1}, return_log_prob=True)  # fmt: skip
value = ValueOperator(nn.Sequential(nn.Linear(3, 16), nn.Tanh(), nn.Linear(16, 1)), in_keys=["observation"])
measure = ClipPPOLoss(policy, value, clip_epsilon=0.2, entropy_bonus=True)
data = TensorDict({"observation": torch.randn(64, 3)}, [64])
with torch.no_grad():
    data = policy(data)
never = torch.zeros(64, 1, dtype=torch.bool)
after = {"observation": torch.randn(64, 3), "reward": torch.randn(64, 1), "done": never, "terminated": never.clone()}
data["next"] = TensorDict(after, [64])
GAE(gamma=0.99, lmbda=0.95, value_network=value, average_gae=True)(data)
optimizer = torch.optim.Adam(measure.parameters(), 1e-3)
buffer = TensorDictReplayBuffer(storage=LazyTensorStorage(64), sampler=SamplerWithoutReplacement(), batch_size=32)
for _ in range(3):
    buffer.extend(data.reshape(-1))
    losses = measure(data)
    total = losses["loss_objective"] + losses["loss_critic"] + losses["loss_entropy"]
    total.backward()
    norm = nn.utils.clip_grad_norm_(measure.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    print("ppo", total.item(), norm.item(), buffer.sample()["observation"].sum().item())
