#pragma once

#include <memory>

#include "algorithms/api/description.h"
#include "plan/attack.h"
#include "plan/update.h"

namespace macaw::algorithms {

// Majority votes on signs, around a rule that does not know of them: signSGD with majority vote
// (codecs/majority.h), the line "majority STEP" of update.codec. The rule has one channel up, a
// mean over clients in the model's layout. With v_i a client's vector on it and w_i its weight
// there:
//
//   client   sends sign(v_i), −1, 0 or 1 for each parameter
//   server   the rule sees STEP · sign(Σ w_i sign(v_i)) in place of its mean; 0 in a tie
//
// So FedAvg moves each weight by STEP · server_lr in a round, or not at all. Buffers are sent as
// they are, and the rule sees their mean.
//
//   weights      a client's vote has its weight; cohort.weight = "uniform" is one vote a client
//   no client    a round that counts none moves nothing
//   Poisson      a vote is no mean: nothing is divided by the planned weight
//   [privacy]    the noise is on the sum of the votes, before the sign is taken; it decides, too,
//                where no client came
//   the bound    is 1 where the model has no buffers, so a client cannot vote twice: the sum
//                refuses a larger value with its client
//
// Refused, with the reason: feedback, other codecs beside it, rules that look at single clients,
// that put several sums together, or whose clients keep a state that mirrors what they send.
//
// Adds the rule metric `vote_margin`, the mean over parameters of |Σ w_i sign(v_i)| / Σ w_i: 1
// where all clients agree everywhere. Not where the sums are noised.
Description ByMajority(const Description& rule, const UpdateConfig& update, bool noised = false);

inline constexpr char kVoteMarginMetric[] = "vote_margin";

// Whether update.codec asks for it.
bool IsMajority(const UpdateConfig& update);

// Refuses attackers that send something else than votes.
absl::Status CheckAttackOnVotes(const AttackConfig& attack);

std::unique_ptr<ClientAlgorithm> MakeMajorityClient(std::unique_ptr<ClientAlgorithm> inner,
                                                    aggregation::ChannelSpec channel);
// `reports`: vote_margin.
std::unique_ptr<ServerAlgorithm> MakeMajorityServer(std::unique_ptr<ServerAlgorithm> inner,
                                                    aggregation::ChannelSpec channel, double step,
                                                    bool reports);

}  // namespace macaw::algorithms
