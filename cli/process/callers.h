#pragma once

#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/fleet/caller.h"

namespace macaw::cli {

// The name under which a process gets its token from its environment.
inline constexpr char kTokenVariable[] = "MACAW_TOKEN";

// Who may call a server, by the secret that each was given: `macaw simulate` makes a token for
// every worker that it starts and tells the server in a file that only this user can read.
class Callers {
 public:
  // The new node's token: 128 random bits, in hexadecimal. `owns`: names of clients that only this
  // node trains.
  std::string Add(const std::string& node, std::vector<std::string> owns = {});

  absl::Status Write(const std::string& path) const;
  // An error names the file and what is wrong in it.
  static absl::StatusOr<Callers> Read(const std::string& path);

  // A stranger, unless the token is one of these. Never null.
  fleet::CallerPtr Identify(absl::string_view token) const;

 private:
  absl::flat_hash_map<std::string, fleet::CallerPtr> by_token_;
};

}  // namespace macaw::cli
