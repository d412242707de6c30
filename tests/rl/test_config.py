"""Configs refuse values that no training can use."""

import pytest

from decap.rl.config import AgentCfg, LagrangianCfg, LcpCfg, NIpoCfg, PolicyCfg, PpoCfg


@pytest.mark.parametrize(
  ("cls", "name", "value", "sentence"),
  [
    (AgentCfg, "iterations", 0, "iterations must be at least 1, not 0"),
    (AgentCfg, "save_interval", 0, "save_interval must be at least 1"),
    (AgentCfg, "keep_checkpoints", 0, "keep_checkpoints must be at least 1"),
    (AgentCfg, "eval_interval", -1, "eval_interval must be at least 0"),
    (AgentCfg, "save_every_s", 0.0, "save_every_s must be above 0"),
    (AgentCfg, "num_steps_per_env", -1, "num_steps_per_env must be at least 1"),
    (PolicyCfg, "hidden_dims", (), "hidden_dims must be one or more widths"),
    (PolicyCfg, "hidden_dims", (32, 0), "hidden_dims must be one or more widths"),
    (PpoCfg, "num_learning_epochs", 0, "num_learning_epochs must be at least 1"),
    (PpoCfg, "num_mini_batches", 0, "num_mini_batches must be at least 1"),
    (PpoCfg, "learning_rate", 0.0, "learning_rate must be above 0"),
    (PpoCfg, "gamma", 1.1, r"gamma must be in \[0, 1\], not 1.1"),
    (PpoCfg, "lam", float("nan"), "lam must be finite"),
    (PpoCfg, "learning_rate", float("inf"), "learning_rate must be finite, not inf"),
    (PpoCfg, "entropy_coef", float("nan"), "entropy_coef must be finite, not nan"),
    (NIpoCfg, "cost_limit", float("inf"), "cost_limit must be finite"),
    (LcpCfg, "gradient_penalty_coef", -1.0, "must be at least 0, not -1"),
    (NIpoCfg, "gamma", 1.0, "gamma must be below 1"),
    (NIpoCfg, "cost_limit", 0.0, "cost_limit must be above 0"),
    (NIpoCfg, "barrier_t", 0.0, "barrier_t must be above 0"),
    (LagrangianCfg, "num_mini_batches", 0, "num_mini_batches must be at least 1"),
    (LagrangianCfg, "multiplier_lr", 0.0, "multiplier_lr must be above 0"),
  ],
)
def test_impossible_values_are_named(cls, name, value, sentence):
  with pytest.raises(ValueError, match=sentence):
    cls(**{name: value})


def test_a_cost_that_must_never_occur_is_possible():
  assert LagrangianCfg(cost_limit=0.0).cost_limit == 0.0
