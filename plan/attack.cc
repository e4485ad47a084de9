#include "plan/attack.h"

#include "core/fraction.h"
#include "core/random.h"

namespace macaw {

using settings::AboveUpTo;
using settings::AtLeast;
using settings::Below;
using settings::Between;

double AttackConfig::Scale() const {
  if (scale.has_value()) return *scale;
  if (kind == "scaling") return 10;
  return kind == "inner-product" ? 0.5 : 1;
}

settings::Section<AttackConfig> AttackSection() {
  using A = AttackConfig;
  settings::Section<A> f;
  f.AddChoice("kind", &A::kind,
              {"none", "label-flip", "sign-flip", "scaling", "free-rider", "inner-product", "alie",
               "min-max", "min-sum", "mimic", "backdoor"},
              "what hostile clients send instead of their updates; in simulations only");
  const auto attacked = [](const A& attack) { return attack.kind != "none"; };
  f.Add("fraction", &A::fraction,
        "share of all clients that is hostile, the same clients in every round", Below(0, 1))
      .Needs(attacked, "attack.kind other than \"none\"");
  f.Add("scale", &A::scale,
        "factor on an honest update; default: sign-flip 1 (sent as -1), scaling 10, inner-product "
        "0.5 (sent as -0.5), label-flip 1, backdoor 1",
        AboveUpTo(0, 1e12))
      .Needs([](const A& attack) { return attack.scales(); },
             "attack.kind = \"sign-flip\", \"scaling\", \"inner-product\", \"label-flip\" or "
             "\"backdoor\"");
  f.Add("noise", &A::noise, "standard deviation of the Gaussian noise that a free-rider sends",
        AtLeast(0))
      .Needs([](const A& attack) { return attack.kind == "free-rider"; },
             "attack.kind = \"free-rider\"");
  f.Add(
       "z", &A::z,
       "alie: distance from the honest clients' mean, in standard deviations; default: the largest "
       "that leaves hostile clients within a majority",
       Between(0, 1e6))
      .Needs([](const A& attack) { return attack.kind == "alie"; }, "attack.kind = \"alie\"");
  f.AddChoice(
       "perturbation", &A::perturbation, {"std", "unit", "sign"},
       "min-max, min-sum: direction from the honest clients' mean, away from their deviation, "
       "from the mean itself, or from its signs")
      .Needs([](const A& attack) { return attack.takes_distances(); },
             "attack.kind = \"min-max\" or \"min-sum\"");
  const auto backdoor = [](const A& attack) { return attack.backdoor(); };
  constexpr char kBackdoor[] = "attack.kind = \"backdoor\"";
  f.Add("target", &A::target, "backdoor: number of the class that stamped images are to get",
        AtLeast(0))
      .Needs(backdoor, kBackdoor);
  f.Add("poisoned", &A::poisoned,
        "backdoor: share of a hostile client's training rows that are stamped and get the target "
        "class",
        AboveUpTo(0, 1))
      .Needs(backdoor, kBackdoor);
  f.Add(
       "trigger", &A::trigger,
       "backdoor: side in pixels of the bright square in the lower right corner of a stamped image",
       AtLeast(1))
      .Needs(backdoor, kBackdoor);
  return f;
}

HostileClients::HostileClients(const AttackConfig& attack, uint64_t clients, uint64_t seed) {
  if (!attack.on()) return;
  count_ = FloorOf(attack.fraction, clients);
  hostile_.resize(clients);
  RandomStream stream({.seed = seed, .purpose = Purpose::kAttack});
  for (const uint64_t client : SampleWithoutReplacement(stream, clients, count_))
    hostile_[client] = true;
}

}  // namespace macaw
