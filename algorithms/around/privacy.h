#pragma once

#include <memory>
#include <string>

#include "algorithms/around/registry.h"
#include "plan/attack.h"
#include "plan/privacy.h"

namespace macaw::algorithms {

// Differential privacy of clients around a rule, which does not know of it: the Gaussian mechanism
// on the sums of each round (McMahan, Ramage, Talwar, Zhang 2018, "Learning Differentially Private
// Recurrent Language Models").
//
//   client   u ← u · min(1, C/‖u‖), u all that it sends, its channels together
//   server   Σ u ← Σ u + N(0, (z·C)²) on each parameter, divided by the planned cohort
//
// Clients are drawn by Poisson sampling with equal weights, since ε is of that. The rule does not
// see that: it is told of uniform sampling, and that exactly the planned clients came, since their
// true number is a client's secret, too. With adaptive
// clipping (Andrew, Thakkar, McMahan, Ramaswamy 2021, "Differentially Private Learning with
// Adaptive Clipping"), clients also say whether ‖u‖ ≤ C, as ±½; with m planned clients
//
//   b ← ½ + (Σ ±½ + N(0, σ_b²))/m, kept in [0, 1],   C ← C · exp(−η_C·(b − γ))
//
// and the sums get noise of z_Δ = (z⁻² − (2σ_b)⁻²)^−½, so that both together cost what z costs.
//
// C stays within a factor of kClipRange of the first one. A client is trusted to clip. The norm is
// kept below C by a part in 2^20, which is more than rounding to the sums' grid adds to it, for up
// to 4 million weights and 2048 clients a round.
//
// Norm and noise are of the parameters. Of buffers a client sends zeros, whatever the rule makes of
// them, so that nothing without noise goes out. A run is accepted where that changes no rule: the
// model has none, the server freezes them, or they stay with the clients
// (Description::stays_with_clients).
//
// ε and δ are of the models, and of whatever is made of them: not of metrics that clients report,
// and not of what others learn from seeing who takes part.
//
// Stragglers that are dropped (cohort.straggler_policy) are drawn independently, too, and send
// nothing. So with straggler_fraction f a client takes part with probability q·(1 − f), which
// counts for ε, and the planned cohort is cohort.size·(1 − f).
//
// Hostile clients ([attack]) change what they send after the clip, which is part of an honest
// client's program. The channels' bounds have room for it, so that no bound of privacy leaves them
// out.
//
// With noise_cohort M, the noise is that of rounds of M clients: its deviation is smaller by
// cohort.size/M, as it would be beside the sum of M updates, and ε is that of M clients a round.
// They are drawn from `population` clients, by default those of the run: q = M/population.
//
// A rule whose clients keep a state that mirrors what they send is told of the clip's factor s_i
// (ClientAlgorithm::Sent): SCAFFOLD's c stays the mean of the c_i, and FedDyn's h that of the g_i,
// only if a client's state moves by s_i·Δc_i as the server's does. Without that, c − mean c_i moves
// by −Σ (1 − s_i)Δc_i/N and stays there, so the run ends where ∇F = mean c_i − c ≠ 0. So a rule
// with a state is accepted if its description has state_follows_sent or has_independent_state. The
// noise is the server's alone: it adds up in c and h.
//
// Adds the rule metrics `epsilon` (by Rényi divergences, accountant.h), `clip` (C, with which the
// round's clients clipped) and `clipped` (the part of them whose update was longer; exact, unless
// clipping is adaptive).
Description WithPrivacy(const Description& rule, const PrivacyConfig& privacy, uint32_t rounds,
                        const AttackConfig& attack = {});

inline constexpr double kClipRange = 1000;
inline constexpr char kClipChannel[] = "privacy_clip";        // down: C
inline constexpr char kShorterChannel[] = "privacy_shorter";  // up: Σ ±½ over the planned clients

// What follows from a run's settings. Immutable.
struct Privacy {
  PrivacyConfig config;
  uint32_t rounds = 1;
  double q = 0;            // the probability that a client is drawn, of the noise's cohort
  double cohort = 0;       // planned clients of a round, without stragglers that are dropped
  double noise = 0;        // of the sums, in units of C: z, or z_Δ; times `scale`
  double count_noise = 0;  // σ_b · `scale`
  double reach = 1;        // the longest that a hostile client sends, in clips
  static Privacy Of(const PrivacyConfig& config, const Setup& setup, uint32_t rounds,
                    const AttackConfig& attack = {});
};

// The rule's schema with these channels and metrics.
Schema WithPrivacy(Schema schema, const Privacy& privacy);

std::unique_ptr<ClientAlgorithm> MakePrivateClient(std::unique_ptr<ClientAlgorithm> inner,
                                                   Schema rule, const Privacy& privacy);
std::unique_ptr<ServerAlgorithm> MakePrivateServer(std::unique_ptr<ServerAlgorithm> inner,
                                                   Schema rule, const Privacy& privacy);

}  // namespace macaw::algorithms
