#include "plan/asynchronous.h"

#include <cmath>

namespace macaw {

using settings::AboveUpTo;
using settings::AtLeast;

settings::Section<AsynchronousConfig> AsynchronousSection() {
  using A = AsynchronousConfig;
  settings::Section<A> f;
  const auto by_arrival = [](const A& config) { return config.by_arrival(); };
  const char* const mode = "round.mode = \"buffered\" or \"mixed\"";
  f.AddChoice(
      "mode", &A::mode, {"synchronous", "buffered", "mixed", "overlapped"},
      "synchronous: a round draws its clients and waits for them. buffered: the server "
      "steps whenever cohort.size clients have arrived, and new ones begin at once "
      "(FedBuff). mixed: each arrival moves the model towards the client's (FedAsync). "
      "overlapped: a round draws its clients when those of the round before have done their work, "
      "and does not wait for their updates (CO2). In a simulation "
      "all three need [devices], which says how long that takes; on a fleet, which can have "
      "buffered, the devices do");
  f.Add("concurrency", &A::concurrency,
        "clients that train at a time, cohort.size or more; 0: cohort.size", AtLeast(0))
      .Needs(by_arrival, mode);
  f.Add("refill", &A::refill,
        "new clients begin in groups of this size, as soon as so many places are free, at most "
        "round.concurrency; on a fleet they begin with each step",
        AtLeast(1))
      .Needs(by_arrival, mode);
  f.Add("discount", &A::discount,
        "a of (1 + t)^-a, the factor of an update whose model is t steps old; 0: none", AtLeast(0))
      .Needs(by_arrival, mode);
  f.Add("max_staleness", &A::max_staleness,
        "steps by which a client's model may be old; an older arrival does not count; 0: any",
        AtLeast(0))
      .Needs(by_arrival, mode);
  f.Add("mixing", &A::mixing,
        "share of the client's model in the new one, times the factor of round.discount",
        AboveUpTo(0, 1))
      .Needs([](const A& config) { return config.mixed(); }, "round.mode = \"mixed\"");
  return f;
}

double DiscountOf(const AsynchronousConfig& config, uint32_t staleness) {
  if (staleness == 0 || config.discount == 0) return 1;
  const double age = 1.0 + staleness;
  // The last bit of std::pow depends on the library.
  if (config.discount == 0.5) return 1 / std::sqrt(age);
  if (config.discount == 1) return 1 / age;
  return std::pow(age, -config.discount);
}

}  // namespace macaw
