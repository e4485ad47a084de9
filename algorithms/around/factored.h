#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "algorithms/api/description.h"
#include "codecs/low_rank.h"
#include "plan/update.h"

namespace macaw::algorithms {

// Low-rank compression of what clients send up, around a rule that does not know of it
// (codecs/low_rank.h). Two ways, both with M_i the client's vector:
//
//   acpsgd    P and Q take turns, so a round has one phase and one factor:
//     odd rounds   P_i = M_i Q, Q orthonormal;   server: P̄ = mean P_i,  M̄ = P̄ Qᵀ,  P ← orth(P̄)
//     even rounds  Q_i = M_iᵀ P, P orthonormal;  server: Q̄ = mean Q_i,  M̄ = P Q̄ᵀ,  Q ← orth(Q̄)
//   powersgd  a round has two phases, and clients train in the first alone:
//     first        P_i = M_i Q;                  server: P ← orth(mean P_i)
//     second       Q_i = M_iᵀ P;                 server: Q̄ = mean Q_i,  M̄ = P Q̄ᵀ,  Q ← orth(Q̄)
//
// A factor is linear in M_i, so sums of factors are exact in any tree. On each channel up that has
// the model's layout the clients send, in its place, the factors of its matrices and the other
// tensors as they are; the basis goes down. The rule's server half sees M̄ as the channel's result.
//
// With feedback "residual" M_i is the update plus the client's own e_i ← M_i − P Q_iᵀ (of acpsgd's
// odd rounds M_i − P_i Qᵀ), and not M_i − M̄: that one would keep the client's whole difference
// from the others, and grow. Old ones may decay (residual_age.h). P and Q start from the run's
// seed. A phase without contributions changes neither. A client of powersgd keeps M_i between the
// phases; one that is lost in the second keeps M_i's matrices as its e_i. A round that loses all in
// its second phase leaves the model as it is.
//
// With update.adapt = A the ranks of the matrices change (L-GreCo, codecs/rank_choice.h). In rounds
// 1, 1 + A, 1 + 2A, … each client sends beside the factor the squared errors of the best
// approximations of its M_i, of each rank; in other rounds zeros. At the round's end the server
// chooses by their mean, which is what the clients would leave out on their own. (The common basis
// leaves out more of each.) The new ranks are in force from the next round on: the bases lose their
// last columns or get drawn ones, so a client knows the ranks by the basis, and a checkpoint has
// them in P and Q. A round that counts nobody leaves them. e_i stays as it is: it has the model's
// layout, and is what was not sent, of whichever rank.
Description Factored(const Description& rule, const UpdateConfig& update, bool noised = false);

// Whether update.codec asks for it.
bool IsFactored(const UpdateConfig& update);

// A channel that is factored.
struct FactoredChannel {
  aggregation::ChannelSpec spec;  // the rule's
  codecs::LowRank form;
};
struct Factoring {
  std::vector<FactoredChannel> channels;
  bool residual = false;
  double residual_decay = 1;  // residual_age.h; 1 without residuals
  bool two_phases = false;    // powersgd
  uint32_t adapt = 0;         // rounds between choices of ranks; 0: none
  uint64_t seed = 0;

  bool Chooses(Round round) const { return adapt > 0 && (round.value - 1) % adapt == 0; }
  codecs::Factor Sent(Round round, Phase phase) const;  // which factor clients send
  // The client's state for a channel: e_i, or M_i between two phases and then e_i. Only if `keeps`.
  std::string KeptOf(absl::string_view channel) const;
  bool keeps() const { return residual || two_phases; }

  static absl::StatusOr<Factoring> Of(const Description& rule, const Schema& schema,
                                      const UpdateConfig& update, const Setup& setup);
};

Schema WithFactors(Schema schema, const Factoring& factoring);

// Channels up, and down; and vectors that the server saves.
std::string FactorOf(absl::string_view channel);  // "delta_factor"
std::string RestOf(absl::string_view channel);    // "delta_rest"
std::string BasisOf(absl::string_view channel);   // "delta_basis"
std::string ErrorsOf(absl::string_view channel);  // "delta_errors", with update.adapt
// A metric of the server half, with update.adapt: the one rank with which the round's factors would
// have as many numbers.
inline constexpr char kUpdateRankMetric[] = "update_rank";

inline constexpr Phase kFirst{0}, kSecond{1};  // of powersgd

std::unique_ptr<ClientAlgorithm> MakeFactoredClient(std::unique_ptr<ClientAlgorithm> inner,
                                                    Factoring factoring);
std::unique_ptr<ServerAlgorithm> MakeFactoredServer(std::unique_ptr<ServerAlgorithm> inner,
                                                    Factoring factoring);

}  // namespace macaw::algorithms
