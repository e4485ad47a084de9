#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "cli/config/config.h"
#include "data/dataset.h"
#include "virtual_time/devices.h"
#include "virtual_time/table.h"

namespace macaw::cli {

// Reads the tables that devices.file and devices.presence name, and puts their digests into
// config.run.devices, together with the rules of [round], which decide results there. Without
// [devices] there are none. Errors name the key, the file, the line and the column.
absl::StatusOr<virtual_time::Tables> ReadDevices(Config& config);

// The devices of a run's clients, and when these are there. Null: the run has none of them.
struct ClientDevices {
  std::shared_ptr<const virtual_time::Devices> devices;
  std::shared_ptr<const virtual_time::Presence> presence;
};
// Of a resolved configuration; reads its tables again. `dataset` has the clients' names.
absl::StatusOr<ClientDevices> OpenClientDevices(const Config& config, const data::Dataset& dataset);

// Whether every client has a row, if devices.assign says that clients go by their names.
absl::Status CheckDevices(const Config& config, const virtual_time::Tables& tables,
                          const virtual_time::Population& population);

}  // namespace macaw::cli
