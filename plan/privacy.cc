#include "plan/privacy.h"

namespace macaw {

using settings::Above;
using settings::AboveUpTo;
using settings::AtLeast;

settings::Section<PrivacyConfig> PrivacySection() {
  using P = PrivacyConfig;
  settings::Section<P> f;
  f.AddChoice("mechanism", &P::mechanism, {"none", "gaussian"},
              "differential privacy of clients: what they send is clipped, and the server adds "
              "noise to the sum; in simulations only");
  const auto on = [](const P& privacy) { return privacy.on(); };
  const auto adaptive = [](const P& privacy) { return privacy.adaptive(); };
  const std::string needs = "privacy.mechanism = \"gaussian\"";
  const std::string needs_quantile = "privacy.clip_quantile";
  f.Add(
       "clip", &P::clip,
       "largest norm of a client's update; longer updates are scaled to it; a private run names it",
       Above(0))
      .Needs(on, needs);
  f.Add("noise", &P::noise,
        "standard deviation of the noise on the sum of a round's updates, in units of clip; `macaw "
        "privacy` says which is enough for an epsilon; a private run names it",
        Above(0))
      .Needs(on, needs);
  f.Add("delta", &P::delta, "delta of (epsilon, delta); below 1 / privacy.population",
        {.least = 0, .most = 1, .open_least = true, .open_most = true})
      .Needs(on, needs);
  f.Add(
       "clip_quantile", &P::clip_quantile,
       "adaptive clipping: the clip moves to this quantile of the updates' norms, and privacy.clip "
       "is its first value",
       {.least = 0, .most = 1, .open_least = true, .open_most = true})
      .Needs(on, needs);
  f.Add("clip_rate", &P::clip_rate, "adaptive clipping: how fast clip moves", AboveUpTo(0, 10))
      .Needs(on, needs)
      .Needs(adaptive, needs_quantile);
  f.Add("count_noise", &P::count_noise,
        "adaptive clipping: standard deviation of the noise on the number of shorter updates, in "
        "clients; default: a twentieth of a round's",
        Above(0))
      .Needs(on, needs)
      .Needs(adaptive, needs_quantile);
  f.Add("noise_cohort", &P::noise_cohort,
        "clients a round in the system that the run stands for, which has this noise and epsilon; "
        "the run simulates cohort.size of them; default: cohort.size",
        AtLeast(1))
      .Needs(on, needs);
  f.Add("population", &P::population,
        "clients from which that system draws its rounds, for epsilon; default: the run's clients",
        AtLeast(1))
      .Needs(on, needs);
  return f;
}

}  // namespace macaw
