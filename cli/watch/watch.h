#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace macaw::cli {

// The page of `macaw report` for runs that go on. Only this machine can open it.
//   /           the page, with what there is
//   /version    a text that changes when there is more
//   /data.json  ReportData
// The page asks for the version every second, so it also goes on after a sleeping laptop or another
// server on the same port.
class LivePage {
 public:
  // Listens on 127.0.0.1 (port 0: any free one) and answers on threads of its own. Errors are
  // ReportData's, or name the port.
  static absl::StatusOr<std::unique_ptr<LivePage>> Start(std::vector<std::string> runs, int port);
  virtual ~LivePage() = default;
  virtual int port() const = 0;
};

}  // namespace macaw::cli
