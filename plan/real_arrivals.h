#pragma once

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "plan/run_plan.h"

namespace macaw {

// Whether rounds do not wait for each other and real devices say when clients arrive: on a fleet,
// or where the log of one is repeated. With [devices] the virtual clock says it.
inline bool DevicesArrive(const RunPlan& plan) {
  return plan.asynchronous.by_arrival() && !plan.devices.on();
}

// Refuses a simulation of such a run, which repeats no log.
inline absl::Status CheckForSimulation(const RunPlan& plan) {
  if (!DevicesArrive(plan)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "round.mode is \"", plan.asynchronous.mode,
      "\": the devices say when clients arrive: add [devices], for example family = \"phones\""));
}

}  // namespace macaw
