#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/standing/page_address.h"
#include "cli/standing/queue.h"
#include "proto/http/page_gate.h"
#include "proto/http/page_server.h"

namespace macaw::cli {

// The runs of a standing server for browsers and Prometheus, whether one is open or not. Only
// reads.
//   /           the newest runs; the page reloads every 5 s
//   /runs.json  all of them, as JsonOf
//   /metrics    Prometheus' text format
class QueuePage {
 public:
  // Listens, and answers on threads of its own. `queue` must outlive it. `run_page`: the address of
  // the open run's own page; "": it has none.
  static absl::StatusOr<std::unique_ptr<QueuePage>> Start(const PageAddress& address,
                                                          std::string run_page,
                                                          const RunQueue& queue);
  int port() const { return server_->port(); }

 private:
  QueuePage(std::string token, std::string run_page, const RunQueue& queue)
      : gate_(std::move(token)), run_page_(std::move(run_page)), queue_(queue) {}
  http::PageReply AnswerTo(const http::PageRequest& request) const;

  const http::PageGate gate_;
  const std::string run_page_;
  const RunQueue& queue_;
  std::unique_ptr<http::PageServer> server_;  // destroyed first
};

// The page and the metrics of these runs, oldest first.
std::string QueueHtml(const std::vector<QueuedRun>& runs, const std::string& run_page);
std::string QueueMetrics(const std::vector<QueuedRun>& runs);

}  // namespace macaw::cli
