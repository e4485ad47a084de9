#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace macaw::cli {

// Where a page is served, and what its callers must send.
struct PageAddress {
  std::string host;
  int port = 0;
  std::string token;  // "": nothing, and the host is a loopback address
};

// `http`: HOST:PORT, or :PORT for 127.0.0.1; `token_file`: its first line is the token; "": none.
// `key` and `token_key` are what the user calls the two, for errors. Refuses an address that other
// machines can reach without a token.
absl::StatusOr<PageAddress> ReadPageAddress(const std::string& http, const std::string& token_file,
                                            const std::string& key, const std::string& token_key);

}  // namespace macaw::cli
