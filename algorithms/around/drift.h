#pragma once

#include "algorithms/api/description.h"

namespace macaw::algorithms {

// The rule, whose rounds also report how far clients move and how much they agree
// (evaluation.updates). Δ_i is what client i sends on the first channel that has the model's layout
// and is a mean: the rule's update, before a codec, noise or an attack. Parameters alone count.
//   drift_mean        the plain mean of ‖Δ_i‖ over the clients that counted
//   drift_max         the largest ‖Δ_i‖
//   update_norm       ‖Δ̄‖, Δ̄ the mean that the server half gets
//   update_agreement  ‖Δ̄‖² ÷ the mean of ‖Δ_i‖², with the same weights: 1 where all send the same,
//                     1/n for n updates of one length and weight at right angles, 0 where they
//                     cancel. Its inverse is the gradient diversity of Yin et al. 2018 ("Gradient
//                     Diversity: a Key Ingredient for Scalable Distributed Learning", definition 1)
//                     times n, for equal weights.
//   update_cosine     ‖Δ̄‖ ÷ the mean of ‖Δ_i‖, with the same weights w_i: the mean over clients of
//                     cos(Δ_i, Δ̄), of which each counts w_i·‖Δ_i‖, since
//                     Σ w_i ‖Δ_i‖ cos(Δ_i, Δ̄) = ⟨Σ w_i Δ_i, Δ̄⟩ ÷ ‖Δ̄‖ = ‖Δ̄‖ · Σ w_i
// All follow from sums and a maximum, so no update is collected and the bits depend on no worker.
// A plain mean of the cosines would need Σ Δ_i ÷ ‖Δ_i‖, a second vector of the model's size.
Description WithDrift(const Description& rule);

}  // namespace macaw::algorithms
