r"""Dr.GRPO: GRPO done right (Liu et al. 2025, "Understanding R1-Zero-Like Training", arXiv:2503.20783).

Two biases of GRPO are removed:

    advantage   A_i = r_i - mean(r)             no division by the std, which favours too easy and too hard prompts
    loss            = 1/(S L) sum_i sum_t l_it  a constant L in place of |o_i|, which favoured long wrong answers

L is `algorithm.constant_length`, by default the completion budget, as in the paper's code.
"""

from strop.algorithms.grpo import Grpo


class DrGrpo(Grpo):
    """Dr.GRPO: the parts of GRPO under the settings that `config.bundles` gives this name."""
