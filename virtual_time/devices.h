#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "core/ids.h"
#include "plan/devices.h"
#include "virtual_time/presence.h"

namespace macaw::virtual_time {

struct Tables;  // table.h

// A rate of a network in bytes a second. A turn's rate is log-normal with this mean and this
// standard deviation; 0: each turn has the mean.
struct Rate {
  double mean = 0, deviation = 0;
};

// A kind of device, before the turn's own factors.
struct Device {
  double samples_per_s = 0;  // training examples that pass forward and backward through the model
  Rate down, up;
};

// Bytes that a client moves in its turn, in all phases of the round.
struct Traffic {
  double down = 0, up = 0;
  friend bool operator==(const Traffic&, const Traffic&) = default;
};

// Seconds of a client's turn.
struct TurnTime {
  double download = 0, work = 0, upload = 0;
  double whole() const { return download + work + upload; }
};

// Which device each client has, and how long its turns take. All of it follows from the
// configuration, its seed, the client and the round; nothing is measured, and no call depends on an
// earlier one. Memory: that of the file's table. Thread-safe.
class Devices {
 public:
  virtual ~Devices() = default;
  virtual Device Of(ClientId client) const = 0;
  // `passed`: rows that go through the model, each as often as it does.
  virtual TurnTime TurnOf(Round round, ClientId client, double passed,
                          const Traffic& traffic) const = 0;
};

// Which of the clients whose turns of a round are equally long is first: the one with the smaller
// number. It follows from the seed, the round and the client.
uint64_t TieOf(const DevicesConfig& config, Round round, ClientId client);

// The clients that devices belong to. `name` is called only for devices.assign = "name", and only
// until a function below returns.
struct Population {
  uint64_t clients = 0;
  std::function<std::string(ClientId)> name;
};

// The family `config.family`, which must not be "none". Its table lives as long as the result, and
// by name there are four more bytes a client. Errors name the keys of [devices], and clients
// without a row.
absl::StatusOr<std::unique_ptr<Devices>> MakeDevices(const DevicesConfig& config,
                                                     const Tables& tables,
                                                     const Population& population);

// The presence of tables.presence; null where there is none. Errors and memory are as above.
absl::StatusOr<std::unique_ptr<Presence>> MakePresence(const DevicesConfig& config,
                                                       const Tables& tables,
                                                       const Population& population);

}  // namespace macaw::virtual_time
