#pragma once

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace macaw::testing_support {

// Settings of a small run, beside those of WriteConfig: an MLP, and few clients with few rows of
// few classes each. `cohort`: how many train in a round. `more`: settings that win over these.
inline std::vector<std::string> SmallRun(int clients, int cohort,
                                         const std::vector<std::string>& more = {}) {
  std::vector<std::string> settings = {absl::StrCat("partition.clients=", clients),
                                       absl::StrCat("cohort.size=", cohort), "model.name=mlp"};
  settings.insert(settings.end(), more.begin(), more.end());
  return settings;
}

// Settings of a [privacy] that suits any small run.
inline std::vector<std::string> SmallPrivacy() {
  return {"privacy.mechanism=gaussian", "privacy.clip=1",          "privacy.noise=1",
          "privacy.delta=0.001",        "cohort.sampling=poisson", "cohort.weight=uniform"};
}

// Settings of emulated devices of a small run, so that it has virtual time.
inline std::vector<std::string> SmallDevices() {
  return {"devices.family=lognormal", "devices.samples_per_s=50"};
}

}  // namespace macaw::testing_support
