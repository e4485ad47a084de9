#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "core/settings/section.h"

namespace macaw {

// Differential privacy of the clients, added by the server (algorithms/around/privacy.h).
struct PrivacyConfig {
  std::string mechanism = "none";
  double clip = 1;                      // C: the largest norm of what a client sends
  double noise = 1;                     // z: deviation of the sum's noise, in units of C
  double delta = 1e-6;                  // δ
  std::optional<double> clip_quantile;  // γ of adaptive clipping; unset: C stays
  double clip_rate = 0.2;               // η_C
  std::optional<double> count_noise;    // σ_b, in clients; CountNoise() has the default
  // The clients of a round whose noise is simulated; unset: cohort.size.
  std::optional<uint64_t> noise_cohort;
  // The clients among which those are drawn, for epsilon; unset: those of the run.
  std::optional<uint64_t> population;

  bool on() const { return mechanism != "none"; }
  bool adaptive() const { return clip_quantile.has_value(); }
  friend bool operator==(const PrivacyConfig&, const PrivacyConfig&) = default;
};

// The keys of [privacy].
settings::Section<PrivacyConfig> PrivacySection();

}  // namespace macaw
