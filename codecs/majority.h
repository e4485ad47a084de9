#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/vector.h"

namespace macaw::codecs {

// A majority vote on the sign of each number, the line "majority STEP" of update.codec.
//
//   client   v_i ← sign(v_i)
//   server   m ← STEP · sign(Σ w_i v_i)
//
// Bernstein, Wang, Azizzadenesheli, Anandkumar, "signSGD: Compressed Optimisation for Non-Convex
// Problems", ICML 2018; Bernstein, Zhao, Azizzadenesheli, Anandkumar, "signSGD with Majority Vote
// is Communication Efficient and Fault Tolerant", ICLR 2019.
//
// sign(0) = 0 on both sides: a client whose number did not change abstains, and a tie decides
// nothing. With +1 in its place a weight that no client trains would drift.
//
// Both act on the tensors of Group::kParameter. Buffers and gaps stay as they are. All threads.

// v ← sign(v). A NaN or an infinity stays, so that the sum refuses the client.
void ToVotes(VectorView v);

// m ← step · sign(m), of a sum or a mean of votes.
void Decide(double step, VectorView m);

// Whether one of the lines of update.codec is a majority.
bool HasMajority(const std::vector<std::string>& lines);

// STEP of such lines. An error if other lines stand beside it.
absl::StatusOr<double> StepOfMajority(const std::vector<std::string>& lines);

}  // namespace macaw::codecs
