#pragma once

#include <memory>
#include <string>

#include "algorithms/api/description.h"
#include "codecs/codec.h"
#include "plan/broadcast.h"

namespace macaw::algorithms {

// Compression of the model that goes down, around all else but [model] frozen. The server sends z,
// which clients train from, and keeps its own x: what they return is the difference to z, and moves
// x. With C of the codec (codecs/), acting on the parameters; buffers are sent as they are, and
// frozen tensors are no part of the model here:
//
//   model    z = C(x), anew in each round (Markov, Vladu, Guo, Alistarh 2023, "Quantized
//            Distributed Training of Large Models with Convergence Guarantees")
//   change   z ← z + γC(x − z), the first z = x (Gruntkowska, Tyurin, Richtárik 2023, "EF21-P and
//            Friends"; Tang, Yu, Lian, Zhang, Liu 2019, "DoubleSqueeze")
//
// `change` feeds back what was dropped, since x − z has it. γ is 1, or the power of two with which
// z certainly comes nearer to x (theirs is 1/(1 + ω), of the worst case), so every codec will do,
// also one whose error may be larger than the vector. A client needs the z of the round before; one
// that lacks it gets the whole z in four bytes a weight. So it is for runs in which all clients
// take part in each round, where `auto` takes it. `model` is for codecs that leave no number out:
// nobody can train a model of whose numbers a tenth was sent.
//
// z changes once a round; later phases of a round get the same z. A rule that moves x between the
// phases of a round gets another z with `model`, and an error with `change`. Evaluations are of x,
// or of what the rule reports. Other vectors that a rule sends down (SCAFFOLD's c) are sent as they
// are. The codec's draws are of (seed, round), so a server that starts again sends the same z.
//
// Adds the rule metric `broadcast_error`: ‖z − x‖/‖x‖ of the parameters.
Description WithCodedBroadcast(const Description& rule, const BroadcastConfig& broadcast);

inline constexpr char kBroadcastErrorMetric[] = "broadcast_error";

// In the server's saved state: the vector z, and 1 once it was sent (`change`).
inline constexpr char kBroadcastSent[] = "broadcast_sent";

std::unique_ptr<ServerAlgorithm> MakeCodedBroadcastServer(
    std::unique_ptr<ServerAlgorithm> inner, std::shared_ptr<const codecs::Codec> codec,
    bool of_change, std::string model_channel, const LayoutPtr& layout);

}  // namespace macaw::algorithms
