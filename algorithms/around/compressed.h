#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "algorithms/api/description.h"
#include "codecs/codec.h"
#include "plan/update.h"

namespace macaw::algorithms {

// What stands around the compression and matters to it.
struct AroundCompression {
  bool noised = false;  // the sums get noise ([privacy])
};

// Compression of what clients send up, around a rule that does not know of it. On each channel up
// that has the model's layout a client sends C(·), the vector that the receiver decodes (codecs/),
// and C acts on parameters; buffers are sent as they are. With v_i the rule's vector:
//
//   none      sends C(v_i)
//   residual  p = v_i + e_i,   sends C(p),          e_i ← p − C(p)        (Seide et al. 2014;
//             Stich, Cordonnier, Jaggi 2018, "Sparsified SGD with Memory"; Karimireddy et al. 2019)
//   ef21      p = v_i − g_i,   sends c_i = C(p),    g_i ← g_i + c_i       (Richtárik, Sokolov,
//             Fatkhullin 2021, "EF21"; with drawn clients Fatkhullin et al. 2021, EF21-PP)
//             server: G ← G + Σ_S p_i c_i, and the rule sees G/s in place of its mean
//
// An old residual is of an old model. With update.residual_decay = ρ a client takes ρ^a·e_i in
// place of e_i, where a is the number of rounds between this one and the one in which e_i was
// counted: 0 for a client that comes in every round (algorithms/around/residual_age.h).
//
// e_i and g_i are kept by the client, and a contribution that does not count changes neither. So
// G = Σ p_i g_i over all clients, with p_i = w_i/W for a weighted mean and 1/N for a mean. The rule
// then moves by the mean of what each client sent last, drawn in this round or not. Buffers move by
// the mean of the counted clients. For a fixed sum p_i is 1/divisor, and the rule sees G times the
// part of the N clients that came. In the first rounds G lacks the clients that have not come yet:
// with s ← s + (1 − s)·Σ_S p_i, the share that has come as far as draws are independent, the first
// round moves by its own mean, and s tends to 1 (Schmidt, Le Roux, Bach 2017, "Minimizing Finite
// Sums with the Stochastic Average Gradient", does the same).
//
// A residual keeps a client's difference from the others until the client is drawn again, and gives
// it back as noise: with drawn cohorts it is worse than no feedback at large steps, and ef21 is
// exact. `auto` is, in this order:
//
//   none      for codecs that are unbiased or only round, and for a rule whose client state mirrors
//             what it sends (state_follows_sent): what was not sent is not in the state either, and
//             comes up again by itself. A residual would send it twice, which diverges (SCAFFOLD),
//             and is refused
//   residual  where every client takes part in each round
//   ef21      where the sums allow it: not with kCollect, Poisson cohorts, cohorts with repetition,
//             noise of [privacy] or unknown totals of the population
//   residual  otherwise
//
// With "rotate" as the codec's first line a client sends C(R v) instead, R a random rotation that
// all clients of a round share (codecs/rotation.h), and C the other lines. What above is sent is
// Rᵀ C(R v), in the model's tensors: error, states and the rule's own state are of that. R is
// linear, so the server rotates back once, the mean or the sum, before EF21 and the rule see it.
// Vectors that are collected it rotates back one by one, so a robust rule sees each client's own.
//
// What stands around this one may change what is sent, too (Sent): e_i⁺ = p − what was sent, and
// g_i⁺ = g_i + what was sent. A hostile client ([attack]) changes it behind that, and its e_i and
// g_i follow its honest work.
//
// Adds the rule metric `update_error`: the mean over clients of ‖p − C(p)‖/‖p‖, all channels of a
// client together, at most kMostError.
Description Compressed(const Description& rule, const UpdateConfig& update,
                       AroundCompression around = {});

inline constexpr char kUpdateErrorMetric[] = "update_error";
inline constexpr double kMostError = 1e6;

enum class Feedback : uint8_t { kNone, kResidual, kEf21 };

// What follows from a run's settings. Immutable; all threads.
struct Compression {
  Feedback feedback = Feedback::kNone;
  std::shared_ptr<const codecs::Codec> codec;
  bool rotated = false;                            // the codec acts on R v
  std::vector<aggregation::ChannelSpec> channels;  // that are coded
  double residual_decay = 1;                       // ρ; 1 without residuals
  double clients = 0;                              // N
  double total_weight = 0;                         // W
  bool rule_sums = false;  // the rule's server half sums what clients keep, too

  // `schema`: the rule's. Errors are those of the codec's text.
  static absl::StatusOr<Compression> Of(const Description& rule, const Schema& schema,
                                        const UpdateConfig& update, const Setup& setup,
                                        const AroundCompression& around);
};

// The rule's schema with what this adds.
Schema WithCompression(Schema schema, const Compression& compression);

// A client's state and a vector of the server's saved state, for a channel.
std::string ResidualOf(absl::string_view channel);  // e_i: "update_residual_delta"
std::string SentOf(absl::string_view channel);      // g_i: "update_sent_delta"
std::string SumOf(absl::string_view channel);       // G: "update_sum_delta"

std::unique_ptr<ClientAlgorithm> MakeCompressedClient(std::unique_ptr<ClientAlgorithm> inner,
                                                      Compression compression);
// For Feedback::kEf21, which needs a server half.
std::unique_ptr<ServerAlgorithm> MakeCompressedServer(std::unique_ptr<ServerAlgorithm> inner,
                                                      Compression compression);
// For Compression::rotated: rotates back what the other server halves see.
std::unique_ptr<ServerAlgorithm> MakeRotatedServer(std::unique_ptr<ServerAlgorithm> inner,
                                                   Compression compression);
// The purpose of the stream of a channel's R.
std::string RotationOf(absl::string_view channel);

// Whether update.codec begins with a rotation.
bool IsRotated(const UpdateConfig& update);

// Whether every client that can be drawn takes part in each round.
bool AllTakePart(const Setup& setup);

}  // namespace macaw::algorithms
