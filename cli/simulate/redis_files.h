#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace macaw::cli {

// Removes what a redis-server that was killed was still writing aside: temp-rewriteaof-*,
// temp-*.rdb. No server may be running on the folder.
void SweepRedisFiles(const std::string& folder);

// Makes the data folder of a redis-server that was killed, or had no room left, readable again
// before the next one starts on it; no server may be running there. Sweeps it, and:
// - A command that is half written at the end of an append-only file is cut off. Redis does so
//   itself in the last of its files; an earlier one, which it leaves when the disk fills up as it
//   begins a new one, it refuses to read. Nobody was told that such a command is done, and a state
//   that a checkpoint names is missed by name if it should be gone.
// What was cut, a line for people each. Any other damage is left to Redis to speak of.
absl::StatusOr<std::vector<std::string>> MendRedisFiles(const std::string& folder);

// How many bytes of an append-only file are whole commands. All of them, where it has other damage
// than an end in the middle of a command.
uint64_t WholeCommands(absl::string_view file);

}  // namespace macaw::cli
