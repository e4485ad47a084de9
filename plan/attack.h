#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/ids.h"
#include "core/settings/section.h"

namespace macaw {

// Hostile clients of a simulation, so that rules can be judged under attack
// (algorithms/around/attack.h says what each kind sends).
struct AttackConfig {
  std::string kind = "none";
  double fraction = 0;          // of all clients
  std::optional<double> scale;  // times the update of an honest client; Scale() has the defaults
  double noise = 0;             // free-rider: standard deviation of each parameter
  std::optional<double> z;      // alie: standard deviations; unset: the paper's formula
  // min-max, min-sum: the direction from the honest mean.
  std::string perturbation = "std";
  // backdoor: the class that is aimed at, the share of a hostile client's training rows that are
  // stamped, and the side of the stamp in pixels (data/trigger.h).
  uint32_t target = 0;
  double poisoned = 0.5;
  uint32_t trigger = 3;

  // Whether anybody is hostile.
  bool on() const { return kind != "none" && fraction > 0; }
  // Two kinds are made of the honest updates' distances, and one is one of them.
  bool takes_distances() const { return kind == "min-max" || kind == "min-sum"; }
  bool takes_rows() const { return takes_distances() || kind == "mimic"; }
  // These know what the honest clients of a round send; two more the mean, and its deviation.
  bool omniscient() const { return kind == "inner-product" || kind == "alie" || takes_rows(); }
  bool backdoor() const { return kind == "backdoor"; }
  // Whether hostile clients train on other rows than their own.
  bool changes_rows() const { return kind == "label-flip" || backdoor(); }
  // Whether `scale` counts.
  bool scales() const {
    return kind == "sign-flip" || kind == "scaling" || kind == "inner-product" || changes_rows();
  }
  double Scale() const;
  friend bool operator==(const AttackConfig&, const AttackConfig&) = default;
};

// The keys of [attack].
settings::Section<AttackConfig> AttackSection();

// Which clients of a run are hostile: ⌊fraction · clients⌋ of all clients, drawn from the seed, the
// same in every round and on every node. A bit a client. Constant after construction.
class HostileClients {
 public:
  HostileClients() = default;  // nobody
  HostileClients(const AttackConfig& attack, uint64_t clients, uint64_t seed);

  bool Contains(ClientId client) const {
    return client.value < hostile_.size() && hostile_[client.value];
  }
  uint64_t count() const { return count_; }
  uint64_t clients() const { return hostile_.size(); }  // 0: nobody is hostile

 private:
  std::vector<bool> hostile_;  // by client; empty: nobody
  uint64_t count_ = 0;
};

}  // namespace macaw
