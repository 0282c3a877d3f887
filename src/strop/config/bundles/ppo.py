r"""PPO: Proximal Policy Optimization, with a critic that says what each token's state is worth.

    advantage   A_t  = sum_k (gamma lambda)^k delta_(t+k)        delta_t = r_t + gamma V_(t+1) - V_t, then whitened
    token loss  l_it = -min(w_it A_it, clip(w_it, 1 - 0.2, 1 + 0.2) A_it)
    loss             = 1/N sum_i sum_t l_it
    value loss       = 1/N sum_i sum_t 1/2 max((V - R)^2, (V clipped near V_old - R)^2)

with the reward on the last token, and a KL penalty on each where `kl_placement = "reward"`.

Computed by `algorithms/advantages/gae.py`, `algorithms/losses/clip.py`, `algorithms/aggregation.py` and, for the
critic, `algorithms/value_loss.py`; the section `critic` has its settings.

Source: Schulman et al. 2017, arXiv:1707.06347, equation 7; GAE: Schulman et al. 2015, arXiv:1506.02438; on language
models: Ouyang et al. 2022, InstructGPT, arXiv:2203.02155, and Huang et al. 2024, arXiv:2403.17031.
Deviations: gamma is 1, as is practice on language models (the paper has 0.99). There is no KL penalty unless
`kl_coefficient` is set (InstructGPT has 0.02 in the reward). Critic and policy are two models with an optimizer each,
and there is no entropy bonus. TRL 1.16 has no critic.
"""

from strop.config.bundles.settings import ResolvedAlgorithm

BUNDLE = ResolvedAlgorithm("ppo", advantage="gae", aggregation="token_mean")
