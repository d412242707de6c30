"""Our linear layer is torch's, gradients and their gradients included."""

import torch
from torch import nn

from decap.rl.modules import Linear, Model


def test_gradients_are_those_of_torch():
  torch.manual_seed(0)
  theirs = nn.Linear(5, 3)
  ours = Linear.like(theirs)
  assert ours.weight is theirs.weight
  x = torch.randn(64, 5)
  grads = []
  for layer in (theirs, ours):
    layer(x).tanh().square().sum().backward()
    grads.append([p.grad.clone() for p in theirs.parameters()])
    theirs.zero_grad()
  for expected, found in zip(*grads, strict=True):
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def test_second_derivatives_are_those_of_torch_in_single_precision():
  torch.manual_seed(0)
  theirs = nn.Linear(5, 3)
  x, weights = torch.randn(64, 5, requires_grad=True), list(theirs.parameters())
  found = []
  for layer in (theirs, Linear.like(theirs)):
    (slope,) = torch.autograd.grad(layer(x).tanh().sum(), x, create_graph=True)
    found.append(torch.autograd.grad(slope.square().sum(), weights))
  for expected, ours in zip(*found, strict=True):
    torch.testing.assert_close(ours, expected, rtol=1e-5, atol=1e-5)


def test_second_derivatives_pass_through_activations_in_place():
  """As the gradient penalty takes them: through every layer, twice."""
  x = torch.randn(6, 4, dtype=torch.float64, requires_grad=True)
  obs = {"actor": x.detach()}
  net = Model(obs, "actor", 2, hidden_dims=(5, 3), activation="elu").double().mlp
  assert all(layer.inplace for layer in net if isinstance(layer, nn.ELU))
  assert torch.autograd.gradgradcheck(net, (x,))


def test_second_derivatives_match_finite_differences():
  layer = Linear(4, 3).double()
  x = torch.randn(6, 4, dtype=torch.float64, requires_grad=True)
  assert torch.autograd.gradgradcheck(lambda x: layer(x).tanh(), (x,))
