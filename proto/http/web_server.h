#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "proto/admin/handler.h"

// The status of a run for web browsers and Prometheus. Only reads; nothing can be changed here.
//   /             the status page, which polls the two below
//   /status.json  admin::JsonOf
//   /rows.jsonl   metrics.jsonl from byte ?from=N on; the header X-Next says where to go on
//   /metrics      Prometheus' text format (metrics.h)
namespace macaw::http {

struct WebOptions {
  std::string host = "127.0.0.1";
  int port = 0;       // 0: any free one
  std::string token;  // a request without it is answered 401; empty: no token is needed
  std::string rows;   // the file metrics.jsonl
};

class WebServer {
 public:
  // Listens, and answers on threads of its own. `handler` must outlive the server. The error names
  // the address.
  static absl::StatusOr<std::unique_ptr<WebServer>> Start(const WebOptions& options,
                                                          admin::AdminHandler& handler);
  virtual ~WebServer() = default;
  virtual int port() const = 0;
};

}  // namespace macaw::http
