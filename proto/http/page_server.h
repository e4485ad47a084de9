#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/clock.h"

// A small HTTP server for pages that are only read. What a caller can cost it is bounded before
// anything is known of the caller: connections, bytes and time. So it is safe at an address that
// others can reach.
namespace macaw::http {

struct PageRequest {
  bool head_only = false;                                    // HEAD, not GET
  std::string path;                                          // "/status.json"
  absl::flat_hash_map<std::string, std::string> parameters;  // of the query, decoded
  absl::flat_hash_map<std::string, std::string> headers;     // names in lower case

  std::string Parameter(absl::string_view name) const;  // "": absent
  std::string Header(absl::string_view name) const;
};

struct PageReply {
  int status = 200;
  std::string type = "text/plain; charset=utf-8";
  std::string body = {};
  std::vector<std::pair<std::string, std::string>> headers = {};
};

struct PageLimits {
  size_t head_bytes = 16 << 10;                    // of a request; 431 beyond
  Duration head_time = std::chrono::seconds(2);    // for the whole head, from the first byte on
  Duration reply_time = std::chrono::seconds(20);  // for the whole reply to be taken
  size_t connections = 64;                         // at once
  size_t of_address = 16;                          // at once
  size_t answers = 16;                             // being made at once; 503 beyond
};

// A new connection is always taken. Where there is no room, the oldest one that has not sent its
// request gives way, of its own address if that has its share: a caller that sends its request at
// once is answered whatever others do.
class PageServer {
 public:
  // Called on one of two threads, for GET and HEAD requests alone. The server leaves out the body
  // of a reply to HEAD.
  using Answer = std::function<PageReply(const PageRequest&)>;

  // Listens, and serves on threads of its own. The error names the address.
  static absl::StatusOr<std::unique_ptr<PageServer>> Start(const std::string& host, int port,
                                                           Answer answer,
                                                           const PageLimits& limits = {});
  virtual ~PageServer() = default;  // stops; calls of Answer have ended
  virtual int port() const = 0;
};

// Whether the request names this machine. A page of another site may ask a browser for anything
// here, under a name of its own that leads to 127.0.0.1.
bool NamesLoopback(const PageRequest& request);
// 403 and a sentence.
PageReply RefuseOtherNames();

}  // namespace macaw::http
