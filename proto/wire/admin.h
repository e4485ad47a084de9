#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "core/clock.h"
#include "proto/admin/handler.h"

// The operator's protocol over gRPC.
namespace macaw::wire {

// Serves operators on a listener of its own, together with gRPC's health service.
class AdminServer {
 public:
  // `listen`: "unix:PATH" or "host:port". `handler` must outlive the server.
  static absl::StatusOr<std::unique_ptr<AdminServer>> Start(const std::string& listen,
                                                            admin::AdminHandler& handler);
  virtual ~AdminServer() = default;         // ends every open call
  virtual std::string address() const = 0;  // to dial, with the real port
};

// An operator's connection. All calls block. One thread at a time.
class AdminClient {
 public:
  static absl::StatusOr<std::unique_ptr<AdminClient>> Dial(const std::string& server);
  virtual ~AdminClient() = default;
  virtual absl::StatusOr<std::string> Status() = 0;  // a JSON object (proto/admin/status.h)
  // Makes up a request id if the change has none.
  virtual absl::StatusOr<admin::Changed> Apply(admin::Change change) = 0;
  // Calls `line` with the number and text of each line of events.jsonl, from a number on (0: from
  // now on), until it returns false or the run has ended.
  virtual absl::Status Watch(uint64_t from,
                             const std::function<bool(uint64_t, const std::string&)>& line) = 0;
};

}  // namespace macaw::wire
