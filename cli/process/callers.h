#pragma once

#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/fleet/caller.h"

namespace macaw::cli {

// The environment variable from which a process gets its token.
inline constexpr char kTokenVariable[] = "MACAW_TOKEN";

// Who may call a server, by secret token. `macaw simulate` makes a token for every worker that it
// starts, and tells the server in a file that only this user can read.
class Callers {
 public:
  // Adds a node and returns its token: 128 random bits, in hexadecimal. `owns`: names of clients
  // that only this node trains.
  std::string Add(const std::string& node, std::vector<std::string> owns = {});

  absl::Status Write(const std::string& path) const;
  // An error names the file and what is wrong in it.
  static absl::StatusOr<Callers> Read(const std::string& path);

  // The caller with this token; a stranger if the token is unknown. Never null.
  fleet::CallerPtr Identify(absl::string_view token) const;

 private:
  absl::flat_hash_map<std::string, fleet::CallerPtr> by_token_;
};

}  // namespace macaw::cli
