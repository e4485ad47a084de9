#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace macaw::cli {

// Removes the temporary files of a redis-server that was killed: temp-rewriteaof-*, temp-*.rdb. No
// server may be running on the folder.
void SweepRedisFiles(const std::string& folder);

// Makes the data folder of a redis-server readable again, after the server was killed or had no
// space left. Call it before the next start; no server may be running on the folder. It sweeps the
// folder, and cuts off a half-written command at the end of an append-only file. Redis does the
// latter itself in the last of its files only. It refuses such an end in an earlier file, which it
// leaves behind when the disk fills up while it begins a new file. A command that is cut off was
// never confirmed to anybody. If a state that a checkpoint names should be lost, the run reports
// that by name. Returns one line for the user per cut. Redis itself reports any other damage.
absl::StatusOr<std::vector<std::string>> MendRedisFiles(const std::string& folder);

// How many bytes of an append-only file are whole commands. All bytes, if the file has other damage
// than an end in the middle of a command.
uint64_t WholeCommands(absl::string_view file);

}  // namespace macaw::cli
