#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "core/ids.h"
#include "plan/cohort.h"

namespace macaw::scheduler {

// What a closed round tells of a client that it asked.
struct ClientFact {
  ClientId client;
  uint32_t rows = 0;  // training rows
  // Mean loss of the rows of its local steps, before each step. Nothing: the client was left out,
  // or its rule reports none.
  std::optional<double> loss = {};
  std::optional<double> seconds = {};  // of its turn in virtual time
  bool left_out = false;               // it did not count
};

// What is known of a client that was asked at least once. 32 bytes.
struct KnownClient {
  static constexpr double kNoLoss = std::numeric_limits<double>::infinity();

  uint32_t client = 0;
  uint32_t asked = 0;     // the last round that asked it
  uint32_t turns = 0;     // rounds in which it counted
  float seconds = 0;      // of its last turn in virtual time; 0: not known
  double loss = kNoLoss;  // the last one; with "ucb" Σ γ^age · loss, and 0 where none is known
  double weight = 0;      // with "ucb" Σ γ^age over the rounds that asked it

  bool told() const { return loss != kNoLoss; }
  friend bool operator==(const KnownClient&, const KnownClient&) = default;
};

// What closed rounds told of the clients: the memory of a sampling that learns (LearnsFromRounds).
// It is told of each round once, in their order, and of nothing else, so it follows from the
// rounds' results. Memory: 32 bytes a client that was asked. One thread.
class Feedback {
 public:
  explicit Feedback(const CohortConfig& config);

  // `facts`: of the clients that the round asked, by client. A loss that is not finite, or beyond
  // 1e30, tells nothing. O(known clients).
  void Observe(Round round, std::span<const ClientFact> facts);

  Round round() const { return round_; }  // the last one that it was told of
  const std::vector<KnownClient>& clients() const { return clients_; }  // by client
  const KnownClient* Find(ClientId client) const;                       // null: never asked

  // ---- of "oort"
  // ε_R of the round after round(): max(ε · decay^R, the least).
  double exploration() const { return exploration_; }
  // The quantile of the durations that is T.
  double threshold() const { return threshold_; }

  // ---- of "ucb"
  double total() const { return total_; }          // Σ γ^age over the rounds
  double deviation() const { return deviation_; }  // of the losses of the last round that has two

  // All of it as bytes for a checkpoint.
  std::string Save() const;
  // Load returns an error, and changes nothing, if Save cannot have made `bytes` for a population
  // of so many clients.
  absl::Status Load(absl::string_view bytes, uint64_t clients);

 private:
  void ObserveUtilities(std::span<const ClientFact> facts);
  void MoveThreshold();
  void ObserveDiscounted(std::span<const ClientFact> facts);
  // Adds the clients of `facts` that are not known yet.
  void Meet(std::span<const ClientFact> facts);

  OortConfig oort_;
  double discount_ = 1;  // γ
  bool discounted_ = false;
  Round round_{};
  double exploration_ = 0, threshold_ = 0;
  // The mean utility of the clients that were known before, of the last 2·pacer_step rounds.
  std::vector<double> utilities_;
  double total_ = 0, deviation_ = 0;
  std::vector<KnownClient> clients_;
};

}  // namespace macaw::scheduler
